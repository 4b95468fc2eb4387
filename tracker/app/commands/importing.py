"""`tracker import`: adds results that were measured elsewhere to the history, with verdicts in the order of steps.

No alerts are sent: imported results are the past. A checkpoint that is known already is only published to MLflow again,
which changes nothing; so the next import finishes one that was killed. The run is read once, whatever the number of
its checkpoints: the caller must be the only importer of the run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from eval_jobs.codec import record_from_bytes, record_to_bytes
from eval_jobs.errors import BadData, StoreError
from eval_jobs.ports import Clock
from eval_jobs.types import EvalRecord
from tracker.app.review import recall, rejudge, store_conclusion, warn_of_baseline
from tracker.app.world import World
from tracker.domain.imports.records import ImportedCheckpoint, demand_no_other_metric, known_chances
from tracker.domain.records.imported import without_samples
from tracker.domain.records.policy import Policy
from tracker.domain.records.types import Report
from tracker.domain.scores.mean_series import means_of, with_means
from tracker.domain.scores.run_scores import RunScores
from tracker.domain.verdicts.context import RunContext
from tracker.domain.verdicts.judge import judge
from tracker.domain.verdicts.out_of_order import overtaken_by
from tracker.ports import Tracking


@dataclass(frozen=True, kw_only=True)
class JudgedImport:
    """One imported checkpoint with its verdicts."""

    checkpoint: ImportedCheckpoint
    report: Report
    is_new: bool
    """False: it was imported before."""


def import_results(
    world: World, checkpoints: Sequence[ImportedCheckpoint], *, clock: Clock, show: Callable[[JudgedImport], None]
) -> tuple[JudgedImport, ...]:
    """Import the checkpoints of one run, lowest step first; `show` is called with each.

    Raises:
        BadData: the run has a benchmark at a step by another metric.
    """
    if not checkpoints:
        return ()
    world = replace(world, policy=policy_of(world, checkpoints))
    run = _Run(world, checkpoints[0].record.plan.checkpoint.run_id)
    demand_no_other_metric(checkpoints, run.records)
    taken = []
    for checkpoint in checkpoints:
        one = _take(world, run, checkpoint, clock)
        show(one)
        taken.append(one)
    return tuple(taken)


def publish_all(tracking: Tracking) -> int:
    """Flush until nothing waits for MLflow, or a flush makes no progress; return how many results still wait."""
    left = tracking.flush()
    while left and (then := tracking.flush()) < left:
        left = then
    return left


def policy_of(world: World, checkpoints: Sequence[ImportedCheckpoint]) -> Policy:
    """Return the policy with the length of an imported run and the scores of random guessing."""
    policy = replace(world.policy, chance={**known_chances(checkpoints), **world.policy.chance})
    if policy.planned_checkpoints is not None:
        return policy
    new = [one.record.plan.checkpoint for one in checkpoints]
    known = [record.plan.checkpoint for record in world.history.records(new[0].run_id)]
    return replace(policy, planned_checkpoints=len({checkpoint.step for checkpoint in (*known, *new)}))


class _Run:
    """State of the run during an import.

    Records that a watcher adds meanwhile are ignored: they are never compared with imported ones.
    """

    def __init__(self, world: World, run_id: str) -> None:
        self._history, self._run_id = world.history, run_id
        pinned = world.policy.pinned
        self._is_own_baseline = pinned is not None and pinned.run_id == run_id
        self._memory = recall(world.history, run_id, world.policy)
        self.scores: RunScores = world.history.scores(run_id)
        """Scores of all records."""
        self._records = {record.plan.id: record for record in self._memory.records}
        self._steps = {record.plan.checkpoint.step for record in self._memory.records}
        self._highest = max(self._steps, default=-1)
        self._means = means_of(self._memory.records)

    @property
    def records(self) -> tuple[EvalRecord, ...]:
        """All records, without samples."""
        return tuple(self._records.values())

    def add(self, record: EvalRecord) -> RunContext:
        """Store a record, and return the context of the run in addition to the scores.

        Raises:
            BadData: it could not be read again.
        """
        _demand_readable(record)
        self._history.append(record)
        if any(result.samples for result in record.results):
            self.scores = self._history.scores(self._run_id)
        self._records[record.plan.id] = without_samples(record)
        # If a step was imported several times, the newest counts, and this one may be older.
        if record.plan.checkpoint.step not in self._steps:
            self._means = with_means(self._means, record)
        else:
            self._means = means_of(self._records.values())
        self._steps.add(record.plan.checkpoint.step)
        return replace(
            self._memory,
            records=self.records,
            means=self._means,
            incidents=self._history.incidents(self._run_id),
            acceptances=self._history.acceptances(self._run_id),
            pinned=self.scores if self._is_own_baseline else self._memory.pinned,
        )

    def later_than(self, record: EvalRecord) -> tuple[EvalRecord, ...]:
        """Return the records whose verdicts must be recomputed after `record` was added."""
        step, highest = record.plan.checkpoint.step, self._highest
        self._highest = max(step, highest)
        if step < highest:
            return overtaken_by(record, self._records.values())
        return ()


def _demand_readable(record: EvalRecord) -> None:
    try:
        record_from_bytes(record_to_bytes(without_samples(record)))
    except StoreError as error:
        what = f"the results of step {record.plan.checkpoint.step} contain an impossible value: {error.__cause__}"
        raise BadData(what, hint="use unmodified result files") from error


def _take(world: World, run: _Run, checkpoint: ImportedCheckpoint, clock: Clock) -> JudgedImport:
    record = checkpoint.record
    known = world.history.report(record.plan.id)
    if known is not None:
        world.tracking.publish(record, known)
        return JudgedImport(checkpoint=checkpoint, report=known, is_new=False)
    run_context = run.add(record)
    warn_of_baseline(record, run_context, world.policy)
    report = judge(record, run.scores, run_context, world.policy, now=clock.now())
    cause = store_conclusion(record, report, world.history)
    world.tracking.publish(record, report)
    rejudge(world, run.later_than(record), run_context, cause)
    return JudgedImport(checkpoint=checkpoint, report=report, is_new=True)
