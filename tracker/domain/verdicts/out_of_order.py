"""A checkpoint that is evaluated after its successors: which of them are looked at again, and what may change. Pure.

With the newest checkpoint evaluated first, its past is filled in later. A late checkpoint is judged against its own
past and announces nothing. Instead the newest one is judged again with one more checkpoint behind it: it takes the
place of the one look that every checkpoint of the run has, so `policy.alpha` is shared as if all had come in order.
Those in between get the words that they would have had, and announce nothing.
"""

from collections.abc import Iterable
from dataclasses import replace

from eval_jobs.types import EvalRecord
from tracker.domain.records.branches import branches_of
from tracker.domain.records.types import Report, VerdictWord
from tracker.domain.regression.blocks import BLOCK

NEAREST = BLOCK
"""Later checkpoints whose recent baseline holds the late one; a peak further back changes little."""


def overtaken_by(record: EvalRecord, records: Iterable[EvalRecord]) -> tuple[EvalRecord, ...]:
    """Return what is to be judged again after `record`, ascending by step: its nearest successors, and the newest.

    Where training went back, later checkpoints of the branch that was left have another past.

    Args:
        record: of the checkpoint that was just judged.
        records: of its run, without samples, in any order.
    """
    own, suite, known = record.plan.checkpoint, record.plan.suite.name, tuple(records)
    branches = branches_of((own, *(one.plan.checkpoint for one in known)))
    later: dict[int, EvalRecord] = {}
    for one in sorted(known, key=lambda r: (r.plan.checkpoint.step, r.plan.checkpoint.ready_at, r.finished_at)):
        other = one.plan.checkpoint
        if other.step > own.step and one.plan.suite.name == suite and branches.sees(other, own):
            later[other.step] = one
    found = tuple(later.values())
    if len(found) <= NEAREST:
        return found
    return (*found[:NEAREST], found[-1])


def rejudged(before: Report, after: Report) -> Report:
    """Return a report as it stands now: what does not rest on other checkpoints' scores stays.

    Latency has a level of its own, of which every checkpoint has one share.
    """
    missing = {v.benchmark: v for v in before.verdicts if v.word is VerdictWord.MISSING}
    verdicts = tuple(missing.get(v.benchmark, v) for v in after.verdicts)
    return replace(after, verdicts=verdicts, latency=before.latency)


def words_by_benchmark(report: Report) -> tuple[tuple[str, VerdictWord], ...]:
    """Return what is said of every benchmark."""
    return tuple((verdict.benchmark, verdict.word) for verdict in report.verdicts)
