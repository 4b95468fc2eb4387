"""What a checkpoint is compared with, and the paired evidence against it. Pure.

points = earlier_points(record, "sums", trajectory, min_coverage=0.95)   # usable results of lower steps
choices = choose_baselines(points, step, policy.phases)                  # PREVIOUS and BEST
evidence = compare_with(point, choices[0])                               # Evidence, Unlike or TooFewCommon
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eval_jobs.types import EvalPlan, EvalRecord, EvalResult
from tracker.domain.pairing import Pairing, Unlike, pair, served_alike
from tracker.domain.scores import summarise
from tracker.domain.statistics import MCNEMAR, Spread, interval, paired_test
from tracker.domain.types import Baseline, Comparison, Phase

MIN_COMMON = 0.95
"""With fewer common samples the two sides may differ because other samples were asked, not because of the model."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A usable result of one benchmark at one checkpoint."""

    step: int
    plan: EvalPlan
    result: EvalResult
    mean: float
    """In the metric's own direction."""

    @property
    def oriented_mean(self) -> float:
        """Mean where up is better."""
        return self.mean if self.result.higher_is_better else -self.mean


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A baseline and how many checkpoints it was picked from by its score."""

    baseline: Baseline
    point: Point
    selected_from: int = 1


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A comparison and what the rules need beside it."""

    comparison: Comparison
    spread: Spread
    mean: float
    """Candidate's mean over the common samples, in the metric's own direction."""
    baseline_mean: float


@dataclass(frozen=True, kw_only=True)
class TooFewCommon:
    """Two results measured alike whose scored samples overlap too little."""

    n_common: int
    planned: int


Compared = Evidence | Unlike | TooFewCommon


def earlier_points(
    record: EvalRecord, benchmark: str, trajectory: Sequence[EvalRecord], *, min_coverage: float
) -> tuple[Point, ...]:
    """Return the usable results of lower steps of the same run and suite, ordered by step.

    A step that was evaluated more than once (rewound and written again) counts with its newest usable result.
    """
    checkpoint = record.plan.checkpoint
    by_step: dict[int, Point] = {}
    for other in sorted(trajectory, key=lambda r: (r.plan.checkpoint.step, r.finished_at, r.plan.id)):
        if other.plan.checkpoint.run_id != checkpoint.run_id or other.plan.suite.name != record.plan.suite.name:
            continue
        if other.plan.checkpoint.step >= checkpoint.step:
            continue
        point = _point(other, benchmark, min_coverage)
        if point is not None:
            by_step[point.step] = point
    return tuple(by_step.values())


def choose_baselines(points: Sequence[Point], step: int, phases: Sequence[Phase]) -> tuple[Choice, ...]:
    """Return PREVIOUS and BEST for a candidate at `step`; () when `points` (all of lower steps) is empty."""
    if not points:
        return ()
    eligible = _of_first_phase(points, step, phases)
    best = max(eligible, key=lambda p: (p.oriented_mean, p.step))
    return (
        Choice(baseline=Baseline.PREVIOUS, point=points[-1]),
        Choice(baseline=Baseline.BEST, point=best, selected_from=len(eligible)),
    )


def measured_alike(one: Point, other: Point) -> bool:
    """Return whether two results may be compared: equal settings of the benchmark, served in the same way."""
    return one.result.fingerprint == other.result.fingerprint and served_alike(one.plan, other.plan)


def compare_with(candidate: Point, choice: Choice) -> Compared:
    """Compare `candidate` with a chosen baseline on their common samples.

    The p values are multiplied by the number of checkpoints that the baseline was selected from (Bonferroni): the
    best of many is partly the luckiest of many.
    """
    now, before = candidate.result, choice.point.result
    unlike = Unlike(candidate_fingerprint=now.fingerprint, baseline_fingerprint=before.fingerprint)
    pairing = pair(now, before) if measured_alike(candidate, choice.point) else unlike
    if isinstance(pairing, Unlike):
        return pairing
    if pairing.common_fraction < MIN_COMMON:
        return TooFewCommon(n_common=len(pairing.sample_ids), planned=pairing.planned)
    return _evidence(pairing, choice, higher_is_better=now.higher_is_better)


# --- private


def _point(record: EvalRecord, benchmark: str, min_coverage: float) -> Point | None:
    for outcome in record.outcomes:
        if outcome.benchmark == benchmark and isinstance(outcome, EvalResult):
            summary = summarise(outcome)
            if summary.mean is not None and summary.coverage >= min_coverage:
                return Point(step=record.plan.checkpoint.step, plan=record.plan, result=outcome, mean=summary.mean)
    return None


def _of_first_phase(points: Sequence[Point], step: int, phases: Sequence[Phase]) -> Sequence[Point]:
    if len(phases) < 2:
        return points
    # Checkpoint N holds the updates up to N: the one at the border was made by the first phase alone.
    border = sorted(p.from_step for p in phases)[1]
    if step <= border:
        return points
    return [p for p in points if p.step <= border] or points


def _evidence(pairing: Pairing, choice: Choice, *, higher_is_better: bool) -> Evidence:
    test = paired_test(pairing.candidate, pairing.baseline, pairing.clusters)
    low, high = interval(test.spread)
    if test.method == MCNEMAR:  # a difference of shares cannot lie outside
        low, high = max(low, -1.0), min(high, 1.0)
    comparison = Comparison(
        baseline=choice.baseline,
        baseline_step=choice.point.step,
        n_common=test.n,
        common_fraction=pairing.common_fraction,
        delta=test.delta,
        stderr=test.stderr,
        ci_low=low,
        ci_high=high,
        p_worse=min(1.0, test.p_worse * choice.selected_from),
        p_better=min(1.0, test.p_better * choice.selected_from),
        n_lost=test.n_lost,
        n_gained=test.n_gained,
        method=test.method,
    )
    now, before = float(pairing.candidate.mean()), float(pairing.baseline.mean())
    return Evidence(
        comparison=comparison,
        spread=test.spread,
        mean=now if higher_is_better else 1.0 - now,
        baseline_mean=before if higher_is_better else 1.0 - before,
    )
