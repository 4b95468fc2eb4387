"""The first judge: paired tests of a checkpoint against the previous one and the best one, bounded over the run. Pure.

    report = judge(record, trajectory, policy, now=now)

Per benchmark: MISSING -> FIRST -> INCOMPARABLE -> FORGOTTEN -> REGRESSED -> IMPROVED -> EQUIVALENT -> SUSPECT ->
INCONCLUSIVE; the first that holds. One test is held to alpha / (planned checkpoints * benchmarks * 2 baselines), so
that alpha bounds the chance of any false alarm of a suite over the whole run as far as samples flip by chance alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from eval_jobs.types import BenchmarkFailure, EvalRecord, EvalResult
from tracker.domain.baselines import (
    Choice,
    Evidence,
    Point,
    choose_baselines,
    compare_with,
    earlier_points,
    measured_alike,
)
from tracker.domain.reasons import (
    reason_for,
    reason_for_coverage,
    reason_for_failure,
    reason_for_first,
    reason_for_refusal,
)
from tracker.domain.rules import detectable_change, regressed, word_of
from tracker.domain.scores import summarise
from tracker.domain.types import Baseline, Policy, Report, Verdict, VerdictWord

BASELINES = 2
LEARNED_P = 0.01
LEARNED_EFFECT = 0.02
FORGOTTEN_AFTER = 3
"""Checkpoints in a row, the candidate included, that must be below the best."""


@dataclass(frozen=True, kw_only=True)
class _Case:
    """One benchmark of the record, and what it is judged by."""

    point: Point
    earlier: tuple[Point, ...]
    policy: Policy
    blank: Verdict
    """The verdict with everything but the decision."""


def judge(record: EvalRecord, trajectory: Sequence[EvalRecord], policy: Policy, *, now: datetime) -> Report:
    """Judge every benchmark of `record` against the lower steps of its run in `trajectory`.

    Records of other runs and suites, of the same step and of higher steps are ignored, so a record that arrives late
    is judged where it belongs.
    """
    checkpoint = record.plan.checkpoint
    benchmarks = max(1, len(record.plan.suite.benchmarks))
    alpha_test = policy.alpha / (policy.planned_checkpoints * benchmarks * BASELINES)
    return Report(
        run_id=checkpoint.run_id,
        step=checkpoint.step,
        plan_id=record.plan.id,
        verdicts=tuple(
            _failed(outcome, alpha_test)
            if isinstance(outcome, BenchmarkFailure)
            else _judged(record, outcome, trajectory, policy, alpha_test)
            for outcome in record.outcomes
        ),
        created_at=now,
    )


# --- private


def _failed(failure: BenchmarkFailure, alpha_test: float) -> Verdict:
    return Verdict(
        benchmark=failure.benchmark,
        word=VerdictWord.MISSING,
        reason=reason_for_failure(failure),
        score=None,
        stderr=None,
        coverage=0.0,
        comparisons=(),
        alpha_test=alpha_test,
        mde=None,
    )


def _judged(
    record: EvalRecord, result: EvalResult, trajectory: Sequence[EvalRecord], policy: Policy, alpha_test: float
) -> Verdict:
    summary = summarise(result)
    blank = Verdict(
        benchmark=result.benchmark,
        word=VerdictWord.MISSING,
        reason=reason_for_coverage(result, summary, policy.min_coverage),
        score=summary.mean,
        stderr=summary.stderr,
        coverage=summary.coverage,
        comparisons=(),
        alpha_test=alpha_test,
        mde=None,
    )
    if summary.mean is None or summary.coverage < policy.min_coverage:
        return blank
    earlier = earlier_points(record, result.benchmark, trajectory, min_coverage=policy.min_coverage)
    if not earlier:
        return replace(blank, word=VerdictWord.FIRST, reason=reason_for_first(summary.mean))
    point = Point(step=record.plan.checkpoint.step, plan=record.plan, result=result, mean=summary.mean)
    return _against(_Case(point=point, earlier=earlier, policy=policy, blank=blank))


def _against(case: _Case) -> Verdict:
    # After a change of settings a new series begins: checkpoints measured alike are the ones to compare with.
    alike = tuple(p for p in case.earlier if measured_alike(case.point, p))
    choices = choose_baselines(alike or case.earlier, case.point.step, case.policy.phases)
    compared = [compare_with(case.point, choice) for choice in choices]
    evidence = [e for e in compared if isinstance(e, Evidence)]
    if evidence:
        return _decided(case, evidence, alike)
    refusal = compared[0]
    assert not isinstance(refusal, Evidence)  # noqa: S101 - the list above is empty
    reason = reason_for_refusal(case.point.plan, case.point.result.benchmark, choices[0], refusal)
    return replace(case.blank, word=VerdictWord.INCOMPARABLE, reason=reason)


def _decided(case: _Case, evidence: Sequence[Evidence], alike: Sequence[Point]) -> Verdict:
    policy, alpha_test = case.policy, case.blank.alpha_test
    word = word_of(evidence, alpha_test, policy)
    shown = evidence
    if word is VerdictWord.REGRESSED and _forgotten(case, alike):
        word = VerdictWord.FORGOTTEN
        shown = [e for e in evidence if e.comparison.baseline is Baseline.BEST]
    detectable = detectable_change(evidence[0], alpha_test, policy)
    return replace(
        case.blank,
        word=word,
        reason=reason_for(word, shown, alpha_test=alpha_test, policy=policy, detectable=detectable),
        comparisons=tuple(e.comparison for e in evidence),
        mde=detectable,
    )


def _forgotten(case: _Case, alike: Sequence[Point]) -> bool:
    """Return whether the ability had been learned and is below its best here and at the checkpoints just before."""
    before = alike[-(FORGOTTEN_AFTER - 1) :]
    if len(before) < FORGOTTEN_AFTER - 1:
        return False
    return _learned(case, alike) and all(_below_best(case, alike, point) for point in (case.point, *reversed(before)))


def _below_best(case: _Case, alike: Sequence[Point], point: Point) -> bool:
    best = _best(case, alike, point.step)
    if best is None:
        return False
    evidence = compare_with(point, best)
    return isinstance(evidence, Evidence) and regressed(evidence.comparison, case.blank.alpha_test, case.policy)


def _learned(case: _Case, alike: Sequence[Point]) -> bool:
    best = _best(case, alike, case.point.step)
    if best is None:
        return False
    first = Choice(baseline=Baseline.GIVEN, point=alike[0], selected_from=best.selected_from)
    evidence = compare_with(best.point, first)
    if not isinstance(evidence, Evidence):
        return False
    return evidence.comparison.p_better < LEARNED_P and evidence.comparison.delta >= LEARNED_EFFECT


def _best(case: _Case, alike: Sequence[Point], step: int) -> Choice | None:
    choices = choose_baselines([p for p in alike if p.step < step], step, case.policy.phases)
    return choices[-1] if choices else None
