"""Whether a candidate may replace a baseline: both PASS and REGRESSION require statistical evidence. Pure.

A loss is tested by the paired test of `compare` (mid-p McNemar for 0/1 scores, cluster-robust if samples share a
cluster), with the run's jitter if it is known. All required benchmarks share one level by Holm's method
(Holm 1979): the probability of any REGRESSION without a loss is at most `alpha`. PASS is the reverse test, that the
loss is smaller than `min_effect`. It needs no correction, because all benchmarks must pass it (Berger 1982).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import starmap

from eval_jobs.types import EvalRecord, ProbeResult
from tracker.domain.calibration.noise import repetition_of
from tracker.domain.compare.view import ComparedBenchmark, RefusedBenchmark, RunNoise, compare_what_can_be
from tracker.domain.gate.changed import asked_alike
from tracker.domain.gate.contexts import as_asked, counted_contexts, missed_clusters
from tracker.domain.gate.margins import default_margin
from tracker.domain.gate.rules import COUNTS, POWER, BenchmarkRule, GatePolicy, LatencyLimit
from tracker.domain.gate.types import BenchmarkCheck, Clustering, GateReport, GateWord, LatencyCheck
from tracker.domain.gate.ways_out import passed_text, undecided
from tracker.domain.records.display import names_text, percent_text, score_text
from tracker.domain.records.policy import Policy
from tracker.domain.scores.statistics.paired import loss_p, mde, mean_interval, t_quantile
from tracker.domain.scores.summary import result_of, summarise


def gate(baseline: EvalRecord, candidate: EvalRecord, policy: GatePolicy, noise: RunNoise) -> GateReport:
    """Test the candidate against the baseline, both with samples; `noise` is the known noise of the candidate's run."""
    alike = asked_alike(baseline, candidate, policy.changed)
    before, after = as_asked(alike.baseline, policy), as_asked(candidate, policy)
    view = compare_what_can_be(before, after, Policy(alpha=policy.alpha), noise)
    compared = {one.benchmark: one for one in view.benchmarks}
    refused = {one.benchmark: one for one in view.refused}
    rules = {name: policy.rule_of(name) for name in (*policy.benchmarks, *compared, *refused)}
    required = sum(rules[name].required for name in compared)
    case = _Case(baseline=alike.baseline, candidate=candidate, policy=policy, noise=noise, required=required)
    levels = _levels(rules, compared, policy.alpha)
    checks = []
    for name, rule in rules.items():
        check, one = _blank(name, rule, levels[name]), compared.get(name)
        if one is None:
            check = _refused(check, refused.get(name), alike.refusals.get(name))
        else:
            check = _tested(check, one, case)
        checks.append(_with_floor(check, candidate, rule))
    latency = tuple(_within_limit(candidate, limit, policy.otherwise.min_coverage) for limit in policy.latency)
    return GateReport(
        word=_overall(checks, latency),
        candidate=view.after,
        baseline=view.before,
        alpha=policy.alpha,
        benchmarks=tuple(sorted(checks, key=lambda check: not check.required)),
        latency=latency,
        changed=tuple(starmap(_difference_text, alike.differences.items())),
        neutral=view.neutral,
    )


@dataclass(frozen=True, kw_only=True)
class _Case:
    """What the tests of all benchmarks share."""

    baseline: EvalRecord
    """Asked like the candidate; clusters as they were found, whatever the policy says."""
    candidate: EvalRecord
    policy: GatePolicy
    noise: RunNoise
    required: int
    """Number of required benchmarks that were compared."""


def _tested(blank: BenchmarkCheck, one: ComparedBenchmark, case: _Case) -> BenchmarkCheck:
    name, rule, alpha = blank.benchmark, case.policy.rule_of(blank.benchmark), case.policy.alpha
    margin = rule.min_effect
    if margin is None:
        margin = default_margin(one.spread_of_run, alpha, case.required)
    # The fitness depends on the smallest loss that matters.
    known = repetition_of(case.noise.calibrations, case.candidate, name, min_effect=margin)
    check = replace(
        blank,
        min_effect=margin,
        is_default_margin=rule.min_effect is None,
        compared=replace(one, repetition=known),
        clusters=Clustering(
            contexts=counted_contexts(case.candidate, name, rule.clusters),
            warning=missed_clusters(case.baseline, case.candidate, name, rule),
        ),
    )
    asked = min(_asked_share(case.baseline, name), _asked_share(case.candidate, name))
    if asked < rule.min_coverage:  # this can suffice for a run's verdict, not for a gate
        needed = f"{100 * rule.min_coverage:g} % required: pass the checkpoint's folder to evaluate all of them"
        return replace(check, reason=f"only {percent_text(asked)} of the samples evaluated on one side, {needed}")
    return _decided(check, one, margin, case.policy)


def _blank(name: str, rule: BenchmarkRule, level: float) -> BenchmarkCheck:
    return BenchmarkCheck(
        benchmark=name,
        required=rule.required,
        word=GateWord.MISSING,
        reason="not evaluated on either side",
        min_effect=rule.min_effect,
        alpha_test=level,
    )


def _levels(
    rules: Mapping[str, BenchmarkRule], compared: Mapping[str, ComparedBenchmark], alpha: float
) -> dict[str, float]:
    """Return the level of each benchmark's test; required and advisory benchmarks are separate families."""
    families: dict[bool, dict[str, float]] = {True: {}, False: {}}
    for name, rule in rules.items():
        one = compared.get(name)
        families[rule.required][name] = 1.0 if one is None else one.comparison.p_worse
    return holm_levels(families[True], alpha) | holm_levels(families[False], alpha)


def _difference_text(phrase: str, names: tuple[str, ...]) -> str:
    if names:
        return f"{phrase} ({names_text(names)})"
    return phrase


def holm_levels(p_values: Mapping[str, float], alpha: float) -> dict[str, float]:
    """Return the level of each test, such that the probability of any false rejection is at most `alpha`.

    Holm 1979: the smallest p is compared with alpha / K, the next one with alpha / (K - 1), and so on. After the first
    p that is not below its level, all others get the same level and fail.
    """
    levels: dict[str, float] = {}
    level, failed = 0.0, False
    for rank, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        if not failed:
            level = alpha / (len(p_values) - rank)
            failed = p >= level
        levels[name] = level
    return levels


def _decided(blank: BenchmarkCheck, one: ComparedBenchmark, margin: float, policy: GatePolicy) -> BenchmarkCheck:
    rule = policy.rule_of(blank.benchmark)
    spread, alpha_test = one.spread_of_run, blank.alpha_test
    # A regression must be both significant and large enough. A default margin does not say that a smaller loss is fine.
    counts = min(margin, COUNTS) if blank.is_default_margin else margin
    if rule.min_loss is not None:
        counts = rule.min_loss
    detectable = max(mde(spread, alpha_test), counts + t_quantile(POWER, spread.df) * spread.stderr)
    check = replace(blank, word=GateWord.PASS, detectable=detectable)
    change, coverage = one.comparison, min(one.before.coverage, one.after.coverage)
    if coverage < rule.min_coverage:
        share = f"{percent_text(coverage)} of the samples scored, {100 * rule.min_coverage:g} % required"
        return replace(check, word=GateWord.MISSING, reason=share)
    if change.p_worse < alpha_test and change.delta <= -counts:
        lost = f"loss of {score_text(-change.delta)} ({change.n_lost} samples lost, {change.n_gained} gained)"
        return replace(check, word=GateWord.REGRESSION, reason=lost)
    if loss_p(spread, margin) < policy.alpha:
        return replace(check, reason=passed_text(check, change))
    return undecided(replace(check, word=GateWord.INCONCLUSIVE), one, policy.alpha)


def _asked_share(record: EvalRecord, name: str) -> float:
    """Return the share of a benchmark's samples that were evaluated: below 1 after screening."""
    result = result_of(record, name)
    if result is None or not result.left_out:
        return 1.0
    asked = len({sample.sample_id for sample in result.samples})
    return asked / (asked + result.left_out)


def _with_floor(check: BenchmarkCheck, candidate: EvalRecord, rule: BenchmarkRule) -> BenchmarkCheck:
    """Apply the floor to the candidate's own score, regardless of the comparison; skip it with too few samples.

    A part of the samples decides only if the floor is outside the 95 % interval of its mean.
    """
    result = result_of(candidate, check.benchmark)
    if rule.floor is None or result is None:
        return check
    own = summarise(result)
    if own.mean is None or min(own.coverage, _asked_share(candidate, check.benchmark)) < rule.min_coverage:
        return check
    low, high = own.mean, own.mean
    if result.left_out:
        low, high = mean_interval(own.mean, own.stderr, own.units) or (-math.inf, math.inf)
    if low <= rule.floor <= high and low < high:
        return _of_uncertain_floor(check, rule.floor, low, high)
    is_worse, side = own.mean < rule.floor, "below"
    if not result.higher_is_better:
        is_worse, side = own.mean > rule.floor, "above"
    if not is_worse:
        return check
    reason = f"score {score_text(own.mean)} is {side} the `floor` of {score_text(rule.floor)}"
    return replace(check, word=GateWord.REGRESSION, reason=reason, samples_needed=None)


def _of_uncertain_floor(check: BenchmarkCheck, floor: float, low: float, high: float) -> BenchmarkCheck:
    if check.word is not GateWord.PASS:
        return check
    span = f"95 % interval of the evaluated part, {score_text(low)} to {score_text(high)},"
    return replace(check, word=GateWord.INCONCLUSIVE, reason=f"{span} contains the `floor` of {score_text(floor)}")


def _refused(check: BenchmarkCheck, refused: RefusedBenchmark | None, more: str | None) -> BenchmarkCheck:
    if refused is None:
        return check
    reason = "; ".join((*refused.reasons, *filter(None, (more,))))
    return replace(check, reason=reason, word=GateWord.MISSING if refused.is_missing else GateWord.INCOMPARABLE)


def _within_limit(candidate: EvalRecord, limit: LatencyLimit, min_coverage: float) -> LatencyCheck:
    timed = (one for one in candidate.probes if isinstance(one, ProbeResult) and one.load.name == limit.load)
    probe = next(timed, None)
    found = getattr(probe, f"{limit.metric}_ms", None)
    if probe is None or found is None:
        return LatencyCheck(limit=limit, word=GateWord.MISSING, reason=f"no latency measured under load {limit.load}")
    measured_ms = float(getattr(found, f"p{limit.quantile * 100:.0f}"))
    sent = probe.completed + probe.failed
    if measured_ms > limit.max_ms:
        word, reason = GateWord.REGRESSION, f"{measured_ms:.1f} ms exceeds {limit.max_ms:g} ms"
    elif probe.completed < min_coverage * sent:
        word = GateWord.MISSING  # the slowest requests may be among the failed ones
        reason = f"{measured_ms:.1f} ms, but {probe.failed} of {sent} requests failed and were not timed"
    else:
        word, reason = GateWord.PASS, f"{measured_ms:.1f} ms, limit {limit.max_ms:g} ms"
    return LatencyCheck(limit=limit, word=word, reason=reason, measured_ms=measured_ms)


def _overall(checks: Sequence[BenchmarkCheck], latency: Sequence[LatencyCheck]) -> GateWord:
    words = {check.word for check in checks if check.required} | {one.word for one in latency if one.limit.required}
    return next((word for word in GateWord if word in words), GateWord.MISSING)
