"""What asking a checkpoint twice shows: against scipy, plain sums and simulated repetitions."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from eval_jobs.identity import benchmark_fingerprint, calibration_plan, second_pass
from eval_jobs.types import BenchmarkFailure, EngineInfo, EvalRecord, EvalResult, SampleScore, SampleStatus, ServeSpec
from tests.unit.tracker.domain.making import failure_of, record_of, result_of, suite_of
from tracker.domain.calibration.noise import (
    asked_twice,
    calibration_of,
    decoding_variance,
    fitness,
    noise_of,
    repetition,
    repetition_of,
    share_interval,
)
from tracker.domain.records.calibration import AskedTwice, Calibration, Fitness

ENGINE = EngineInfo(name="vllm", version="0.32.1", load_method="cold", load_s=1.0, log="", machine="m", device="H200")
SUITE = suite_of(("sums",))


def asked(first: Sequence[float | None], second: Sequence[float | None]) -> AskedTwice:
    found = asked_twice(result_of(first), result_of(second))
    assert found is not None
    return found


def flipped(n: int, lost: int, gained: int) -> AskedTwice:
    """Return n samples, half of them right at first; of them `lost` turn wrong and `gained` of the others right."""
    first = [1.0] * (n // 2) + [0.0] * (n - n // 2)
    second = [0.0] * lost + first[lost : n // 2] + [1.0] * gained + first[n // 2 + gained :]
    return asked(first, second)


def calibrated(
    first: Sequence[float | None],
    second: Sequence[float | None] | BenchmarkFailure,
    *,
    number: int = 1,
    run: str = "run",
) -> EvalRecord:
    """The record of a calibration of one benchmark, `sums`, as a worker hands it in."""
    ordinary = record_of(300, {"sums": first}, suite=SUITE, finished_after_s=1000.0 * number)
    plan = calibration_plan(replace(ordinary.plan.checkpoint, run_id=run), SUITE, ServeSpec(), number)
    again = second
    if not isinstance(again, BenchmarkFailure):
        suite = second_pass(SUITE)
        again = result_of(again, fingerprint=benchmark_fingerprint(suite.benchmarks[0], suite))  # type: ignore[assignment]
    return replace(ordinary, plan=plan, outcomes=(*ordinary.outcomes, again), engine=ENGINE)  # type: ignore[arg-type]


def calibration(lost: int = 3, n: int = 200, **options: int | str) -> Calibration:
    first = [1.0] * n
    record = calibrated(first, [0.0] * lost + first[lost:], **options)  # type: ignore[arg-type]
    return calibration_of(record, min_coverage=0.95)


@pytest.mark.parametrize(("count", "n"), [(0, 150), (1, 150), (7, 80), (79, 80), (80, 80), (0, 1), (1, 1), (3, 14042)])
def test_the_share_of_flips_has_the_exact_interval(count: int, n: int) -> None:
    exact = stats.binomtest(count, n).proportion_ci(0.95, method="exact")
    assert share_interval(count, n) == pytest.approx((exact.low, exact.high), abs=1e-9)


def test_no_flip_at_all_is_no_certainty() -> None:
    none = flipped(150, 0, 0)
    assert (none.flips, noise_of(none).sd, noise_of(none).low) == (0, 0.0, 0.0)
    assert share_interval(0, 150)[1] == pytest.approx(1 - 0.025 ** (1 / 150))
    assert noise_of(none).high == pytest.approx(math.sqrt((1 - 0.025 ** (1 / 150)) / 300))


def test_counts_and_sums_are_those_of_the_common_samples() -> None:
    found = asked([1.0, 0.0, 1.0, None, 0.25], [1.0, 1.0, None, 1.0, 0.75])
    assert (found.planned, found.samples, found.flips) == (5, 3, 2)
    assert (found.squares, found.largest) == (1.25, 1.0)
    assert found.first_mean == pytest.approx(1.25 / 3)
    assert found.second_mean == pytest.approx(2.75 / 3)


def test_a_sample_with_the_same_score_and_another_text_is_no_flip() -> None:
    first = result_of([1.0, 0.0, 0.0])
    samples = tuple(replace(s, answer=f"{s.answer} ") if i < 2 else s for i, s in enumerate(first.samples))
    flips = (*samples[:1], replace(samples[1], score=1.0), samples[2])
    found = asked_twice(first, replace(first, samples=flips))
    assert found is not None
    assert (found.flips, found.other_texts) == (1, 1)


def test_several_answers_to_a_sample_are_averaged_and_their_texts_compared_repeat_by_repeat() -> None:
    def repeated(scores: tuple[float, float], answers: tuple[str, str]) -> EvalResult:
        samples = tuple(
            SampleScore(
                sample_id="s", subset="", repeat=r, score=scores[r], status=SampleStatus.SCORED, answer=answers[r]
            )
            for r in (1, 0)
        )
        return replace(result_of([]), samples=samples)

    found = asked_twice(repeated((1.0, 0.0), ("a", "b")), repeated((1.0, 1.0), ("a", "b")))
    assert found is not None
    assert (found.samples, found.flips, found.squares, found.planned) == (1, 1, 0.25, 1)
    swapped = asked_twice(repeated((1.0, 1.0), ("a", "b")), repeated((1.0, 1.0), ("b", "a")))
    assert swapped is not None
    assert (swapped.flips, swapped.other_texts) == (0, 1)


def test_nothing_in_common_is_nothing_measured() -> None:
    assert asked_twice(result_of([1.0, None]), result_of([None, 1.0])) is None


@pytest.mark.parametrize(("n", "lost", "gained"), [(200, 3, 4), (1319, 10, 12), (100, 20, 20)])
def test_the_noise_of_flips_is_half_their_share_over_the_samples(n: int, lost: int, gained: int) -> None:
    noise = noise_of(flipped(n, lost, gained))
    share = (lost + gained) / n
    exact = stats.binomtest(lost + gained, n).proportion_ci(0.95, method="exact")
    assert noise.sd == pytest.approx(math.sqrt(share / (2 * n)))
    assert (noise.low, noise.high) == pytest.approx(tuple(math.sqrt(s / (2 * n)) for s in (exact.low, exact.high)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["binary", "graded", "long"])
def test_the_noise_is_what_repeated_evaluations_scatter_by(kind: str) -> None:
    rng = np.random.default_rng(7)
    n, repetitions = 400, 3000
    p = rng.beta(0.5, 0.5, n)

    def passes(count: int) -> np.ndarray:
        if kind == "binary":
            return (rng.random((count, n)) < p).astype(float)
        scale = 1.0 if kind == "graded" else 30.0  # a score that is no share, such as a perplexity
        return scale * np.clip(p + rng.normal(0, 0.1, (count, n)), 0, 1)

    truth = float(passes(repetitions).mean(axis=1).std(ddof=1))
    found = [noise_of(asked(a.tolist(), b.tolist())) for a, b in zip(passes(120), passes(120), strict=True)]
    assert np.mean([f.sd for f in found]) == pytest.approx(truth, rel=0.05)
    assert np.mean([f.low <= truth <= f.high for f in found]) >= 0.95


@given(st.integers(1, 400), st.data())
def test_intervals_hold_the_estimate_and_are_never_points(n: int, data: st.DataObject) -> None:
    lost = data.draw(st.integers(0, n))
    found = asked([1.0] * n, [0.0] * lost + [1.0] * (n - lost))
    noise = noise_of(found)
    assert noise.low <= noise.sd <= noise.high
    assert noise.low < noise.high


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=30))
def test_the_passes_may_change_places(pairs: list[tuple[float, float]]) -> None:
    first, second = ([pair[i] for pair in pairs] for i in (0, 1))
    one, other = asked(first, second), asked(second, first)
    assert (one.flips, one.largest) == (other.flips, other.largest)
    assert one.squares == pytest.approx(other.squares)
    assert noise_of(one).high == pytest.approx(noise_of(other).high)


def test_a_pass_that_moved_as_a_whole_is_noticed() -> None:
    moved, even = flipped(1000, 30, 0), flipped(1000, 15, 15)
    assert moved.p_shift == pytest.approx(0.5**30)  # mid-p: twice half of the chance of 30 of 30
    assert even.p_shift > 0.5
    assert noise_of(moved).sd == pytest.approx(0.03 / math.sqrt(2))
    assert noise_of(even).sd == pytest.approx(math.sqrt(0.03 / 2000))
    assert (fitness(moved, 0.01), fitness(even, 0.01)) == (Fitness.UNFIT, Fitness.FIT)


@pytest.mark.parametrize(
    ("n", "flips", "min_effect", "expected"),
    [
        (100, 3, 0.01, Fitness.UNSURE),  # sqrt(.0062) / 10 < .01
        (100, 4, 0.01, Fitness.UNFIT),  # sqrt(.0110) / 10 > .01
        (100, 0, 0.01, Fitness.UNSURE),  # sqrt(.0362) / 10 > .01
        (100, 0, 0.02, Fitness.FIT),
        (500, 0, 0.01, Fitness.FIT),
        (500, 25, 0.01, Fitness.UNSURE),
        (500, 36, 0.01, Fitness.UNFIT),
        (14042, 1400, 0.01, Fitness.FIT),
        (100, 0, 0.0, Fitness.UNSURE),
    ],
)
def test_unfit_is_shown_by_the_limits_of_the_interval_and_so_is_fit(
    n: int, flips: int, min_effect: float, expected: Fitness
) -> None:
    found = flipped(n, flips // 2, flips - flips // 2)
    low, high = stats.binomtest(flips, n).proportion_ci(0.95, method="exact")
    assert (math.sqrt(low / n) > min_effect, math.sqrt(high / n) <= min_effect) == (
        expected is Fitness.UNFIT,
        expected is Fitness.FIT,
    )
    assert fitness(found, min_effect) is expected


def test_a_benchmark_at_the_border_is_called_unfit_in_one_of_forty_at_most() -> None:
    rng = np.random.default_rng(3)
    n = 300
    rate = n * 0.01**2  # flips whose true noise is just the smallest effect
    counts = rng.binomial(n, rate, 4000)
    unfit = {int(k): fitness(flipped(n, int(k) // 2, int(k) - int(k) // 2), 0.01) for k in np.unique(counts)}
    assert np.mean([unfit[int(k)] is Fitness.UNFIT for k in counts]) <= 0.025 + 3 * math.sqrt(0.025 / 4000)


def test_a_calibration_holds_one_entry_or_failure_for_each_benchmark() -> None:
    good = calibration_of(calibrated([1.0] * 20, [1.0] * 19 + [0.0]), min_coverage=0.95)
    assert [(a.benchmark, a.flips) for a in good.benchmarks] == [("sums", 1)]
    assert good.failures == ()
    assert good.benchmarks[0].fingerprint == benchmark_fingerprint(SUITE.benchmarks[0], SUITE)
    failed = calibration_of(calibrated([1.0] * 20, failure_of("sums")), min_coverage=0.95)
    assert (failed.benchmarks, [f.code for f in failed.failures]) == ((), ["E-SERVE-DIED"])


def test_too_few_scores_in_both_passes_are_no_calibration() -> None:
    record = calibrated([None, None, *[1.0] * 18], [1.0] * 20)
    (failure,) = calibration_of(record, min_coverage=0.95).failures
    said = "only 18 of 20 samples of sums scored in both passes; first failure: the server went away"
    assert failure.message == said
    assert calibration_of(record, min_coverage=0.9).failures == ()


def test_an_answer_from_before_suites_were_asked_twice_is_a_failure() -> None:
    record = calibrated([1.0] * 20, [1.0] * 20)
    (failure,) = calibration_of(replace(record, outcomes=record.outcomes[:1]), min_coverage=0.95).failures
    assert failure.message == "only 1 of 2 passes produced a result for sums"


def measured(run: str = "run", **changes: object) -> EvalRecord:
    record = record_of(900, {"sums": [1.0]}, suite=SUITE)
    checkpoint = replace(record.plan.checkpoint, run_id=run)
    engine = replace(ENGINE, **changes)  # type: ignore[arg-type]
    return replace(record, engine=engine, plan=replace(record.plan, checkpoint=checkpoint))


def stale(record: EvalRecord, *calibrations: Calibration) -> str | None:
    found = repetition_of(calibrations, record, "sums", min_effect=0.01)
    return None if found is None else found.stale


def test_a_calibration_holds_for_every_run_that_is_measured_in_the_same_way() -> None:
    assert stale(measured(), calibration()) == ""
    assert stale(measured(run="another"), calibration()) == ""
    assert (
        stale(measured(load_method="swap", load_s=0.1, log="other", machine="another of its kind"), calibration()) == ""
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": "0.33.0"}, "engine is vllm 0.33.0, was vllm 0.32.1"),
        ({"name": "remote", "version": ""}, "engine is remote, was vllm 0.32.1"),
        ({"device": "B200"}, "device is B200, was H200"),
        ({"is_batch_invariant": True}, "outputs are now batch-invariant"),
        ({"device": "", "machine": "n"}, "engine runs on another machine"),
        ({"device": "", "machine": "m"}, ""),
    ],
)
def test_another_engine_or_device_makes_it_stale(change: dict[str, Any], said: str) -> None:
    assert stale(measured(**change), calibration()) == said


def test_another_suite_or_serving_makes_it_stale_in_its_own_run_and_is_nothing_in_others() -> None:
    suite = replace(SUITE, concurrency=32)
    other = replace(record_of(900, {"sums": [1.0]}, suite=suite), engine=ENGINE)
    assert stale(other, calibration()) == "concurrency (requests in flight) is 32, was 8"
    assert stale(other, calibration(run="another")) is None
    served = replace(record_of(900, {"sums": [1.0]}, suite=SUITE, serve=ServeSpec(dtype="half")), engine=ENGINE)
    assert stale(served, calibration()) == "serve.dtype is half, was auto"


def test_what_was_never_calibrated_is_not_known() -> None:
    assert stale(measured()) is None
    assert repetition_of((calibration(),), measured(), "facts", min_effect=0.01) is None


def test_the_newest_calibration_that_holds_counts_though_a_newer_one_is_stale() -> None:
    older, newer = calibration(lost=1, number=1), calibration(lost=2, number=2)
    elsewhere = replace(calibration(lost=9, number=3), engine=replace(ENGINE, version="0.33.0"))
    found = repetition_of((newer, elsewhere, older), measured(), "sums", min_effect=0.01)
    assert found is not None
    assert (found.flips, found.stale) == (2, "")
    only_stale = repetition_of((elsewhere,), measured(), "sums", min_effect=0.01)
    assert only_stale is not None
    assert decoding_variance(only_stale) == decoding_variance(None) == 0.0
    assert decoding_variance(found) == pytest.approx(0.01 / 2)  # 2 of 200 flipped


def test_a_repetition_says_what_when_and_where() -> None:
    kept = calibration(lost=3)
    found = repetition(kept, kept.benchmarks[0], 0.01)
    assert (found.samples, found.flips, found.run_id, found.step) == (200, 3, "run", 300)
    assert (found.engine, found.measured_at) == ("vllm 0.32.1", kept.finished_at)
    assert found.flip_rate_low < 0.015 < found.flip_rate_high
    assert found.noise == pytest.approx(math.sqrt(1.5) / 200)
    assert found.noise_low < found.noise < found.noise_high
