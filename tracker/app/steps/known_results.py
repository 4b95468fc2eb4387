"""Results that need no evaluation: those of the same weights with the same settings, whatever run and step they had."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property

from eval_jobs.ports import QueueStatus
from eval_jobs.records.run_scope import is_of
from eval_jobs.types import Checkpoint, EvalPlan, EvalRecord, EvalResult, SampleStatus
from tracker.domain.best.retention import Identity, identity_of
from tracker.domain.records.imported import stands_for_import
from tracker.domain.scores.known import composed, content_of, covers, sources_of, taken_over
from tracker.ports import RecordStore


class KnownResults:
    """The records of a run and its sub-folders by the weights that they measured; each run is read once."""

    def __init__(self, history: RecordStore, run: str, queue: QueueStatus | None = None) -> None:
        """Read nothing yet; `queue` shows what is being evaluated."""
        self._history = history
        self._run = run
        self._queue = queue
        self._by_content: dict[tuple[str, str], list[EvalRecord]] = defaultdict(list)
        self._read = set[str]()

    def of(self, checkpoint: Checkpoint) -> Sequence[EvalRecord]:
        """Return the records of a checkpoint's weights, without samples; those of one step by time."""
        for name in {*self._names, checkpoint.run_id} - self._read:
            self._read.add(name)
            for record in self._history.records(name):
                if not stands_for_import(record.plan.checkpoint):
                    self._by_content[content_of(record.plan.checkpoint)].append(record)
        return self._by_content[content_of(checkpoint)]

    def own(self, checkpoint: Checkpoint) -> Sequence[EvalRecord]:
        """Return those of the checkpoint itself."""
        identity = identity_of(checkpoint)
        return [record for record in self.of(checkpoint) if identity_of(record.plan.checkpoint) == identity]

    def is_running(self, plan: EvalPlan) -> bool:
        """Return whether a worker evaluates the checkpoint of `plan`."""
        return identity_of(plan.checkpoint) in self._running

    def usable(self, plan: EvalPlan) -> Sequence[EvalRecord]:
        """Return the records whose results the checkpoint of `plan` can have.

        Those of another run or step are left out if one of their answers has an error: another attempt may have none.
        """
        records, own = self.of(plan.checkpoint), self.own(plan.checkpoint)
        if len(records) == len(own):
            return own
        sources = sources_of(plan, [record for record in records if record not in own]).values()
        failed = {source.plan.id for source in sources if _has_errors(self._history.record(source.plan.id))}
        return [record for record in records if record.plan.id not in failed]

    def current(self, plan: EvalPlan) -> EvalRecord | None:
        """Return the newest record of the checkpoint of `plan`; None: it lacks an outcome of `plan`."""
        own = self.own(plan.checkpoint)
        if own and covers(own[-1], plan):
            return own[-1]
        return None

    def completed(self, record: EvalRecord) -> EvalRecord:
        """Return a record of some benchmarks with the known results of the others; any other record unchanged."""
        if not record.plan.whole:
            return record
        return composed(record, self._results(sources_of(record.plan, self.usable(record.plan))))

    def record_of(self, plan: EvalPlan, now: datetime) -> EvalRecord | None:
        """Return a new record of `plan` from known results alone; None: one is missing."""
        sources = sources_of(plan, self.usable(plan))
        if len(sources) < len(plan.suite.benchmarks):
            return None
        newest = max(sources.values(), key=lambda record: record.finished_at)
        return composed(taken_over(plan, newest, now), self._results(sources))

    @cached_property
    def _names(self) -> Sequence[str]:
        return [name for name in self._history.runs() if is_of(name, self._run)]

    @cached_property
    def _running(self) -> frozenset[Identity]:
        running = [] if self._queue is None else [one.plan for one in self._queue.state().running]
        return frozenset(identity_of(p.checkpoint) for p in running if p.sweep is None and not p.calibration)

    def _results(self, sources: Mapping[str, EvalRecord]) -> dict[str, EvalResult]:
        found: dict[str, EvalResult] = {}
        for plan_id in {source.plan.id for source in sources.values()}:
            names = [name for name, source in sources.items() if source.plan.id == plan_id]
            full = self._history.record(plan_id, names)
            if full is not None:
                found |= {one.benchmark: one for one in full.results if one.benchmark in names}
        return found


def _has_errors(record: EvalRecord | None) -> bool:
    if record is None:
        return True
    return any(sample.status is SampleStatus.ERROR for result in record.results for sample in result.samples)
