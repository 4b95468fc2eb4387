"""Which evaluations and results count: the newest of each step, on the newest branch of the run. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from eval_jobs.types import Checkpoint, CheckpointFormat
from tracker.domain.records.branches import branches_of


class StoredEvaluation(NamedTuple):
    """One plan with a record or a report."""

    number: int
    plan_id: str
    run_id: str
    step: int
    suite: str
    uri: str
    source_uri: str
    format: CheckpointFormat
    digest: str
    ready_at: datetime
    finished_at: datetime | None
    judged_at: datetime | None

    @property
    def checkpoint(self) -> Checkpoint:
        """The evaluated checkpoint."""
        return Checkpoint(
            run_id=self.run_id,
            step=self.step,
            uri=self.uri,
            source_uri=self.source_uri,
            format=self.format,
            digest=self.digest,
            ready_at=self.ready_at,
        )


class RowSubject(NamedTuple):
    """What a result or verdict is about."""

    benchmark: str
    subset: str
    measure: str
    metric: str
    fingerprint: str
    higher_is_better: bool


def numbers_left_behind(evaluations: Iterable[StoredEvaluation]) -> frozenset[int]:
    """Return the numbers of the evaluations of checkpoints that training left behind when it went back."""
    found = set[int]()
    for of_run in _by_run(evaluations):
        if len({(e.source_uri, e.digest) for e in of_run}) == len({e.source_uri for e in of_run}):
            continue  # nothing was written twice, as in nearly all runs
        branches = branches_of(e.checkpoint for e in of_run)
        found.update(e.number for e in of_run if branches.left_by(e.checkpoint) is not None)
    return frozenset(found)


def contested(evaluations: Sequence[StoredEvaluation]) -> Iterator[tuple[StoredEvaluation, ...]]:
    """Yield the evaluations of each step and suite that has several, the newest first."""
    places: dict[tuple[str, int, str], list[StoredEvaluation]] = defaultdict(list)
    for one in evaluations:
        places[one.run_id, one.step, one.suite].append(one)
    for same in places.values():
        if len(same) > 1:
            yield tuple(sorted(same, key=_age, reverse=True))


def _by_run(evaluations: Iterable[StoredEvaluation]) -> Iterable[Sequence[StoredEvaluation]]:
    runs: dict[str, list[StoredEvaluation]] = defaultdict(list)
    for one in evaluations:
        runs[one.run_id].append(one)
    return runs.values()


def _age(evaluation: StoredEvaluation) -> tuple[datetime, str]:
    newest = evaluation.judged_at or evaluation.finished_at or evaluation.ready_at
    return newest, evaluation.plan_id
