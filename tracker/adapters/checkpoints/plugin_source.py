"""Wraps a checkpoint source of another package: anything that it raises becomes an error that names the plugin."""

import logging
from datetime import datetime
from pathlib import Path

from eval_jobs.errors import ConfigError, StoreError, TrackerError
from eval_jobs.host.plugins import PluginKind, find_plugin
from eval_jobs.records.program import Program
from eval_jobs.types import Checkpoint
from tracker.domain.records.types import Gap
from tracker.ports import CheckpointSource

log = logging.getLogger(__name__)

SOURCES = PluginKind(group="tracker.sources", what="checkpoint source", setting="run.source", built_in=())


class PluginSource:
    """`tracker.ports.CheckpointSource` around the source of another package.

    If `ready` of the plugin fails, other than by a ConfigError, the source is behind as in an outage, and is retried.
    """

    def __init__(self, run: str, place: str, pins_dir: Path, program: Program) -> None:
        """Find and open the plugin; raise ConfigError if it is not installed or cannot be opened."""
        self._found = find_plugin(SOURCES, program.name)
        self._source: CheckpointSource = self._found.open(CheckpointSource, run, place, pins_dir, program)
        self._failed = ""

    def ready(self, now: datetime) -> tuple[Checkpoint, ...]:
        """Return the new checkpoints; () if the plugin fails; see the port."""
        try:
            with self._found.blamed(StoreError):
                found = tuple(self._source.ready(now))
        except ConfigError:
            raise
        except TrackerError as error:
            if str(error) != self._failed:
                log.warning("%s; retrying", error)
            self._failed = str(error)
            return ()
        self._failed = ""
        return tuple(self._found.checked(Checkpoint, one, "checkpoint", ConfigError) for one in found)

    def gaps(self) -> tuple[Gap, ...]:
        """Return the plugin's gaps; see the port."""
        with self._found.blamed(StoreError):
            found = tuple(self._source.gaps())
        return tuple(self._found.checked(Gap, one, "gap", ConfigError) for one in found)

    def is_behind(self) -> bool:
        """Return whether there may be more checkpoints; see the port."""
        with self._found.blamed(StoreError):
            return bool(self._failed) or self._source.is_behind()

    def give_up(self, now: datetime) -> None:
        """Record a gap for every unfinished checkpoint; see the port."""
        with self._found.blamed(StoreError):
            self._source.give_up(now)

    def wait(self, timeout_s: float) -> None:
        """Wait; see the port."""
        with self._found.blamed(StoreError):
            self._source.wait(timeout_s)

    def wake(self) -> None:
        """Make `wait` return immediately; see the port."""
        with self._found.blamed(StoreError):
            self._source.wake()

    def close(self) -> None:
        """Close the plugin; see the port."""
        with self._found.blamed(StoreError):
            self._source.close()
