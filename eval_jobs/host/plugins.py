"""Parts of other packages, found by entry point when the settings name something that is not built in.

    found = find_plugin(ENGINES, "llama")   # ConfigError: no such engine, two of them, a wrong version
    engine = found.open(VllmEngine, work_dir, clock)       # whatever is wrong with it names the package
    with found.blamed(ServeError): engine.rest()           # ... and so does whatever it raises
    found.checked(float, engine.used_cpu_s(), "used_cpu_s", ServeError)     # ... or gives, where it is of another type

A name that is built in is never looked up here, so no package can take its place.
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
    """A kind of part that other packages may bring."""

    group: str
    """Of the entry points."""
    what: str
    setting: str
    """That names one."""
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
        """Return how messages call it."""
        return f"the {self.kind.what} `{self.point.name}` of {self.origin}"

    def check_version(self, planned: str) -> None:
        """Refuse to stand in for another version: its scores would be taken for those of the one that was planned.

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
        """Import what the entry point names.

        Raises:
            ConfigError: it cannot be imported.
        """
        with self.blamed(ConfigError):
            return self.point.load()

    def open(self, port: type, *arguments: object) -> Any:  # noqa: ANN401 - what the caller says it is
        """Load it and call it.

        Args:
            port: the protocol that it must obey.
            arguments: which the entry point is called with.

        Raises:
            ConfigError: it cannot be loaded, refuses the arguments, or lacks something of the port.
            TrackerError: its own.
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
        """Return what it gave as it will be read again where it is written down, every field of its type.

        Raises:
            TrackerError: of the kind `error`; it is of another type. A record that nobody can read again would stop
                whoever reads it next.
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
        except (ValueError, TypeError, AttributeError) as problem:  # what cannot even be written down
            said = f"{what} is invalid: {problem}"
        raise error(f"{self}: {said}", hint=f"report this bug to the author of {self.origin}")

    @contextmanager
    def blamed(self, kind: type[TrackerError]) -> Iterator[None]:
        """Turn whatever it raises into an error that names it; errors of our own tree pass as they are."""
        try:
            yield
        except TrackerError:
            raise
        except (Exception, SystemExit) as error:  # other people's code may raise anything
            log.debug("%s failed", self, exc_info=True)
            said = " ".join(str(error).split()) or "no reason given"
            raise kind(
                f"{self} failed: {type(error).__name__}: {said}",
                hint=f"report this bug to the author of {self.origin}, or use another version of it",
            ) from error

    def quietly(self, kind: type[TrackerError], call: Callable[[], T], default: T) -> T:
        """Return what `call` gives, and where it fails `default`: the next plan says aloud what is wrong."""
        try:
            with self.blamed(kind):
                return call()
        except TrackerError as error:
            log.warning("%s", error)
            return default


def find_plugin(kind: PluginKind, name: str) -> Found:
    """Return the entry point of that name; nothing of its package is imported.

    Raises:
        ConfigError: there is none, several packages have one, or it was made for other versions of this program.
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


# --- private


def _origin(point: EntryPoint) -> str:
    if point.dist is None:
        return "an unknown package"
    return f"{point.dist.name} {point.dist.version}"


def _members(port: type) -> list[str]:
    return [name for name, _ in inspect.getmembers_static(port) if not name.startswith("_")]


def _check_demand(found: Found) -> None:
    """Refuse a package whose own requirements say that it was made for another version of this program."""
    ours = version(OURS)
    for line in (found.point.dist.requires if found.point.dist is not None else None) or ():
        try:
            demand = Requirement(line)
        except InvalidRequirement:
            continue  # of a package that is none of our business
        if canonicalize_name(demand.name) == OURS and not demand.specifier.contains(ours, prereleases=True):
            raise ConfigError(
                f"{found} requires {OURS}{demand.specifier}, but this is {ours}",
                hint=f"install a version of {found.origin.partition(' ')[0]} for {OURS} {ours}",
            )
