"""Training health: the trainer's logs, and what was read of them."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from eval_jobs.records.changes import Change
from eval_jobs.records.gpu_health import GpuHealth
from tracker.domain.health.logs.cursor import Cursor, LogPiece
from tracker.domain.health.processes.leaks import Usage
from tracker.domain.health.processes.seen import ProcessId, Sample, SeenProcess
from tracker.domain.health.stored import ReadNow, ReadSoFar, RunProgress
from tracker.domain.records.training import TrainingIncident
from tracker.domain.records.types import CurvePoint


class TrainingLog(Protocol):
    """Everything that a trainer writes about one training, while it is written."""

    def read(self) -> Iterator[LogPiece]:
        """Yield what was written since the last call, in the order of each log.

        Nothing is returned twice and nothing is left out, whether a log grows, is renamed, copied and truncated,
        replaced or deleted meanwhile, as far as its content still exists. One call returns a bounded part of what is
        there. A last line without an end is returned as `rest`, once, after a while. A log that cannot be read is
        logged once and does not affect the others; this never raises.
        """

    def follow_outputs(self, paths: Collection[str]) -> None:
        """Follow these files, too, until another call omits them: processes of the training print to them.

        What is in one that was never read is history.
        """

    def count_rest(self, path: str) -> Cursor | None:
        """Note that the `rest` of a log was counted as trouble; return the cursor to store."""

    def recent_logs(self) -> frozenset[str]:
        """Return the names, as in `Stream`, of the logs that were written within the last hour."""

    def is_waiting(self) -> bool:
        """Return whether the last reading has not ended: there may be unread lines."""

    def saved_bytes(self) -> int:
        """Return the size of the newest checkpoints, whole or not; another number than before is progress."""

    def close(self) -> None:
        """Release open files. Calling it twice is harmless."""


class Processes(Protocol):
    """The processes of this machine. Nothing that it does stops or changes one of them; no call raises."""

    def all(self) -> tuple[SeenProcess, ...]:
        """Return all processes that may be seen; what may not be read of one is empty."""

    def ended(self, ids: Iterable[ProcessId]) -> frozenset[ProcessId]:
        """Return which of these processes have ended; one that its parent has not waited for, too."""

    def samples(self, ids: Iterable[ProcessId]) -> Mapping[ProcessId, Sample]:
        """Return what each of these processes does now, with its stack.

        One that has ended, or whose number is used again, is GONE.
        """

    def exits(self, ids: Iterable[ProcessId]) -> Mapping[ProcessId, float]:
        """Return in Unix seconds when those of these have ended that were alive at an earlier call.

        Each is noticed at once, so that the first one is known although the others follow within a moment.
        """

    def memory_kills(self, ids: Iterable[ProcessId]) -> int:
        """Return how many processes the kernel has killed for memory in the cgroups of these, as far as it says so.

        Only a difference means something. The cgroup of a process that has ended is the one that it was seen in.
        """


class Machine(Protocol):
    """What this machine says of the processes of a training. No call raises."""

    def kernel_lines(self, pids: Collection[int]) -> list[str]:
        """Return the messages of the kernel since the last call that are about these processes, or about none."""

    def usage(self, ids: Collection[ProcessId]) -> Usage:
        """Return what these processes use."""

    def gpus(self, pids: Collection[int]) -> tuple[GpuHealth, ...]:
        """Return the GPUs that these processes use, or all that are visible if the driver does not say which."""


class HealthStore(Protocol):
    """What was read of the logs of one training, with how far they were read."""

    def read_so_far(self) -> ReadSoFar:
        """Return what was saved last, and make the caller the only one that may save."""

    def save(self, now: ReadNow) -> bool:
        """Store all of it or, if this raises or the process dies, nothing.

        Return False, and store nothing, if another process has called `read_so_far` since: a reader that hung for a
        while knows less than what is stored.

        Raises:
            StoreError: the database cannot be reached or written.
        """


class Changes(Protocol):
    """What changed in the whole store: who follows it reads only what is new."""

    def position(self) -> str:
        """Return the position from which on changes are new."""

    def changes(self, position: str) -> tuple[str, tuple[Change, ...]]:
        """Return what changed since a position, in order, and the new position: none is missed or returned twice.

        Of changes to one thing it is the newest. What did not change since the store has numbers is returned for no
        position: read everything once, after `position`.
        """


class TrainingHistory(Changes, Protocol):
    """What the logs of all runs say, for those who show it."""

    def followed_runs(self) -> tuple[str, ...]:
        """Return the ids of all runs whose logs were read, ordered by name."""

    def progress(self, run: str) -> tuple[RunProgress, ...]:
        """Return how a run and its sub-folders stand, ordered by run id; () if no log was read."""

    def training_incidents(self, run_id: str) -> tuple[TrainingIncident, ...]:
        """Return the incidents of a run in their order, dismissed ones included; a sub-folder has those of its run."""

    def dismiss(self, incident_id: str, reason: str) -> TrainingIncident:
        """Close an incident and return it; the same again replaces the reason.

        It is open again if another failure joins it, one of a class that it did not have.

        Raises:
            ConfigError: there is no such incident.
        """

    def logged_points(self, run_id: str, after: int = 0) -> tuple[int, tuple[CurvePoint, ...]]:
        """Return the points of a run's logs that were stored after the position `after`, and the new position."""

    def stated_points(self, run_id: str) -> tuple[CurvePoint, ...]:
        """Return the points that the trainer saved with checkpoints, in the order in which they were stored."""

    def append_stated_points(self, run_id: str, points: Sequence[CurvePoint]) -> None:
        """Store points that the trainer saved with a checkpoint, after all others."""
