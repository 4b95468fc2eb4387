"""Short runs of one benchmark, judged."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from eval_jobs.types import BenchmarkFailure, EvalRecord, EvalResult
from tests.unit.tracker.domain.making import Scores, record_of
from tracker.domain.records.losses import Incident
from tracker.domain.records.policy import Policy
from tracker.domain.records.types import Report, Verdict
from tracker.domain.scores.run_scores import RunScores, with_record
from tracker.domain.scores.sample_columns import columns_of
from tracker.domain.verdicts.context import RunContext
from tracker.domain.verdicts.judge import judge

NOW = datetime(2026, 2, 1, tzinfo=UTC)
POLICY = Policy(planned_checkpoints=10)
NOTHING = RunContext()


def right(count: int, n: int = 200) -> list[float]:
    """The first `count` of `n` samples right: nested, so the same samples stay right."""
    return [1.0] * count + [0.0] * (n - count)


def run_of(*counts: int | Scores | BenchmarkFailure, n: int = 200, **settings_: Any) -> list[EvalRecord]:
    """One record every 100 steps."""
    return [
        record_of(100 * (i + 1), {"sums": right(c, n) if isinstance(c, int) else c}, **settings_)
        for i, c in enumerate(counts)
    ]


def scores_of(trajectory: Sequence[EvalRecord], known: RunScores | None = None) -> RunScores:
    """Everything that was scored, in the order of the sequence."""
    scores = known or RunScores(run_id=trajectory[0].plan.checkpoint.run_id if trajectory else "run")
    for record in trajectory:
        results = (o for o in record.outcomes if isinstance(o, EvalResult))
        scores = with_record(scores, record, {r.benchmark: columns_of(r.samples) for r in results})
    return scores


def judged(
    trajectory: Sequence[EvalRecord], index: int = -1, policy: Policy = POLICY, run_context: RunContext = NOTHING
) -> Verdict:
    return judge(trajectory[index], scores_of(trajectory), run_context, policy, now=NOW).verdicts[0]


def followed(
    trajectory: Sequence[EvalRecord], policy: Policy = POLICY, run_context: RunContext = NOTHING
) -> list[Report]:
    """Judge one checkpoint after the other, as they come, remembering the losses beside what `run_context` holds."""
    reports: list[Report] = []
    scores = RunScores(run_id="run")
    for record in trajectory:
        scores = scores_of([record], scores)
        report = judge(record, scores, run_context, policy, now=NOW)
        run_context = remembering(run_context, report)
        reports.append(report)
    return reports


def remembering(run_context: RunContext, *reports: Report) -> RunContext:
    """Return the memory with the incidents of some reports, as a history keeps them: by what opened them."""
    kept = {_key_of(e): e for e in run_context.incidents}
    for report in reports:
        kept |= {_key_of(e): e for e in report.incidents}
    return replace(run_context, incidents=tuple(kept.values()))


def _key_of(e: Incident) -> tuple[object, ...]:
    return e.key


def words(trajectory: Sequence[EvalRecord], policy: Policy = POLICY) -> list[str]:
    return [report.verdicts[0].word.value for report in followed(trajectory, policy)]


def changes_of(reports: Iterable[Report]) -> list[Incident]:
    """Return the losses that open, are forgotten or end, without those that only have newer numbers."""
    found: list[Incident] = []
    known: dict[tuple[object, ...], Incident] = {}
    for report in reports:
        for incident in report.incidents:
            before = known.get(_key_of(incident))
            if before is None or replace(before, drop=incident.drop) != incident:
                found.append(incident)
            known[_key_of(incident)] = incident
    return found
