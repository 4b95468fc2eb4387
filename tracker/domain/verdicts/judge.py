"""Verdicts on a checkpoint, with one error rate over the whole run. Pure.

Per benchmark the first that applies: MISSING, INCOMPARABLE or FIRST, RECOVERED, FORGOTTEN, REGRESSED, IMPROVED,
EQUIVALENT, SUSPECT, INCONCLUSIVE. The tests are in `regression`, the rules in `hypothesis`, the losses over time in
`incidents`. Only lower steps are used, so a late record is compared with its own past. It may end a loss; one that
lasts is opened by the newest checkpoint, which has more evidence.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from eval_jobs.types import BenchmarkFailure, EvalPlan, EvalRecord, EvalResult, Outcome
from tracker.domain.latency.judge import judge_latency
from tracker.domain.records import reasons
from tracker.domain.records.imported import stands_for_import
from tracker.domain.records.losses import Incident
from tracker.domain.records.policy import Policy
from tracker.domain.records.types import IS_BACK, RULES_VERSION, WORSE, Report, Screened, Verdict, VerdictWord
from tracker.domain.regression.detector import Evidence
from tracker.domain.regression.diagnostic import diagnosed_noise
from tracker.domain.scores.pairing import differences_of
from tracker.domain.scores.run_scores import RunScores
from tracker.domain.scores.summary import first_detail, summarise
from tracker.domain.verdicts.candidates import Candidate, chance_of
from tracker.domain.verdicts.context import JudgingContext, RunContext
from tracker.domain.verdicts.decision import (
    MIN_COMMON,
    MIN_SAMPLES,
    decide,
    decide_screened,
)
from tracker.domain.verdicts.dips import dips_of
from tracker.domain.verdicts.evidence import untested, verdict_of, whole_score_of
from tracker.domain.verdicts.findings import Judged, findings_besides, judged_of
from tracker.domain.verdicts.losses.incidents import subject_of
from tracker.domain.verdicts.rewind import branches_known, context_of, rewound
from tracker.domain.verdicts.screening import sum_of_known
from tracker.domain.verdicts.suite import Alone, are_newest, judge_end, judge_suite, word_of_ended_loss
from tracker.domain.verdicts.tested import Tested, TestedSuite, leaving, remeasured, tested_at


def judge(record: EvalRecord, scores: RunScores, run_context: RunContext, policy: Policy, *, now: datetime) -> Report:
    """Return the report on `record`, with a verdict on every benchmark.

    The samples of `record` give the reasons for missing scores, and are used if `scores`, which include those of
    `record`, have another checkpoint of the same step. `run_context` is of the run so far.
    """
    context = context_of(record, scores, run_context, policy)
    context = replace(context, dips=dips_of(context))
    context, tested, suite = tested_at(context)
    if lasting := _lasting(context, tested):
        context, tested, suite = leaving(context, suite, lasting)
    candidates = {name: one.candidate for name, one in tested.items()}
    learned = {name: one.candidate for name, one in tested.items() if not one.never_learned}
    judged_by_name = {name: _with_scores(context, one) for name, one in tested.items()}
    judged: list[Judged] = []
    for outcome in record.outcomes:
        known = judged_by_name.get(outcome.benchmark) or Judged(verdict=_missing(context, outcome))
        known = _ended_with_suite(context, known)
        judged.append(_of_part(known, candidates.get(outcome.benchmark), outcome))
    besides, others = findings_besides(context, learned, _improved(judged))
    found = [*_of_suite(context, suite, judged), *besides]
    others = (*others, *remeasured(context, tested))
    changed = [*others, *(one.change for one in (*judged, *found) if one.change is not None)]
    changes = [_with_series(context, change) for change in changed]
    also = _also_changed(context, suite, changes)
    return Report(
        run_id=record.plan.checkpoint.run_id,
        step=record.plan.checkpoint.step,
        plan_id=record.plan.id,
        verdicts=tuple(suite.aggregates.verdicts.get(j.verdict.benchmark, j.verdict) for j in judged),
        findings=tuple(f.verdict for f in found),
        incidents=(*changes, *also, *_rewound(record, run_context, (*changes, *also))),
        latency=judge_latency(record, context.run_context.records, policy.latency),
        checkpoint=record.plan.checkpoint,
        cost=record.cost,
        noise=diagnosed_noise({name: (one.candidate.track, one.hypothesis.jitter) for name, one in tested.items()}),
        created_at=now,
        rules_version=RULES_VERSION,
    )


def _lasting(context: JudgingContext, tested: Mapping[str, Tested]) -> tuple[Incident, ...]:
    """Return the benchmarks' own losses that would end with that of the suite, but are still shown."""
    found: list[Incident] = []
    for ended in context.ended:
        one = tested.get(ended.benchmark)
        if one is not None and not ended.subset and _with_scores(context, one).verdict.word in WORSE:
            found.append(ended)
    return tuple(found)


def _rewound(record: EvalRecord, run_context: RunContext, changes: Sequence[Incident]) -> Iterator[Incident]:
    """Yield the incidents that a rewind ends or reopens, except those that this checkpoint itself changes."""
    if not run_context.incidents or stands_for_import(record.plan.checkpoint):
        return iter(())
    changed = {change.key for change in changes}
    return (e for e in rewound(run_context, branches_known(record, run_context)) if e.key not in changed)


def _with_series(context: JudgingContext, change: Incident) -> Incident:
    """Return a change with its settings if the incident is new; one of an older version stays without."""
    known = {e.key: e for e in context.run_context.incidents}.get(change.key)
    is_older = known is not None and not known.series
    if change.opened_step != context.step or change.series or is_older:
        return change
    names = change.benchmarks or (change.benchmark,)
    return replace(change, series=tuple(context.series[name] for name in names))


def _ended_with_suite(context: JudgingContext, judged: Judged) -> Judged:
    """Return the verdict as the end of the benchmark's own loss, if that ends with the loss of all benchmarks."""
    verdict, subject = judged.verdict, replace(context.suite, benchmark=judged.verdict.benchmark)
    ended = next((e for e in context.ended if subject_of(e) == subject), None)
    if ended is None or not verdict.comparisons or verdict.word in WORSE:
        return judged
    word = word_of_ended_loss(ended)
    return replace(judged, verdict=replace(verdict, word=word, lost_since=ended.onset_step, drop=ended.drop))


def _of_part(judged: Judged, candidate: Candidate | None, outcome: Outcome) -> Judged:
    """Return the finding, marked as screened if only a part of the benchmark was evaluated."""
    if candidate is None or not candidate.left_out or not isinstance(outcome, EvalResult):
        return judged
    tokens = sum_of_known(outcome.input_tokens, outcome.output_tokens)
    part = Screened(asked=candidate.asked, left_out=candidate.left_out, tokens=tokens, seconds=outcome.duration_s)
    found = whole_score_of(candidate)
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


def _improved(judged: Iterable[Judged]) -> set[str]:
    return {one.verdict.benchmark for one in judged if one.verdict.word is VerdictWord.IMPROVED}


def _of_suite(context: JudgingContext, suite: TestedSuite, benchmarks: Iterable[Judged]) -> Iterator[Judged]:
    ended = next((e for e in context.ended if subject_of(e) == context.suite), None)
    if ended is not None:
        changes = are_newest(suite.parts) or context.may_change(ended)
        worse = {one.verdict.benchmark for one in benchmarks if one.verdict.word in WORSE}
        yield judge_end(ended, suite.parts, worse, changes=changes)
        return
    judged = judge_suite(context, suite.parts, suite.known, _alone(context, benchmarks))
    if judged is not None:
        yield judged


def _alone(context: JudgingContext, benchmarks: Iterable[Judged]) -> Alone:
    lost, better = set[str](), set[str]()
    for one in benchmarks:
        name, word = one.verdict.benchmark, one.verdict.word
        known = context.incidents_of(replace(context.suite, benchmark=name))
        if word in WORSE and all(e.closed_step is not None for e in known):
            lost.add(name)
        elif word in IS_BACK | {VerdictWord.IMPROVED, VerdictWord.RISING}:
            better.add(name)
    return Alone(lost=frozenset(lost), better=frozenset(better))


def _also_changed(context: JudgingContext, suite: TestedSuite, changes: Sequence[Incident]) -> tuple[Incident, ...]:
    """Return the losses of single benchmarks that a change of the suite's loss ends, or leaves to themselves."""
    also = {ended.key: ended for ended in context.ended}
    for ended in context.ended:
        for name in ended.benchmarks:
            for incident in context.incidents_of(replace(context.suite, benchmark=name)):
                if incident.closed_step is None:
                    also[incident.key] = incident
    for change in changes:
        also.pop(change.key, None)
    if are_newest(suite.parts):
        return tuple(also.values())
    return tuple(filter(context.may_change, also.values()))


def _with_scores(context: JudgingContext, one: Tested) -> Judged:
    candidate, hypothesis = one.candidate, one.hypothesis
    if not one.evidence:
        word, reason = _incomparable(context, candidate, one.tests)
        return Judged(verdict=untested(hypothesis, candidate, word, reason))
    if candidate.left_out:
        screened = decide_screened(hypothesis, one.evidence, candidate.open_incident)
        return Judged(verdict=verdict_of(screened, hypothesis, candidate))
    chance = chance_of(context, candidate)
    if one.never_learned:
        name = candidate.subject.benchmark
        reason = reasons.NeverAboveChance(chance=context.policy.chance[name], accepted_step=context.accepted_step(name))
        return Judged(verdict=untested(hypothesis, candidate, VerdictWord.NOT_LEARNED, reason))
    decision = decide(hypothesis, one.evidence, candidate.open_incident, run_id=context.scores.run_id, chance=chance)
    return judged_of(context, decision, hypothesis, candidate)


def _incomparable(
    context: JudgingContext, candidate: Candidate, tests: Sequence[Evidence]
) -> tuple[VerdictWord, reasons.Reason]:
    if tests:
        return VerdictWord.INCOMPARABLE, _too_few_common(tests)
    accepted_step = context.accepted_step(candidate.subject.benchmark)
    earlier = None if accepted_step is not None else _measured_otherwise(context, candidate)
    if earlier is None:
        return VerdictWord.FIRST, reasons.NothingEarlier(accepted_step=accepted_step)
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
