"""Ports of a worker. Each docstring specifies the behaviour required of an adapter.

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
"""Callback with one short line of text to display. It must return quickly and never raise.

The text is never parsed: `shards 7/10` from an engine is not interpreted as progress.
"""
ShowProgress = Callable[[Progress], None]
"""The same with structured progress. `Progress.answered` shows whether a plan makes progress."""


class Clock(Protocol):
    """The only source of time."""

    def now(self) -> datetime:
        """Return the current time, timezone-aware UTC. The clock may be set forwards or backwards by hours."""

    def monotonic_s(self) -> float:
        """Return seconds of a clock that cannot be set. Only the difference of two values is meaningful."""

    def sleep(self, seconds: float) -> None:
        """Wait `seconds`; may return early, never raises."""


class Engine(Protocol):
    """Serves checkpoints, one at a time. An engine may stay warm between two checkpoints."""

    def serving(self, checkpoint: Checkpoint, spec: ServeSpec, *, progress: Note) -> AbstractContextManager[Endpoint]:
        """Serve `checkpoint` while the context is open.

        On entry, the endpoint is verified to serve this checkpoint and nothing else. The adapter chooses between a
        cold start and a weight swap; `Endpoint.info` contains the choice and its reason. When the context ends, the
        process may keep running until `close`. If it has died, hung or serves another model by the next call, it is
        replaced.

        Raises:
            PortTaken, ServerDied, StartTimeout, WrongModel, EndpointUnreachable: each names the log to read.
                `ServerDied` also when the context ends, if the engine died in it and nothing else was raised.
            ConfigError, CheckpointNotFound, CheckpointUnreadable, DiskFull: nothing was started.
        """

    def rest(self) -> None:
        """Apply the idle settings of the last spec (`between`, `idle_timeout_s`); called repeatedly while idle.

        It may stop the engine or put it to sleep. The next `serving` works in any case.
        """

    def used_cpu_s(self) -> float | None:
        """Return the CPU time in seconds that all processes of this engine have used, including ended ones.

        It never decreases. None: they compute on a GPU, were not started by the tracker, or it cannot be read.
        """

    def close(self) -> None:
        """Stop all processes of the engine. Calling it twice is harmless."""


class Evaluator(Protocol):
    """Scores the benchmarks of a suite against an endpoint."""

    def prepare(self, suite: Suite, *, api_key_env: str) -> None:
        """Start slow preparations for `suite` in the background and return immediately.

        Optional; called while the engine loads. It never raises: `evaluate` reports all errors.
        """

    def evaluate(
        self, suite: Suite, endpoint: Endpoint, *, plan_id: str, progress: ShowProgress
    ) -> tuple[EvalResult | TrackerError, ...]:
        """Score every sample of every benchmark; return one outcome for each benchmark, in their order.

        Across all benchmarks, at most `suite.concurrency` requests are in flight, and exactly as many until fewer
        samples are left. Benchmarks fail independently: an error is the outcome of its benchmark and is not raised.

        A result contains one `SampleScore` for every planned sample and repeat; a sample without a valid answer has
        status `error`. After an interruption, a call with the same `plan_id` evaluates only the missing samples of
        each benchmark.

        UnknownBenchmark, BadData: a retry is useless.
        EndpointFailed, EvaluatorDied: the server or the evaluator failed; a retry may succeed.
        """

    def kept(self) -> tuple[str, ...]:
        """Return the IDs of plans with data kept for resuming, including data of earlier workers."""

    def forget(self, plan_id: str) -> None:
        """Delete the data kept for resuming this plan, whose results are stored elsewhere. No data: no-op."""

    def close(self) -> None:
        """Stop the evaluator's process. Calling it twice is harmless."""


class Prober(Protocol):
    """Measures latency."""

    def probe(self, endpoint: Endpoint, load: ProbeLoad) -> ProbeResult:
        """Send `load` to the endpoint after a warm-up and time it, from a separate process.

        Failed requests are counted and excluded from percentiles.

        Raises:
            ProbeError: nothing could be measured.
        """

    def rest(self) -> None:
        """Release resources that are kept for the next measurement; called repeatedly while idle."""


class Launcher(Protocol):
    """Starts and restarts worker processes; none is started before the first `check`."""

    def check(self) -> None:
        """Start missing workers and restart dead ones.

        Raises:
            TrackerError: no worker can run here.
        """

    def nudge(self) -> None:
        """Make idle workers poll the queue now; no effect if they cannot be reached."""

    def stop(self) -> None:
        """Stop all workers; each releases its plan first. Calling it twice is harmless."""


class PlanQueue(Protocol):
    """Adds plans, and skips plans if too many wait."""

    def add(self, plan: EvalPlan, *, now: datetime, backlog: Backlog = Backlog.OLDEST, keep: bool = False) -> bool:
        """Add a plan; return False if its ID is already known.

        `backlog` sets its order among the plans of its run. With `keep` it is never skipped, and it comes first unless
        the backlog is `oldest`.

        A known plan that still waits is replaced by `plan`, and its order is updated: settings that are not part of
        the ID may have been corrected. A skipped or left-out plan waits again if `plan` may not be skipped. In any
        other state nothing changes.
        """

    def known(self, plan_ids: Collection[str]) -> frozenset[str]:
        """Return which of these plans were ever added, in any state."""

    def skip(self, run_id: str, *, max_waiting: int) -> int:
        """Skip the waiting checkpoints of a run after the next `max_waiting`; return the number of skipped plans.

        A checkpoint is skipped with all its waiting plans. Plans that may not be skipped count, but stay.
        """

    def skipped(self) -> tuple[EvalPlan, ...]:
        """Return skipped plans that are not left out yet, lowest step first, ties by plan ID."""

    def leave_out(self, plan_id: str) -> None:
        """Mark a skipped plan as recorded by the watcher. Repeating it is harmless; other states do not change."""

    def waiting(self) -> tuple[EvalPlan, ...]:
        """Return all waiting plans, lowest step first, ties by plan ID."""

    def withdraw(self, plan_id: str) -> bool:
        """Remove a plan that waits, as if it was never added; return False if it is in any other state."""

    def revive(self, renewed: Callable[[EvalPlan], EvalPlan | None]) -> int:
        """Requeue every plan whose acknowledged record has a failed benchmark; return the number of plans.

        A plan waits again in the form that `renewed` returns, with the same ID, so that no worker can claim it with
        the settings that failed. None: it is not requeued. Attempts are reset. A plan that was set aside after losing
        its workers is revived at most `rules.MAX_REVIVALS` times.
        """


class ClaimQueue(Protocol):
    """Claims plans for workers and stores their outcomes."""

    def claim(
        self, *, worker: str, now: datetime, lease_until: datetime, except_runs: Collection[str] = ()
    ) -> Claim | None:
        """Claim a waiting plan; return None if there is none. Plans of `except_runs` are left to other workers.

        The run without a claim for the longest time comes first, and within it the next plan in order. A plan with an
        expired lease waits again, and its worker counts as crashed. A lease that ends later than the maximum
        (`rules.MAX_LEASE_S`) was given before the clock was set back: it is shortened to `lease_until`, unless its
        worker extends it.
        """

    def extend(
        self, claim: Claim, *, lease_until: datetime, progress: Progress | None = None, answered: int = 0
    ) -> bool:
        """Extend the lease and store the progress; return False if the claim is no longer this worker's.

        `answered` counts the samples of the whole plan. A new maximum is progress: it resets the plan's count of
        consecutive lost workers.
        """

    def finish(self, claim: Claim, record: EvalRecord, *, now: datetime) -> bool:
        """Store the outcome; return False and store nothing if the claim is no longer this worker's.

        A repeated call stores nothing new and returns True: the first reply may have been lost.
        """

    def release(self, claim: Claim, *, counts: bool = True, note: str = "") -> None:
        """Release an unfinished plan, which waits again. No-op if the claim is no longer this worker's.

        With `counts` False the claim was only interrupted, and the next one has the same number. `note` is the reason
        for waiting; it is valid until the next claim of any plan of the run.
        """

    def done(self, plan_ids: Collection[str]) -> frozenset[str]:
        """Return which of these plans are finished or acknowledged without a failed benchmark to retry."""


class HoldRegistry(Protocol):
    """Current holds on plans, for the recovery from dead workers."""

    def holds(self) -> tuple[Hold, ...]:
        """Return all current holds, including those with an expired lease."""

    def take_back(self, hold: Hold, end: HoldEnd) -> bool:
        """Requeue a plan whose worker is gone; return False if this hold has ended in the meantime.

        The caller must make sure that no process works on the plan.
        """


class ResultQueue(Protocol):
    """Finished records, which the watcher takes over."""

    def finished(self) -> tuple[EvalRecord, ...]:
        """Return records not yet acknowledged, lowest step first, ties by plan id."""

    def acknowledge(self, plan_id: str) -> None:
        """Mark a finished plan as taken over. Repeating it is harmless; in any other state nothing changes."""


class QueueStatus(Protocol):
    """The state of open plans."""

    def open_steps(self, run_id: str, *, sweeps: bool = True) -> frozenset[int]:
        """Return the steps of a run with a plan that waits, runs, or is finished but not acknowledged.

        Without `sweeps`, plans of sweeps are ignored: the run itself does not wait for them.
        """

    def state(self) -> QueueState:
        """Return the open plans. The cost does not depend on the number of acknowledged or left-out plans."""


class Queue(PlanQueue, ClaimQueue, HoldRegistry, ResultQueue, QueueStatus, Protocol):
    """Passes plans from a watcher to workers, and records back. Safe for several processes.

    A plan is waiting, running (claimed, with a lease), finished or acknowledged; or skipped, and then left out.
    """
