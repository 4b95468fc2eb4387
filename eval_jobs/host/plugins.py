"""Plugins of other packages, found by entry point if the settings name something that is not built in.

    found = find_plugin(ENGINES, "llama")   # ConfigError: no such engine, two of them, a wrong version
    engine = found.open(VllmEngine, work_dir, clock)       # all its errors name the package
    with found.blamed(ServeError): engine.rest()           # ... also those that it raises
    found.checked(float, engine.used_cpu_s(), "used_cpu_s", ServeError)     # ... or values of a wrong type

Built-in names are never looked up here, so no package can replace them.
"""

import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from importlib.metadata import EntryPoint, entry_points, version
from typing import Any, TypeVar

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from pydantic import TypeAdapter, ValidationError

from eval_jobs.errors import ConfigError, TrackerError

log = logging.getLogger(__name__)

OURS = "checkpoint-tracker"

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class PluginKind:
    """A kind of plugin."""

    group: str
    """Group of the entry points."""
    what: str
    setting: str
    """Name of the setting that selects one."""
    built_in: tuple[str, ...]


ENGINES = PluginKind(
    group="tracker.engines", what="engine", setting="serve.engine", built_in=("vllm", "sglang", "remote")
)
EVALUATORS = PluginKind(
    group="tracker.evaluators", what="evaluator", setting="benchmark.evaluator", built_in=("evalscope", "lm-eval")
)


@dataclass(frozen=True, kw_only=True)
class Found:
    """An entry point of an installed package."""

    kind: PluginKind
    point: EntryPoint
    origin: str
    """Package and version, `acme-tools 1.2`."""

    def __str__(self) -> str:
        return f"the {self.kind.what} `{self.point.name}` of {self.origin}"

    def check_version(self, planned: str) -> None:
        """Reject a version other than the planned one: its scores would be attributed to the planned version.

        Raises:
            ConfigError: `planned` is another package or version.
        """
        if planned != self.origin:
            raise ConfigError(
                f"{self.kind.setting} = `{self.point.name}` was planned with {planned or 'no version'}, but {self} "
                "is installed here",
                hint="install the same version on the watcher's machine and on every worker machine",
            )

    def load(self) -> Any:  # noqa: ANN401 - what the caller says it is
        """Import the object that the entry point refers to.

        Raises:
            ConfigError: it cannot be imported.
        """
        with self.blamed(ConfigError):
            return self.point.load()

    def open(self, port: type, *arguments: object) -> Any:  # noqa: ANN401 - what the caller says it is
        """Load the object and call it; the result must have the protocol `port`.

        Raises:
            ConfigError: it cannot be loaded, rejects the arguments, or lacks a member of the port.
            TrackerError: raised by the plugin itself.
        """
        made = self.load()
        with self.blamed(ConfigError):
            part = made(*arguments)
            lacking = [name for name in _members(port) if not hasattr(part, name)]
        if lacking:
            raise ConfigError(
                f"{self} lacks {' and '.join(f'`{name}`' for name in lacking)}, required by {port.__name__}",
                hint=f"install a version of {self.origin.partition(' ')[0]} for this version of checkpoint-tracker",
            )
        return part

    def checked(self, kind: type[T], given: T, what: str, error: type[TrackerError]) -> T:
        """Return `given`, a value from the plugin, as it will be read back after storage, with all types checked.

        Raises:
            TrackerError: of the class `error`, if a type is wrong. An unreadable stored record would stop the process
                that reads it next.
        """
        adapter: TypeAdapter[T] = TypeAdapter(kind)
        try:
            if is_dataclass(kind) and not isinstance(given, kind):
                raise TypeError(f"expected {kind.__name__}, got {type(given).__name__}")
            return adapter.validate_python(adapter.dump_python(given, mode="json", warnings=False))
        except ValidationError as problem:
            first = problem.errors(include_url=False, include_input=False)[0]
            place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
            said = f"{what}{place} is invalid: {first['msg']}"
        except (ValueError, TypeError, AttributeError) as problem:  # it cannot be serialized
            said = f"{what} is invalid: {problem}"
        raise error(f"{self}: {said}", hint=f"report this bug to the author of {self.origin}")

    @contextmanager
    def blamed(self, kind: type[TrackerError]) -> Iterator[None]:
        """Convert any exception to an error that names the plugin; a TrackerError passes unchanged."""
        try:
            yield
        except TrackerError:
            raise
        except (Exception, SystemExit) as error:  # third-party code may raise anything
            log.debug("%s failed", self, exc_info=True)
            said = " ".join(str(error).split()) or "no reason given"
            raise kind(
                f"{self} failed: {type(error).__name__}: {said}",
                hint=f"report this bug to the author of {self.origin}, or use another version of it",
            ) from error

    def quietly(self, kind: type[TrackerError], call: Callable[[], T], default: T) -> T:
        """Return the result of `call`, or `default` with a warning if it fails: the next plan reports the error."""
        try:
            with self.blamed(kind):
                return call()
        except TrackerError as error:
            log.warning("%s", error)
            return default


def find_plugin(kind: PluginKind, name: str) -> Found:
    """Return the entry point with this name, without importing its package.

    Raises:
        ConfigError: there is none, several packages have one, or its package requires another version of this program.
    """
    points = entry_points(group=kind.group)
    own = {_origin(point): point for point in points if point.name == name and name not in kind.built_in}
    if not own:
        known = sorted({*kind.built_in, *(point.name for point in points)})
        raise ConfigError(
            f"unknown {kind.what} `{name}` (known: {', '.join(known)})",
            hint=f"correct {kind.setting}, or install the package that provides it into the tracker's environment",
        )
    if len(own) > 1:
        raise ConfigError(
            f"several packages provide the {kind.what} `{name}`: {', '.join(sorted(own))}",
            hint="uninstall all but one of them",
        )
    ((origin, point),) = own.items()
    found = Found(kind=kind, point=point, origin=origin)
    _check_demand(found)
    return found


def _origin(point: EntryPoint) -> str:
    if point.dist is None:
        return "an unknown package"
    return f"{point.dist.name} {point.dist.version}"


def _members(port: type) -> list[str]:
    return [name for name, _ in inspect.getmembers_static(port) if not name.startswith("_")]


def _check_demand(found: Found) -> None:
    """Reject a package whose requirements exclude this version of the program."""
    ours = version(OURS)
    for line in (found.point.dist.requires if found.point.dist is not None else None) or ():
        try:
            demand = Requirement(line)
        except InvalidRequirement:
            continue  # invalid, so not a requirement on this program
        if canonicalize_name(demand.name) == OURS and not demand.specifier.contains(ours, prereleases=True):
            raise ConfigError(
                f"{found} requires {OURS}{demand.specifier}, but this is {ours}",
                hint=f"install a version of {found.origin.partition(' ')[0]} for {OURS} {ours}",
            )
