"""What a worker needs from the outside world. Each docstring holds the rules that an adapter must obey.

The contract suites in tests/contract run over every adapter and over the fakes in tests/fakes.
"""

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from eval_jobs.errors import TrackerError
from eval_jobs.queue_types import Backlog, Claim, Hold, HoldEnd, QueueState
from eval_jobs.records.progress import Progress
from eval_jobs.types import (
    Checkpoint,
    Endpoint,
    EvalPlan,
    EvalRecord,
    EvalResult,
    ProbeLoad,
    ProbeResult,
    ServeSpec,
    Suite,
)

Note = Callable[[str], None]
"""Called with one short line for people whenever there is something new to show; returns quickly and never raises.

Nothing is read out of it: an engine that says `shards 7/10` is loading, and that is all.
"""
ShowProgress = Callable[[Progress], None]
"""The same with fields: by `Progress.answered` a queue knows whether a plan gets further."""


class Clock(Protocol):
    """The only source of time."""

    def now(self) -> datetime:
        """Return the current time, timezone-aware UTC. Somebody may set it, forwards or backwards, by hours."""

    def monotonic_s(self) -> float:
        """Return seconds that nobody can set: only the difference of two values means something."""

    def sleep(self, seconds: float) -> None:
        """Wait; may return early, never raises."""


class Engine(Protocol):
    """Serves checkpoints, one at a time. An engine may stay warm between two checkpoints."""

    def serving(self, checkpoint: Checkpoint, spec: ServeSpec, *, progress: Note) -> AbstractContextManager[Endpoint]:
        """Serve `checkpoint` while the context is open.

        On entry the endpoint has proven that it answers as this checkpoint and nothing else. Whether the
        weights came by a cold start or by a swap is the adapter's choice; `Endpoint.info` says which, and why.
        Leaving the context ends this checkpoint's service; the process behind it may live on until `close`. One that
        died, froze or answers as something else meanwhile is noticed before the next service, and replaced.

        Raises:
            PortTaken, ServerDied, StartTimeout, WrongModel, EndpointUnreachable: each names the log to read.
            ConfigError, CheckpointNotFound, CheckpointUnreadable, DiskFull: nothing was started.
        """

    def rest(self) -> None:
        """Do what the last service's settings ask for when nothing waits; called again and again between services.

        It may stop the engine or let it sleep. The next service works all the same.
        """

    def used_cpu_s(self) -> float | None:
        """Return the CPU time that all processes of this engine have used so far, those that ended included.

        It only grows. None: they compute on a GPU, are not ours, or this cannot be read.
        """

    def close(self) -> None:
        """Stop whatever still runs and leave no process behind. Calling it twice is harmless."""


class Evaluator(Protocol):
    """Scores the benchmarks of a suite against an endpoint."""

    def prepare(self, suite: Suite, *, api_key_env: str) -> None:
        """Begin what takes long before `suite` can be evaluated, and return at once.

        To be called while the engine loads. Nothing is raised: what is wrong is said by `evaluate`, which needs no call
        of this.
        """

    def evaluate(
        self, suite: Suite, endpoint: Endpoint, *, plan_id: str, progress: ShowProgress
    ) -> tuple[EvalResult | TrackerError, ...]:
        """Ask every sample of every benchmark and score it; return one outcome for each benchmark, in their order.

        Over all benchmarks together never more than `suite.concurrency` requests are in flight, and so many are until
        fewer questions are left. Each benchmark fails alone, and its error is its outcome; nothing of it is raised.

        A result holds one `SampleScore` for every planned sample and repeat; a sample that could not be
        answered is there with status `error`. An interrupted call with the same `plan_id` continues at the missing
        samples of each benchmark.

        UnknownBenchmark, BadData: asking again is useless.
        EndpointFailed, EvaluatorDied: the server or the evaluator went away; asking again may help.
        """

    def kept(self) -> tuple[str, ...]:
        """Return the ids of plans of which something is kept for resuming, whoever left it."""

    def forget(self, plan_id: str) -> None:
        """Drop what was kept of this plan for resuming: its results are safe elsewhere. Nothing kept: no-op."""

    def close(self) -> None:
        """Stop the evaluator's process. Calling it twice is harmless."""


class Prober(Protocol):
    """Measures latency."""

    def probe(self, endpoint: Endpoint, load: ProbeLoad) -> ProbeResult:
        """Put `load` on the endpoint and time it, after a warm-up, from a process of its own.

        Failed requests are counted and never enter a percentile.

        Raises:
            ProbeError: nothing could be measured.
        """

    def rest(self) -> None:
        """Give back what is only needed to measure soon; called again and again while there is nothing to measure."""


class Launcher(Protocol):
    """Starts worker processes and keeps them alive; none is started before the first `check`."""

    def check(self) -> None:
        """Start workers that are missing, and dead ones again.

        Raises:
            TrackerError: no worker can live here.
        """

    def nudge(self) -> None:
        """Let idle workers look into the queue now; no effect where they cannot be reached."""

    def stop(self) -> None:
        """Stop all workers; each gives its plan back first. Calling it twice is harmless."""


class PlanQueue(Protocol):
    """Where plans are put, and skipped where too many wait."""

    def add(self, plan: EvalPlan, *, now: datetime, backlog: Backlog = Backlog.OLDEST, keep: bool = False) -> bool:
        """Add a plan; return False when its id is known already.

        `backlog` decides when its turn comes among the plans of its run, whoever claims. With `keep` it is never
        skipped, and unless the lowest step comes first anyway it comes before the others.

        A known plan that still waits is replaced by `plan` and its turn: what is not part of the id, such as how the
        checkpoint is served, may have been corrected. One that was skipped or left out waits again if it may not be
        skipped now. In any other state nothing changes.
        """

    def known(self, plan_ids: Collection[str]) -> frozenset[str]:
        """Return which of these plans were ever added, whatever became of them."""

    def skip(self, run_id: str, *, max_waiting: int) -> int:
        """Skip what waits beyond the `max_waiting` checkpoints of a run whose turn comes first; return how many plans.

        A checkpoint is skipped with all its waiting plans. Plans that may not be skipped count, and stay.
        """

    def skipped(self) -> tuple[EvalPlan, ...]:
        """Return skipped plans that nobody has taken note of yet, lowest step first, ties by plan id."""

    def leave_out(self, plan_id: str) -> None:
        """Mark a skipped plan as taken note of. Repeating it is harmless; in any other state nothing changes."""

    def revive(self, *, given_up: Collection[str] = ()) -> int:
        """Let every plan wait again whose acknowledged record held a failed benchmark; return how many.

        Not those of checkpoints whose `uri` is in `given_up`: their weights are gone, and another failure would take
        the place of what was measured. Attempts start anew. The next `add` brings the plans' present settings. A plan
        that brought its workers down is revived `rules.MAX_REVIVALS` times in all.
        """


class ClaimQueue(Protocol):
    """Where workers take plans and hand in what came out."""

    def claim(
        self, *, worker: str, now: datetime, lease_until: datetime, except_runs: Collection[str] = ()
    ) -> Claim | None:
        """Take a plan that waits, or else None; those of `except_runs` are left to others.

        Of several runs the one that had no claim for the longest time comes first, and within it the plan whose turn
        it is. A plan whose lease has run out waits again, and its worker counts as crashed. A lease that ends later
        than any worker may ask for (`rules.MAX_LEASE_S`) was given before the clock was set back: it ends at
        `lease_until` from now on, unless its worker says otherwise.
        """

    def extend(
        self, claim: Claim, *, lease_until: datetime, progress: Progress | None = None, answered: int = 0
    ) -> bool:
        """Move the lease and say how far the plan is; return False when the claim is no longer this worker's.

        `answered` counts the samples of the whole plan: one that gets further than ever before is not one that
        brings its workers down.
        """

    def finish(self, claim: Claim, record: EvalRecord, *, now: datetime) -> bool:
        """Store the outcome; return False and store nothing when the claim is no longer this worker's.

        Repeating it stores nothing new and returns True: the first answer may have been lost on its way.
        """

    def release(self, claim: Claim, *, counts: bool = True, note: str = "") -> None:
        """Give a plan back unfinished; it is waiting again. Not this worker's claim: no-op.

        With `counts` False the claim was only interrupted, and the next one has the same number. `note` says why it
        waits, until the next claim of any plan of the run.
        """

    def done(self, plan_ids: Collection[str]) -> frozenset[str]:
        """Return which of these plans are finished or acknowledged and have nothing left that could be tried again."""


class HoldRegistry(Protocol):
    """Who works on what, for those who look after workers."""

    def holds(self) -> tuple[Hold, ...]:
        """Return who holds a plan now, whether or not the lease has run out."""

    def take_back(self, hold: Hold, end: HoldEnd) -> bool:
        """Let a plan wait again whose worker is gone; return False when it is held otherwise by now.

        The caller must know that nobody works on it.
        """


class ResultQueue(Protocol):
    """Where what workers have handed in is taken over."""

    def finished(self) -> tuple[EvalRecord, ...]:
        """Return records not yet acknowledged, lowest step first, ties by plan id."""

    def acknowledge(self, plan_id: str) -> None:
        """Mark a finished plan as taken over. Repeating it is harmless; in any other state nothing changes."""


class QueueStatus(Protocol):
    """What is on its way."""

    def open_steps(self, run_id: str, *, sweeps: bool = True) -> frozenset[int]:
        """Return the steps of a run that have a plan which waits, runs or is finished and not acknowledged.

        Without `sweeps`, plans of sweeps do not count: nothing of the run itself waits for them.
        """

    def state(self) -> QueueState:
        """Return what is on its way now. The cost does not grow with what is acknowledged or left out."""


class Queue(PlanQueue, ClaimQueue, HoldRegistry, ResultQueue, QueueStatus, Protocol):
    """Plans on their way from a watcher to workers and back. Safe for several processes.

    A plan is waiting, running (claimed, with a lease), finished or acknowledged; or skipped, and then left out.
    """
