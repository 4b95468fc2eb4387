"""Verdicts on a checkpoint, with one error rate over the whole run. Pure.

Per benchmark the first that applies: MISSING, INCOMPARABLE or FIRST, RECOVERED, FORGOTTEN, REGRESSED, IMPROVED,
EQUIVALENT, SUSPECT, INCONCLUSIVE. The tests are in `regression`, the rules in `hypothesis`, the losses over time in
`incidents`. Only lower steps are used, so a late record is compared with its own past. It never opens or ends an
incident, because later checkpoints have more evidence.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from eval_jobs.types import BenchmarkFailure, EvalPlan, EvalRecord, EvalResult, Outcome
from tracker.domain.latency.judge import judge_latency
from tracker.domain.records import reasons
from tracker.domain.records.imported import stands_for_import
from tracker.domain.records.types import (
    RULES_VERSION,
    Incident,
    Measure,
    Policy,
    Report,
    Screened,
    Verdict,
    VerdictWord,
)
from tracker.domain.regression.detector import Evidence, jitter_of
from tracker.domain.regression.jitter import Jitter
from tracker.domain.scores.pairing import differences_of
from tracker.domain.scores.run_scores import RunScores
from tracker.domain.scores.summary import first_detail, summarise
from tracker.domain.verdicts.aggregate_judge import judge_aggregates
from tracker.domain.verdicts.candidates import (
    Candidate,
    JudgingContext,
    RunContext,
    candidates_of,
    chance_of,
    hypothesis_of,
)
from tracker.domain.verdicts.decision import MIN_COMMON, MIN_SAMPLES, comparable, decide, decide_screened
from tracker.domain.verdicts.evidence import estimate_of, untested, verdict_of
from tracker.domain.verdicts.findings import Judged, findings_besides, judged_of
from tracker.domain.verdicts.hypothesis import Subject
from tracker.domain.verdicts.incidents import subject_of
from tracker.domain.verdicts.rewind import branches_known, context_of, rewound
from tracker.domain.verdicts.screening import sum_of_known


def judge(record: EvalRecord, scores: RunScores, run_context: RunContext, policy: Policy, *, now: datetime) -> Report:
    """Return the report on `record`, with a verdict on every benchmark.

    The samples of `record` give the reasons for missing scores, and are used if `scores`, which include those of
    `record`, have another checkpoint of the same step. `run_context` is of the run so far.
    """
    context = context_of(record, scores, run_context, policy)
    candidates = candidates_of(context, Measure.SCORE)
    jitters = jitter_of([c.track for c in candidates.values()])
    judged_by_name = {
        name: _with_scores(context, candidate, jitter)
        for (name, candidate), jitter in zip(candidates.items(), jitters, strict=True)
    }
    judged: list[Judged] = []
    for outcome in record.outcomes:
        known = judged_by_name.get(outcome.benchmark) or Judged(verdict=_missing(context, outcome))
        judged.append(_of_part(known, candidates.get(outcome.benchmark), outcome))
    aggregates = judge_aggregates(context)
    improved = {j.verdict.benchmark for j in judged if j.verdict.word is VerdictWord.IMPROVED}
    found = findings_besides(context, candidates, improved)
    changes = [one.change for one in (*judged, *found) if one.change is not None]
    return Report(
        run_id=record.plan.checkpoint.run_id,
        step=record.plan.checkpoint.step,
        plan_id=record.plan.id,
        verdicts=tuple(aggregates.get(j.verdict.benchmark, j.verdict) for j in judged),
        findings=tuple(f.verdict for f in found),
        incidents=(*changes, *_rewound(record, run_context, changes)),
        latency=judge_latency(record, context.run_context.records, policy.latency),
        checkpoint=record.plan.checkpoint,
        cost=record.cost,
        created_at=now,
        rules_version=RULES_VERSION,
    )


def _rewound(record: EvalRecord, run_context: RunContext, changes: Sequence[Incident]) -> Iterator[Incident]:
    """Yield the incidents that a rewind ends or reopens, except those that this checkpoint itself changes."""
    if not run_context.incidents or stands_for_import(record.plan.checkpoint):
        return iter(())
    said = {_key_of(change) for change in changes}
    return (e for e in rewound(run_context, branches_known(record, run_context)) if _key_of(e) not in said)


def _key_of(incident: Incident) -> tuple[Subject, int]:
    return subject_of(incident), incident.opened_step


def _of_part(judged: Judged, candidate: Candidate | None, outcome: Outcome) -> Judged:
    """Return the finding, marked as screened if only a part of the benchmark was evaluated."""
    if candidate is None or not candidate.left_out or not isinstance(outcome, EvalResult):
        return judged
    tokens = sum_of_known(outcome.input_tokens, outcome.output_tokens)
    part = Screened(asked=candidate.asked, left_out=candidate.left_out, tokens=tokens, seconds=outcome.duration_s)
    found = estimate_of(candidate)
    if found is None:
        return replace(judged, verdict=replace(judged.verdict, screened=part))
    part = replace(part, margin=found.margin)
    score = found.score if candidate.series.higher_is_better else 1.0 - found.score
    return replace(judged, verdict=replace(judged.verdict, score=score, stderr=found.stderr, screened=part))


def _missing(context: JudgingContext, outcome: Outcome) -> Verdict:
    reason: reasons.Reason
    if isinstance(outcome, BenchmarkFailure):
        reason, score, stderr, coverage = reasons.Failed(message=outcome.message, error=outcome.code), None, None, 0.0
    else:
        summary = summarise(outcome)
        reason = reasons.FewScores(
            with_score=summary.scored + summary.truncated,
            planned=summary.planned,
            errors=summary.error,
            unscored=summary.unscored,
            needed=context.policy.min_coverage,
            detail=first_detail(outcome.samples),
        )
        score, stderr, coverage = summary.mean, summary.stderr, summary.coverage
    return Verdict(
        benchmark=outcome.benchmark,
        word=VerdictWord.MISSING,
        reason=reason,
        score=score,
        stderr=stderr,
        coverage=coverage,
        alpha_test=0.0,
    )


def _with_scores(context: JudgingContext, candidate: Candidate, jitter: Jitter) -> Judged:
    hypothesis = hypothesis_of(context, candidate, jitter)
    tests = hypothesis.evidence()
    evidence = comparable(tests)
    if evidence:
        if candidate.left_out:
            screened = decide_screened(hypothesis, evidence, candidate.open_incident)
            return Judged(verdict=verdict_of(screened, hypothesis, candidate))
        chance = chance_of(context, candidate)
        decision = decide(hypothesis, evidence, candidate.open_incident, run_id=context.scores.run_id, chance=chance)
        return judged_of(decision, hypothesis, candidate)
    word, reason = _incomparable(context, candidate, tests)
    return Judged(verdict=untested(hypothesis, candidate, word, reason))


def _incomparable(
    context: JudgingContext, candidate: Candidate, tests: Sequence[Evidence]
) -> tuple[VerdictWord, reasons.Reason]:
    if tests:
        return VerdictWord.INCOMPARABLE, _too_few_common(tests)
    earlier = _measured_otherwise(context, candidate)
    if earlier is None:
        return VerdictWord.FIRST, reasons.NothingEarlier()
    differences = differences_of(context.record.plan, earlier, candidate.subject.benchmark)
    return VerdictWord.INCOMPARABLE, reasons.MeasuredOtherwise(step=earlier.checkpoint.step, differences=differences)


def _too_few_common(tests: Sequence[Evidence]) -> reasons.FewInCommon | reasons.FewSamples:
    most = max(tests, key=lambda e: e.test.n).test
    if most.n < MIN_SAMPLES and most.common_fraction >= MIN_COMMON:
        return reasons.FewSamples(samples=most.n, needed=MIN_SAMPLES)
    return reasons.FewInCommon(samples=most.n, share=most.common_fraction, needed=MIN_COMMON)


def _measured_otherwise(context: JudgingContext, candidate: Candidate) -> EvalPlan | None:
    plans: list[EvalPlan] = []
    for series in context.scores.of(candidate.subject.benchmark, candidate.subject.suite):
        if series.key != candidate.series.key:
            plans += [plan for plan in series.plans if plan.checkpoint.step < context.step]
    return max(plans, key=lambda plan: plan.checkpoint.step, default=None)
