"""Whether a candidate may replace a baseline: both PASS and REGRESSION require statistical evidence. Pure.

A loss is tested by the paired test of `compare` (mid-p McNemar for 0/1 scores, cluster-robust if samples share a
cluster), with the run's jitter if it is known. All required benchmarks share one level by Holm's method
(Holm 1979): the probability of any REGRESSION without a loss is at most `alpha`. PASS is the reverse test, that the
loss is smaller than `min_effect`. It needs no correction, because all benchmarks must pass it (Berger 1982).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import starmap

from eval_jobs.types import EvalRecord, ProbeResult
from tracker.domain.calibration.noise import repetition_of
from tracker.domain.compare.view import ComparedBenchmark, RefusedBenchmark, RunNoise, compare_what_can_be
from tracker.domain.gate.changed import asked_alike
from tracker.domain.gate.rules import BenchmarkRule, GatePolicy, LatencyLimit
from tracker.domain.gate.types import BenchmarkCheck, GateReport, GateWord, LatencyCheck
from tracker.domain.records.display import names_text, percent_text, score_text, signed_text
from tracker.domain.records.types import Comparison, Policy
from tracker.domain.scores.statistics import CLUSTERED_T, Spread, loss_p, mde, mean_interval, t_quantile
from tracker.domain.scores.summary import result_of, summarise

POWER = 0.8
_MANY = 1e9
"""No benchmark has as many samples."""


def gate(baseline: EvalRecord, candidate: EvalRecord, policy: GatePolicy, noise: RunNoise) -> GateReport:
    """Test the candidate against the baseline, both with samples; `noise` is the known noise of the candidate's run."""
    alike = asked_alike(baseline, candidate, policy.changed)
    view = compare_what_can_be(alike.baseline, candidate, Policy(alpha=policy.alpha), noise)
    compared = {one.benchmark: one for one in view.benchmarks}
    refused = {one.benchmark: one for one in view.refused}
    names = (*policy.benchmarks, *compared, *refused)
    rules = {name: policy.benchmarks.get(name, policy.otherwise) for name in names}
    for name, found in compared.items():  # the fitness depends on the smallest loss that matters
        known = repetition_of(noise.calibrations, candidate, name, min_effect=rules[name].min_effect)
        compared[name] = replace(found, repetition=known)
    levels = _levels(rules, compared, policy.alpha)
    checks = []
    for name, rule in rules.items():
        one, level = compared.get(name), levels[name]
        asked = min(_asked_share(baseline, name), _asked_share(candidate, name))
        check = BenchmarkCheck(
            benchmark=name,
            required=rule.required,
            word=GateWord.MISSING,
            reason="not evaluated on either side",
            min_effect=rule.min_effect,
            alpha_test=level,
            compared=one,
        )
        if one is None:
            check = _refused(check, refused.get(name), alike.refusals.get(name))
        elif asked >= rule.min_coverage:
            check = _checked(check, one, rule, policy.alpha)
        else:  # this can suffice for a run's verdict, not for a gate
            needed = f"{100 * rule.min_coverage:g} % required: pass the checkpoint's folder to evaluate all of them"
            reason = f"only {percent_text(asked)} of the samples evaluated on one side, {needed}"
            check = replace(check, reason=reason)
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


def _checked(blank: BenchmarkCheck, one: ComparedBenchmark, rule: BenchmarkRule, alpha: float) -> BenchmarkCheck:
    spread, alpha_test = one.spread_of_run, blank.alpha_test
    # A regression must be both significant and at least `min_effect`.
    detectable = max(mde(spread, alpha_test), rule.min_effect + t_quantile(POWER, spread.df) * spread.stderr)
    check = replace(blank, word=GateWord.PASS, detectable=detectable)
    change, coverage = one.comparison, min(one.before.coverage, one.after.coverage)
    if coverage < rule.min_coverage:
        share = f"{percent_text(coverage)} of the samples scored, {100 * rule.min_coverage:g} % required"
        return replace(check, word=GateWord.MISSING, reason=share)
    if change.p_worse < alpha_test and change.delta <= -rule.min_effect:
        lost = f"loss of {score_text(-change.delta)} ({change.n_lost} samples lost, {change.n_gained} gained)"
        return replace(check, word=GateWord.REGRESSION, reason=lost)
    if loss_p(spread, rule.min_effect) < alpha:
        return replace(check, reason=_passed_text(change, rule.min_effect))
    return _undecided(replace(check, word=GateWord.INCONCLUSIVE), one, alpha)


def _passed_text(change: Comparison, min_effect: float) -> str:
    if change.ci_low > 0:
        return f"gain of {score_text(change.delta)} ({change.n_lost} samples lost, {change.n_gained} gained)"
    return f"no loss of {score_text(min_effect)} or more"


def _asked_share(record: EvalRecord, name: str) -> float:
    """Return the share of a benchmark's samples that were evaluated: below 1 after screening."""
    result = result_of(record, name)
    if result is None or not result.left_out:
        return 1.0
    asked = len({sample.sample_id for sample in result.samples})
    return asked / (asked + result.left_out)


def _undecided(check: BenchmarkCheck, one: ComparedBenchmark, alpha: float) -> BenchmarkCheck:
    """Return the check with what is unknown and both ways out: another smallest effect, or more samples."""
    change, spread, min_effect = one.comparison, one.spread_of_run, check.min_effect
    enough = _margin_of(spread, alpha)
    if change.p_worse < check.alpha_test:
        unknown = f"significant loss, but it may be smaller or larger than {score_text(min_effect)}"
        needed = _samples_needed(one, min_effect + change.delta, alpha)
    else:
        unknown = f"minimum detectable loss {score_text(check.detectable or 0.0)}"
        needed = _samples_needed(one, min_effect, alpha)
        if needed is not None and needed <= change.n_common:
            unknown += f"; change {signed_text(change.delta)} is inconclusive"
            needed = _samples_to_decide(one, check, alpha)
    ways = "no `min_effect` would have passed"
    if enough is not None:
        ways = f"`min_effect` {score_text(enough)} would have passed"
    if needed is None:
        ways += ", more samples do not help: the jitter is too large, or the loss too close to `min_effect`"
    else:
        ways += f", or about {needed:,} samples, {change.n_common:,} available"
        ways += " (clustered: the number of clusters counts)" if change.method == CLUSTERED_T else ""
    return replace(check, reason=f"{unknown}; {ways}", samples_needed=needed, passing_min_effect=enough)


def _margin_of(spread: Spread, alpha: float) -> float | None:
    """Return the smallest loss, in thousandths, whose absence `spread` shows at the level `alpha`: see `loss_p`.

    None: not even that of the whole score.
    """
    margin = t_quantile(1 - alpha, spread.df) * max(spread.stderr, spread.cautious) - spread.centre
    rounded = math.floor(1000 * margin + 1) / 1000
    return rounded if rounded < 1 else None


def _samples_to_decide(one: ComparedBenchmark, check: BenchmarkCheck, alpha: float) -> int | None:
    """Return n at which a true change as large as the one that was measured decides, with 80 % power."""
    distance = check.min_effect + one.comparison.delta
    if distance > 0:
        return _samples_needed(one, distance, alpha)
    return _samples_needed(one, -one.comparison.delta, check.alpha_test)


def _samples_needed(one: ComparedBenchmark, distance: float, level: float) -> int | None:
    """Return n at which a true change that is `distance` away from the tested one is significant, with 80 % power.

    None if the jitter is too large for any n, or the two are so close that n is above `_MANY`.

    n * stderr^2 / (distance^2 / (z_level + z_power)^2 - jitter^2), as in Miller 2024, with these samples' flips. A
    cluster that may be lost as a whole weighs less with more clusters: its part of the variance falls with 1 / n^2.
    """
    z = t_quantile(POWER, math.inf) - t_quantile(level, math.inf)
    of_samples = (distance / z) ** 2 - (one.spread_of_run.stderr**2 - one.spread.stderr**2)
    if of_samples <= 0:
        return None
    flips, more = one.spread.stderr**2, max(one.spread.cautious**2 - one.spread.stderr**2, 0.0)
    # flips / k + more / k^2 = of_samples, with k times as many samples
    needed = one.comparison.n_common * (flips + math.sqrt(flips**2 + 4 * more * of_samples)) / (2 * of_samples)
    return math.ceil(needed) if needed < _MANY else None


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
