"""An engine from another package. Any exception it raises becomes an error that names the package."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from eval_jobs.errors import ServeError, TrackerError
from eval_jobs.host.plugins import ENGINES, find_plugin
from eval_jobs.ports import Clock, Engine, Note
from eval_jobs.types import Checkpoint, Endpoint, ServeSpec

log = logging.getLogger(__name__)


class PluginEngine:
    """`eval_jobs.ports.Engine` around an engine from another package."""

    def __init__(self, name: str, work_dir: Path, clock: Clock) -> None:
        """Find and open the plugin; raise ConfigError if it is not installed or cannot be opened."""
        self._found = find_plugin(ENGINES, name)
        self._engine: Engine = self._found.open(Engine, work_dir, clock)

    @contextmanager
    def serving(self, checkpoint: Checkpoint, spec: ServeSpec, *, progress: Note) -> Iterator[Endpoint]:
        """Serve through the plugin; see the port. An exception raised inside the context always propagates."""
        if spec.program is not None:
            self._found.check_version(spec.program.version)
        with self._found.blamed(ServeError):
            context = self._engine.serving(checkpoint, spec, progress=progress)
            given = context.__enter__()
        try:
            endpoint = self._found.checked(Endpoint, given, "endpoint", ServeError)
            yield replace(endpoint, info=replace(endpoint.info, version=endpoint.info.version or self._found.origin))
        except BaseException as error:
            try:
                with self._found.blamed(ServeError):
                    context.__exit__(type(error), error, error.__traceback__)
            except TrackerError as another:
                if another is not error:
                    log.warning("%s", another)
            raise
        with self._found.blamed(ServeError):
            context.__exit__(None, None, None)

    def rest(self) -> None:
        """Call `rest` of the plugin; an error is only logged."""
        self._found.quietly(ServeError, self._engine.rest, None)

    def used_cpu_s(self) -> float | None:
        """Return the value from the plugin; None if it fails, with a logged warning."""
        return self._found.quietly(ServeError, self._used_cpu_s, None)

    def close(self) -> None:
        """Close the plugin; an error is only logged."""
        self._found.quietly(ServeError, self._engine.close, None)

    def _used_cpu_s(self) -> float | None:
        used_s = self._engine.used_cpu_s()
        if used_s is None:
            return None
        return self._found.checked(float, used_s, "used_cpu_s", ServeError)
