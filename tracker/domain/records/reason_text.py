"""One sentence per verdict, understandable on its own. Pure.

reason_text(verdict)            # 0.930 at step 400 -> 0.020 since step 500; 182 of 200 samples lost
latency_reason_text(verdict)    # 8.3 % slower (95 % CI +7.1 % to +9.5 %) than the reference, step 100
"""

from collections.abc import Iterable, Iterator, Sequence

from tracker.domain.records import reasons, types
from tracker.domain.records.display import (
    change_interval_text,
    count_text,
    names_text,
    one_line,
    p_text,
    p_value_text,
    score_text,
    steps_text,
)
from tracker.domain.records.loss_text import MEASURES, back_text, drop_text
from tracker.domain.records.losses import Measure


def reason_text(verdict: types.Verdict) -> str:
    """Return what changed, compared with which checkpoints and by how many samples, or why this is unknown."""
    if verdict.reason is None:
        return ""
    text, part = _text(verdict, verdict.reason), verdict.screened
    if part is None:
        return text
    then = ", a full evaluation follows" if verdict.word is types.VerdictWord.SUSPECT else ""
    return f"{text}; screened on {part.asked} of {part.asked + part.left_out} samples{then}"


def latency_reason_text(verdict: types.LatencyVerdict) -> str:
    """Return how the times compare, or why this is unknown."""
    if verdict.reason is None:
        return ""
    text, missed = _latency_text(verdict, verdict.reason), verdict.without_reference
    if missed is None:
        return text
    return f"{text}; no comparison with the reference: {missed.message} ({missed.error})"


def difference_text(difference: reasons.Difference) -> str:
    """Return `temperature is 0.7, was 0.0`."""
    words = _SETTINGS.get(difference.setting, difference.setting)
    if difference.setting == "data_digest":
        return f"{words} differs"
    if not difference.now:
        return f"{words} changed in between"
    return f"{words} is {difference.now}, was {difference.before}"


def shown_p(comparison: types.Comparison) -> tuple[float, str]:
    """Return the one-sided p that every display shows first, and its side: `worse` or `better`."""
    if comparison.delta > 0:
        return comparison.p_better, "better"
    return comparison.p_worse, "worse"


def samples_alone_text(names: Sequence[str]) -> str:
    """Return which benchmarks are compared without the noise between checkpoints; empty for none."""
    if not names:
        return ""
    known = "p and 95 % CI from samples alone: the noise between checkpoints is unknown"
    return f"{known} ({names_text(tuple(names))})"


def neutral_lines(differences: Sequence[reasons.Difference]) -> Iterator[str]:
    """Yield a line that names the settings that differ and cannot change a score, if there are any."""
    if differences:
        yield f"different, without effect on scores: {'; '.join(map(difference_text, differences))}"


_SETTINGS = {
    "data_digest": "data content",
    "adapter": "benchmark adapter",
    "few_shot": "few_shot (examples in the prompt)",
    "limit": "limit (samples per subset)",
    "scoring_version": "scoring_version (built-in prompts and scorers)",
    "concurrency": "concurrency (requests in flight)",
    "suite.concurrency": "concurrency (requests in flight)",
}

_BASELINES = {types.Baseline.PEAK: " (peak)", types.Baseline.PINNED: " (pinned baseline)"}

_PAIR = 2
"""Up to this number of steps, a sample that was right at most of them was right at all of them."""


def _text(verdict: types.Verdict, reason: reasons.Reason) -> str:
    match reason:
        case reasons.Compared():
            return _compared(verdict, reason)
        case reasons.ComparedMeans():
            return _compared_means(reason)
        case reasons.FewScores() | reasons.FewInCommon() | reasons.FewSamples():
            return _too_few(verdict, reason)
        case reasons.Together():
            return _together_text(verdict, reason)
        case reasons.MeasuredOtherwise():
            differences = "; ".join(map(difference_text, reason.differences))
            return f"measured differently from step {reason.step}: {differences}"
    return _without_tests(verdict, reason)


def _without_tests(
    verdict: types.Verdict,
    reason: reasons.Failed | reasons.NothingEarlier | reasons.TooEarly | reasons.NeverAboveChance | reasons.NotOfAScore,
) -> str:
    match reason:
        case reasons.Failed():
            return f"no result: {reason.message} ({reason.error})"
        case reasons.NothingEarlier():
            first = f"{verdict.score or 0.0:.3g}, first usable result"
            return f"{first}{_since(reason.accepted_step) or ' of this run'}"
        case reasons.NeverAboveChance():
            guessing = f"clearly better than guessing (score {reason.chance:.3g})"
            return f"never {guessing}{_since(reason.accepted_step)}"
        case reasons.TooEarly():
            return "verdicts start at the third checkpoint"
    return reason.problem


def _since(accepted_step: int | None) -> str:
    return "" if accepted_step is None else f" since the level of step {accepted_step} was accepted"


def _too_few(verdict: types.Verdict, reason: reasons.FewScores | reasons.FewInCommon | reasons.FewSamples) -> str:
    if isinstance(reason, reasons.FewSamples):
        return f"too few samples: {reason.samples} scored on both sides, {reason.needed} required"
    if isinstance(reason, reasons.FewInCommon):
        shares = f"{100 * reason.share:.1f} %, {100 * reason.needed:.0f} % required"
        return f"only {reason.samples} samples scored on both sides ({shares})"
    text = (
        f"only {reason.with_score} of {reason.planned} samples scored ({100 * verdict.coverage:.1f} %,"
        f" {100 * reason.needed:g} % required): {count_text(reason.errors, 'error')}, {reason.unscored} unscored"
    )
    if reason.detail:
        return f"{text}; first: {reason.detail}"
    return text


def _compared(verdict: types.Verdict, reason: reasons.Compared) -> str:
    if verdict.lost_since is None:
        return _tested(verdict, reason)
    lost = _lost(verdict, reason, verdict.lost_since)
    if lost or verdict.open_drop is None:
        return lost or _tested(verdict, reason)
    is_open = f"the loss is open: {drop_text(verdict.open_drop, verdict.lost_since, verdict.measure)}"
    return f"{_tested(verdict, reason)}; {is_open}"


def _tested(verdict: types.Verdict, reason: reasons.Compared) -> str:
    deciding = verdict.comparisons[0]
    change = f"{MEASURES[verdict.measure]}{_change(deciding, reason)}"
    if verdict.word is types.VerdictWord.EQUIVALENT:
        return f"{change}: equivalent within ±{reason.margin:.2g}"
    if verdict.word is types.VerdictWord.INCONCLUSIVE:
        seen = "" if verdict.mde is None else f"; minimum detectable loss {verdict.mde:.2g}"
        return f"{change}: not significant (n = {deciding.n_common}{_without_zero(deciding)}){seen}"
    return _counted(verdict, reason, change + _flips(verdict.measure, deciding))


def _lost(verdict: types.Verdict, reason: reasons.Compared, lost_since: int) -> str:
    """Return what a loss took that the verdict shows, or that ends; empty for other verdicts while a loss is open."""
    if verdict.word in types.IS_BACK:
        is_transient = verdict.word is types.VerdictWord.TRANSIENT
        return back_text(verdict.score, verdict.drop, lost_since, is_transient=is_transient)
    if verdict.word in types.WORSE and verdict.drop is not None:
        alone = f"; {score_text(verdict.score)} at this checkpoint" if len(verdict.drop.newest_steps) > 1 else ""
        return f"{drop_text(verdict.drop, lost_since, verdict.measure)}{alone}{_more_of_loss(verdict.word, reason)}"
    return ""


def _counted(verdict: types.Verdict, reason: reasons.Compared, counted: str) -> str:
    if verdict.word in types.WORSE:
        return f"{counted}{_more_of_loss(verdict.word, reason)}"
    if reason.expected_after is not None:
        return f"{counted}: {_expected(reason.expected_after)}"
    deciding = verdict.comparisons[0]
    if verdict.word is types.VerdictWord.SUSPECT:
        suspicion = f"may be worse ({_interval_text(deciding)}, {p_value_text(deciding.p_worse)})"
        return f"{counted}: {suspicion}, {_why_no_proof(deciding, deciding.p_worse, verdict.alpha_test)}"
    if verdict.word is types.VerdictWord.RISING:
        suspicion = f"may be better ({_interval_text(deciding)}, {p_value_text(deciding.p_better)})"
        return f"{counted}: {suspicion}, {_why_no_proof(deciding, deciding.p_better, verdict.alpha_test)}"
    return counted


def _why_no_proof(deciding: types.Comparison, p: float, level: float) -> str:
    """Return why a change counts as possible only; see `regression.detector.Evidence.is_loss`."""
    if p >= level:
        return f"not significant at the run's level ({p_text(level)})"
    if len(deciding.pooled_steps) == 1:
        return "too small for a verdict on one checkpoint alone"
    return "not significant without one of these checkpoints"


def _more_of_loss(word: types.VerdictWord, reason: reasons.Compared) -> str:
    if word is types.VerdictWord.FORGOTTEN:
        return f"; below the peak at {reason.in_a_row} checkpoints in a row"
    if word is types.VerdictWord.BELOW_GUESSING:
        return "; below guessing: check the format of the answers"
    return ""


def _interval_text(comparison: types.Comparison) -> str:
    return f"95 % CI {change_interval_text(comparison.ci_low, comparison.ci_high)}"


def _without_zero(comparison: types.Comparison) -> str:
    """Return why an interval without 0 shows no change; empty for one with 0."""
    if comparison.ci_low <= 0 <= comparison.ci_high:
        return ""
    return f", {_interval_text(comparison)}: too small, or by chance in one of many tests"


def _together_text(verdict: types.Verdict, reason: reasons.Together) -> str:
    """Return `4 of 10 benchmarks are lower by 3.1 to 8.0 points at step 500 (sums, words, colors and 1 more)`."""
    fell, where = f"{len(reason.falls)} of {reason.compared} benchmarks", steps_text(reason.steps)
    points = sorted(abs(100 * fall.change) for fall in reason.falls)
    by = f" by {points[0]:.1f} to {points[-1]:.1f} points" if points else ""
    names = f" ({_names(fall.benchmark for fall in reason.falls)})" if reason.falls else ""
    match verdict.word:
        case types.VerdictWord.TRANSIENT:
            return f"broken: {where}; {fell} fell{by} and are back{names}"
        case types.VerdictWord.RECOVERED:
            return f"{fell} had fallen{by} at {where} and are back{names}"
    back = f"; better again: {_names(reason.back)}" if reason.back else ""
    return f"{fell} are lower{by} at {where}{names}{back}{_outlook(verdict, reason)}"


def _names(benchmarks: Iterable[str]) -> str:
    return names_text(tuple(map(one_line, benchmarks)))


def _outlook(verdict: types.Verdict, reason: reasons.Together) -> str:
    if reason.expected_after is not None:
        return f": {_expected(reason.expected_after)}"
    if verdict.word is types.VerdictWord.SUSPECT:
        return ": the next checkpoint shows whether that lasts"
    return ""


def _expected(disruption: reasons.Disruption) -> str:
    return f"expected after the {disruption.what} at step {disruption.step}, an alert follows if it lasts"


def _change(deciding: types.Comparison, reason: reasons.Compared) -> str:
    digits = 2 if abs(reason.now - reason.before) >= 0.05 else 3
    together = _together(len(deciding.pooled_steps))
    base = f"{steps_text(deciding.baseline_steps)}{_BASELINES.get(deciding.baseline, '')}"
    return f"{reason.before:.{digits}f} at {base} -> {reason.now:.{digits}f}{together}"


def _together(pooled: int) -> str:
    if pooled > 1:
        return f" (mean of the newest {pooled})"
    return ""


def _flips(measure: Measure, comparison: types.Comparison) -> str:
    """Return lost and gained counts, with the baseline of a loss: while scores rise, few are right at most steps."""
    lost, gained = comparison.n_lost, comparison.n_gained
    if measure is not Measure.SCORE or not (lost or gained):
        return ""
    most = " (correct in most of those steps)" if lost and len(comparison.baseline_steps) > _PAIR else ""
    return f"; lost {lost} of {comparison.n_common} samples{most}, gained {gained}"


def _compared_means(reason: reasons.ComparedMeans) -> str:
    base = steps_text(reason.baseline_steps) + (_BASELINES[types.Baseline.PEAK] if reason.is_peak else "")
    change = f"{score_text(reason.before)} at {base} -> {score_text(reason.now)}{_together(reason.pooled)}"
    interval = f"95 % CI of the change {reason.ci_low:+.3f} to {reason.ci_high:+.3f}, {p_value_text(reason.p)}"
    chance = "; never above chance" if reason.never_above_chance else ""
    return f"{change}; {interval}, means only (no samples){chance}"


def _latency_text(verdict: types.LatencyVerdict, reason: reasons.LatencyReason) -> str:
    match reason:
        case reasons.AgainstReference():
            return _against_reference(verdict, reason)
        case reasons.AgainstHistory():
            return _against_history(verdict, reason)
        case reasons.FewRequests():
            return _few_requests(verdict, reason.needed)
        case reasons.NoScatter():
            return f"cannot test: no variance among {verdict.requests} pairs of requests"
        case reasons.Failed():
            return f"not measured: {reason.message} ({reason.error})" if reason.error else "not measured"
    return _short_history(verdict.learned_from, reason.needed)


def _short_history(earlier: int, needed: int) -> str:
    if not earlier:
        return "first latency measurement with this machine, engine and load"
    return f"{count_text(earlier, 'comparable earlier checkpoint')}, {needed} required without a reference"


def _few_requests(verdict: types.LatencyVerdict, needed: int) -> str:
    requests = verdict.requests
    if verdict.method is types.LatencyMethod.HISTORY:
        return f"timed, not judged: {requests} requests, {needed} required; raise probe.requests to {needed}"
    if requests >= needed:
        half = "from one half of the load, because too many requests of the other half failed"
        return f"almost all {requests} pairs of requests are {half}"
    return f"timed, not judged: {requests} pairs, {needed} required; raise probe.requests to {needed // 2}"


def _against_reference(verdict: types.LatencyVerdict, reason: reasons.AgainstReference) -> str:
    averaged = f", averaged over the newest {verdict.sessions} checkpoints" if verdict.sessions > 1 else ""
    text = f"{_latency_change(verdict)} than the reference, step {verdict.reference_step}{averaged}"
    if verdict.learned_from < reason.learning:
        known = f"{verdict.learned_from} of {reason.learning} checkpoints"
        return f"{text}: noise between engine starts not known yet ({known})"
    if verdict.word is types.VerdictWord.SUSPECT and verdict.p_slower is not None:
        return f"{text}: {p_value_text(verdict.p_slower)}, not significant at level {p_text(verdict.alpha_test)}"
    return text + _unseen(verdict)


def _against_history(verdict: types.LatencyVerdict, reason: reasons.AgainstHistory) -> str:
    text = f"{_latency_change(verdict)} than the {reason.checkpoints} checkpoints before it"
    if verdict.word is types.VerdictWord.SUSPECT:
        return f"{text}; possibly caused by the machine: set probe.reference to rule that out"
    return text + _unseen(verdict)


def _latency_change(verdict: types.LatencyVerdict) -> str:
    ratio, low, high = verdict.ratio or 1.0, verdict.ci_low or 1.0, verdict.ci_high or 1.0
    word = "slower" if ratio >= 1 else "faster"
    return f"{abs(100 * (ratio - 1)):.1f} % {word} (95 % CI {_percent(low)} to {_percent(high)})"


def _percent(ratio: float) -> str:
    """Return 1.2 as `+20.0 %`."""
    return f"{100 * (ratio - 1):+.1f} %"


def _unseen(verdict: types.LatencyVerdict) -> str:
    if verdict.word is not types.VerdictWord.INCONCLUSIVE:
        return ""
    return f": not significant; minimum detectable slowdown {_percent(verdict.detectable or 1.0)}"
