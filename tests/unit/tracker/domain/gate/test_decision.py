"""What a gate says, on records whose truth is known."""

import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from eval_jobs.types import EvalResult, Percentiles, ProbeLoad, ProbeResult
from tests.deep import sized
from tests.unit.tracker.domain.making import failure_of, record_of, suite_of
from tracker.domain.compare.view import RunNoise
from tracker.domain.gate.decision import gate, holm_levels
from tracker.domain.gate.rules import BenchmarkRule, GatePolicy, LatencyLimit
from tracker.domain.gate.types import BenchmarkCheck, GateWord
from tracker.domain.records.types import LatencyMetric
from tracker.domain.regression.jitter import Jitter
from tracker.domain.scores.series import series_key

NO_NOISE = RunNoise()
ONE_POINT = GatePolicy(otherwise=BenchmarkRule(min_effect=0.01))
OTHER = suite_of(["sums"], prompt_template="Compute {question}")
SAME = [1.0] * 900 + [0.0] * 100


def lost(count: int) -> list[float]:
    """`SAME` with so many samples lost."""
    return [0.0] * count + SAME[count:]


def words(scores: dict[str, list[float]], policy: GatePolicy | None = None) -> tuple[GateWord, dict[str, GateWord]]:
    before = record_of(100, dict.fromkeys(scores, SAME))
    report = gate(before, record_of(200, scores), policy or ONE_POINT, NO_NOISE)
    return report.word, {check.benchmark: check.word for check in report.benchmarks}


def test_equal_answers_pass() -> None:
    assert words({"sums": SAME, "facts": SAME}) == (GateWord.PASS, {"sums": GateWord.PASS, "facts": GateWord.PASS})


def test_a_loss_is_a_regression_and_names_its_samples() -> None:
    before, after = record_of(100, {"sums": SAME}), record_of(200, {"sums": lost(60)})
    report = gate(before, after, ONE_POINT, NO_NOISE)
    (check,) = report.benchmarks
    assert report.word is check.word is GateWord.REGRESSION
    assert check.reason == "loss of 0.060 (60 samples lost, 0 gained)"
    assert check.compared is not None
    assert [example.sample_id for example in check.compared.lost] == ["s0", "s1", "s2"]
    assert (report.baseline.step, report.candidate.step) == (100, 200)


def test_few_samples_show_neither_a_loss_nor_its_absence_and_the_gate_says_how_many_would() -> None:
    few = [1.0] * 40 + [0.0] * 10
    report = gate(record_of(1, {"sums": few}), record_of(2, {"sums": few}), ONE_POINT, NO_NOISE)
    (check,) = report.benchmarks
    assert report.word is GateWord.INCONCLUSIVE
    assert check.detectable == pytest.approx(0.0673, abs=0.002)
    assert check.samples_needed is not None
    assert 1_000 < check.samples_needed < 4_000
    ways = "`min_effect` 0.045 would have passed, or about 2,287 samples would decide, 50 available"
    assert check.reason == f"minimum detectable loss {check.detectable:.3f}; {ways}"


@pytest.mark.parametrize(("n", "gone", "back"), [(50, 0, 0), (50, 2, 1), (400, 6, 2), (100, 1, 0), (2000, 40, 12)])
def test_an_inconclusive_check_names_both_ways_out(n: int, gone: int, back: int) -> None:
    """The margin that it names passes, one below does not; and with so many samples alike, it is decided."""

    def checked(times: int, min_effect: float) -> BenchmarkCheck:
        before = ([1.0] * (n - back) + [0.0] * back) * times
        after = ([0.0] * gone + [1.0] * (n - gone)) * times
        policy = GatePolicy(otherwise=BenchmarkRule(min_effect=min_effect))
        return gate(record_of(1, {"b": before}), record_of(2, {"b": after}), policy, NO_NOISE).benchmarks[0]

    check = checked(1, 0.02)
    assert (check.word, check.reason.count("`min_effect`")) == (GateWord.INCONCLUSIVE, 1)
    assert check.passing_min_effect is not None
    assert check.samples_needed is not None
    assert checked(1, check.passing_min_effect).word is GateWord.PASS
    assert checked(1, check.passing_min_effect - 0.001).word is GateWord.INCONCLUSIVE
    assert check.samples_needed > n
    assert f"about {check.samples_needed:,} samples would decide, {n:,} available" in check.reason
    assert checked(2 * math.ceil(check.samples_needed / n), 0.02).word in {GateWord.PASS, GateWord.REGRESSION}


def test_a_loss_as_large_as_the_margin_is_decided_by_no_number_of_samples() -> None:
    policy = GatePolicy(otherwise=BenchmarkRule(min_effect=0.0090000001))
    (check,) = gate(record_of(1, {"b": SAME}), record_of(2, {"b": lost(9)}), policy, NO_NOISE).benchmarks
    assert (check.word, check.samples_needed) == (GateWord.INCONCLUSIVE, None)
    assert "more samples do not help" in check.reason


def test_a_gain_is_named() -> None:
    (check,) = gate(record_of(1, {"b": lost(60)}), record_of(2, {"b": SAME}), ONE_POINT, NO_NOISE).benchmarks
    assert (check.word, check.reason) == (GateWord.PASS, "gain of 0.060 (0 samples lost, 60 gained)")


@pytest.mark.slow
def test_what_is_said_to_be_needed_is_enough_in_four_cases_of_five() -> None:
    """One sample in ten flips, either way by chance, in candidates that lost nothing."""
    half = [1.0, 0.0] * 100
    flipped = [1.0 - score if index % 20 < 2 else score for index, score in enumerate(half)]
    (check,) = gate(record_of(1, {"b": half}), record_of(2, {"b": flipped}), ONE_POINT, NO_NOISE).benchmarks
    assert check.word is GateWord.INCONCLUSIVE
    needed = check.samples_needed or 0
    assert 6_000 < needed < 8_000
    chance = Random(1)  # noqa: S311 - no secret
    before = [1.0, 0.0] * (needed // 2)
    words, runs = [], sized(10, 60)
    for _ in range(runs):
        after = [1.0 - score if chance.random() < 0.1 else score for score in before]
        words.append(gate(record_of(1, {"b": before}), record_of(2, {"b": after}), ONE_POINT, NO_NOISE).word)
    low, high = stats.binom.interval(0.995, runs, 0.8)
    assert low <= words.count(GateWord.PASS) <= high
    assert words.count(GateWord.REGRESSION) <= runs // 20


def test_a_loss_that_is_said_to_be_seen_is_called_in_four_cases_of_five() -> None:
    """With a smallest effect that is larger than what chance alone would need."""
    policy, before = GatePolicy(otherwise=BenchmarkRule(min_effect=0.05)), [1.0] * 1000
    chance = Random(2)  # noqa: S311 - no secret
    detectable = 0.057
    called, promised, runs = 0, [], sized(30, 60)
    for _ in range(runs):
        after = [0.0 if chance.random() < detectable else 1.0 for _ in before]
        (check,) = gate(record_of(1, {"b": before}), record_of(2, {"b": after}), policy, NO_NOISE).benchmarks
        called += check.word is GateWord.REGRESSION
        promised.append(check.detectable or 0.0)
    assert sum(promised) / len(promised) == pytest.approx(detectable, abs=0.001)
    low, high = stats.binom.interval(0.995, runs, 0.8)
    assert low <= called <= high


def test_a_handful_of_clusters_without_a_change_is_no_pass() -> None:
    """Each of them might have been lost as a whole, and four say little of the others."""
    policy = GatePolicy(otherwise=BenchmarkRule(min_effect=0.05))
    passages = [f"passage {i // 250}" for i in range(1000)]
    before, after = (record_of(step, {"b": SAME}, clusters=passages) for step in (1, 2))
    (check,) = gate(before, after, policy, NO_NOISE).benchmarks
    assert check.word is GateWord.INCONCLUSIVE
    assert "clusters" in check.reason


def test_clusters_that_are_said_to_be_needed_are_enough() -> None:
    """However much flips in each of 40 passages: one more of them might be lost as a whole."""
    policy = GatePolicy(otherwise=BenchmarkRule(min_effect=0.05))

    def check(passages: int) -> BenchmarkCheck:
        clusters = [f"passage {i // 25}" for i in range(25 * passages)]
        before = [float(i % 2) for i in range(25 * passages)]
        # Of every passage one answer is lost and one gained, of every other passage one more either way.
        flips = {25 * p + k for p in range(passages) for k in (2, 3, 4 + p // 2 % 2)[: 2 + p % 2]}
        after = [1.0 - score if i in flips else score for i, score in enumerate(before)]
        old, new = (record_of(step, {"b": x}, clusters=clusters) for step, x in ((1, before), (2, after)))
        return gate(old, new, policy, NO_NOISE).benchmarks[0]

    few = check(40)
    assert few.word is GateWord.INCONCLUSIVE
    assert few.samples_needed is not None
    assert 1_500 < few.samples_needed < 2_500
    assert check(few.samples_needed // 25 + 1).word is GateWord.PASS


def test_many_clusters_with_a_handful_of_changes_pass() -> None:
    policy = GatePolicy(otherwise=BenchmarkRule(min_effect=0.05))
    passages = [f"passage {i // 5}" for i in range(1000)]
    before, after = record_of(1, {"b": SAME}, clusters=passages), record_of(2, {"b": lost(3)}, clusters=passages)
    assert gate(before, after, policy, NO_NOISE).word is GateWord.PASS


def test_many_clusters_with_changes_both_ways_pass() -> None:
    passages = [f"passage {i // 5}" for i in range(1000)]
    scores = [*SAME[::2], *SAME[::2]]
    flipped = [1.0 - score if i % 40 == 0 else score for i, score in enumerate(scores)]
    before, after = (record_of(1, {"b": scores}, clusters=passages), record_of(2, {"b": flipped}, clusters=passages))
    policy = GatePolicy(otherwise=BenchmarkRule(min_effect=0.05))
    assert gate(before, after, policy, NO_NOISE).word is GateWord.PASS


def test_an_advisory_benchmark_is_shown_and_decides_nothing() -> None:
    policy = GatePolicy(benchmarks={"facts": BenchmarkRule(required=False)})
    word, each = words({"facts": lost(60), "sums": SAME}, policy)
    assert word is GateWord.PASS
    assert each == {"sums": GateWord.PASS, "facts": GateWord.REGRESSION}
    assert list(each) == ["sums", "facts"], "required ones come first"


def test_a_loss_below_what_matters_is_no_regression() -> None:
    word, _ = words({"sums": lost(20)}, GatePolicy(otherwise=BenchmarkRule(min_effect=0.03)))
    assert word is GateWord.PASS


def test_a_floor_holds_whatever_the_baseline_has() -> None:
    word, _ = words({"sums": SAME}, GatePolicy(benchmarks={"sums": BenchmarkRule(floor=0.95)}))
    assert word is GateWord.REGRESSION
    word, _ = words({"sums": SAME}, GatePolicy(benchmarks={"sums": BenchmarkRule(floor=0.9)}))
    assert word is GateWord.PASS


def test_where_lower_is_better_the_floor_is_a_ceiling() -> None:
    suite = suite_of(["errors"], higher_is_better=False)
    half = [1.0] * 500 + [0.0] * 500
    before, after = (record_of(step, {"errors": half}, suite=suite) for step in (1, 2))
    for floor, word in ((0.4, GateWord.REGRESSION), (0.6, GateWord.PASS)):
        policy = GatePolicy(benchmarks={"errors": BenchmarkRule(floor=floor, min_effect=0.02)})
        assert gate(before, after, policy, NO_NOISE).word is word


def test_a_benchmark_with_a_rule_must_be_measured() -> None:
    word, each = words({"sums": SAME}, GatePolicy(benchmarks={"mmlu": BenchmarkRule()}))
    assert (word, each["mmlu"]) == (GateWord.MISSING, GateWord.MISSING)


def test_a_failed_evaluation_is_missing_and_too_few_scores_are_too() -> None:
    before, after = record_of(1, {"sums": SAME}), record_of(2, {"sums": SAME})
    failed = replace(after, outcomes=(failure_of("sums"),))
    (check,) = gate(before, failed, ONE_POINT, NO_NOISE).benchmarks
    assert check.word is GateWord.MISSING
    assert "step 2" in check.reason
    few = record_of(2, {"sums": [*[None] * 60, *SAME[60:]]})
    assert gate(before, few, ONE_POINT, NO_NOISE).word is GateWord.MISSING
    nearly = record_of(2, {"sums": [*[None] * 20, *SAME[20:]]})
    assert gate(before, nearly, ONE_POINT, NO_NOISE).word is GateWord.PASS
    assert (
        gate(before, nearly, GatePolicy(otherwise=BenchmarkRule(min_coverage=0.99)), NO_NOISE).word is GateWord.MISSING
    )


def test_a_floor_holds_although_nothing_can_be_compared() -> None:
    policy = GatePolicy(benchmarks={"sums": BenchmarkRule(floor=0.95)})
    after = record_of(2, {"sums": SAME})
    for before in (record_of(1, {"sums": failure_of("sums")}), record_of(1, {"sums": SAME}, suite=OTHER)):
        report = gate(before, after, policy, NO_NOISE)
        assert report.word is GateWord.REGRESSION
        assert report.benchmarks[0].reason == "score 0.900 is below the `floor` of 0.950"


def test_a_floor_is_held_against_no_handful_of_scores() -> None:
    policy = GatePolicy(benchmarks={"sums": BenchmarkRule(floor=0.5)})
    hardly = record_of(2, {"sums": [*[None] * 970, *[0.0] * 30]})
    report = gate(record_of(1, {"sums": SAME}), hardly, policy, NO_NOISE)
    assert report.word is GateWord.MISSING


def test_a_part_decides_a_floor_only_with_its_interval() -> None:
    before, after = record_of(1, {"sums": SAME}), record_of(2, {"sums": SAME})
    part = replace(after, outcomes=tuple(replace(o, left_out=250) for o in after.outcomes if isinstance(o, EvalResult)))
    for floor, word in ((0.95, GateWord.REGRESSION), (0.91, GateWord.INCONCLUSIVE), (0.85, GateWord.PASS)):
        rule = BenchmarkRule(floor=floor, min_coverage=0.8)
        assert gate(before, part, GatePolicy(benchmarks={"sums": rule}), NO_NOISE).word is word


@pytest.mark.parametrize(
    ("failed", "max_ms", "word", "reason"),
    [
        (1, 100.0, GateWord.PASS, "50.0 ms, limit 100 ms"),
        (4, 100.0, GateWord.MISSING, "50.0 ms, but 4 of 32 requests failed and were not timed"),
        (4, 40.0, GateWord.REGRESSION, "50.0 ms exceeds 40 ms"),
    ],
)
def test_requests_that_failed_are_not_within_a_limit(failed: int, max_ms: float, word: GateWord, reason: str) -> None:
    times = Percentiles(mean=50.0, p50=50.0, p90=50.0, p95=50.0, p99=50.0)
    probe = ProbeResult(
        load=ProbeLoad(name="default"),
        ttft_ms=times,
        tpot_ms=times,
        itl_ms=times,
        e2e_ms=times,
        completed=32 - failed,
        failed=failed,
        duration_s=1.0,
        output_tokens=100,
        requests_per_s=1.0,
        output_tokens_per_s=1.0,
    )
    before, after = record_of(1, {"sums": SAME}), replace(record_of(2, {"sums": SAME}), probes=(probe,))
    limit = LatencyLimit(metric=LatencyMetric.TTFT, quantile=0.95, max_ms=max_ms)
    (check,) = gate(before, after, GatePolicy(latency=(limit,)), NO_NOISE).latency
    assert (check.word, check.reason) == (word, reason)


def test_a_loss_that_is_shown_and_measures_less_than_what_matters_is_left_open() -> None:
    report = gate(record_of(1, {"sums": SAME}), record_of(2, {"sums": lost(9)}), ONE_POINT, NO_NOISE)
    assert report.word is GateWord.INCONCLUSIVE
    assert report.benchmarks[0].reason == (
        "significant loss, but it may be smaller or larger than 0.010; "
        "`min_effect` 0.015 would have passed, or about 67,240 samples would decide, 1,000 available"
    )


def test_jitter_of_the_run_widens_both_tests() -> None:
    before, after = record_of(1, {"sums": SAME}), record_of(2, {"sums": lost(20)})
    (key,) = (series_key(after.plan, outcome) for outcome in after.outcomes if isinstance(outcome, EvalResult))
    calm = gate(before, after, GatePolicy(otherwise=BenchmarkRule(min_effect=0.04)), NO_NOISE).benchmarks[0]
    jitters = {key: Jitter(tau2=0.01**2, variance=1e-9)}
    restless = gate(before, after, GatePolicy(otherwise=BenchmarkRule(min_effect=0.04)), RunNoise(jitters=jitters))
    assert calm.word is GateWord.PASS
    assert restless.word is GateWord.INCONCLUSIVE
    assert (restless.benchmarks[0].detectable or 0) > (calm.detectable or 0) + 0.005


def test_another_prompt_is_incomparable() -> None:
    report = gate(record_of(1, {"sums": SAME}), record_of(2, {"sums": SAME}, suite=OTHER), ONE_POINT, NO_NOISE)
    assert report.word is GateWord.INCOMPARABLE
    assert "prompt_template" in report.benchmarks[0].reason


@given(st.dictionaries(st.text(min_size=1, max_size=3), st.floats(0, 1), max_size=8), st.floats(0.001, 0.2))
def test_levels_are_those_of_holm(p_values: dict[str, float], alpha: float) -> None:
    levels = holm_levels(p_values, alpha)
    assert levels.keys() == p_values.keys()
    rejected = {name for name, p in p_values.items() if p < levels[name]}
    expected = set()
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        if p_values[name] >= alpha / (len(p_values) - rank):
            break
        expected.add(name)
    assert rejected == expected
