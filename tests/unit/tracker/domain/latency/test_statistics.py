"""The latency statistics against reference values, against real latencies, and their symmetries."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.requires import PROJECT, shared_data
from tests.unit.tracker.domain import latency_oracle
from tracker.domain.latency.rules import Limits, decisions
from tracker.domain.latency.statistics import (
    BLOCK,
    DRAWS,
    BlockContrast,
    LatencyContrast,
    SeriesNoise,
    between_variance,
    block_starts,
    faster_p,
    history_spread,
    inflated,
    overdispersion,
    paired_contrast,
    slower_p,
)
from tracker.domain.scores.matrix import FloatArray
from tracker.domain.scores.statistics.paired import interval

GOLDEN_FILE = PROJECT / "tests" / "golden" / "latency.json"
GOLDEN: dict[str, Any] = json.loads(GOLDEN_FILE.read_text(encoding="utf-8"))

times = st.lists(st.floats(1.0, 1e4), min_size=20, max_size=60)


def contrast_of(row: Sequence[float]) -> LatencyContrast:
    """L and its error of the first and of the second block."""
    first, second = (BlockContrast(log_ratio=row[i], stderr=row[i + 1]) for i in (0, 2))
    return LatencyContrast(first, second)


def z2(block: BlockContrast) -> float:
    return (block.log_ratio / block.stderr) ** 2


def near(expected: float) -> object:
    return pytest.approx(expected, rel=1e-9, abs=1e-12)


# --- reference values


@pytest.mark.parametrize("kind", ["contrast", "between", "pooled", "history", "decision"])
def test_the_reference_values_are_those_of_the_oracle(kind: str) -> None:
    for case in GOLDEN[kind]:
        inputs = [value for name, value in case.items() if name != "expect"]
        for name, value in getattr(latency_oracle, kind)(*inputs).items():
            assert case["expect"][name] == (value if isinstance(value, str) else near(value))


def test_the_reference_decisions_hold_every_word() -> None:
    words = {case["expect"]["word"] for case in GOLDEN["decision"]}
    assert words == {"regressed", "improved", "suspect", "inconclusive"}


@pytest.mark.parametrize("case", GOLDEN["contrast"])
def test_contrasts_agree_with_the_oracle(case: dict[str, Any]) -> None:
    candidate, reference = np.array(case["candidate_ms"]), np.array(case["reference_ms"])
    found = paired_contrast(candidate, reference, case["quantile"], np.array(case["starts"]))
    assert found.log_ratio == near(case["expect"]["log_ratio"])
    assert found.stderr == near(case["expect"]["stderr"])


@pytest.mark.parametrize("case", GOLDEN["between"])
def test_the_variance_between_starts_agrees_with_the_oracle(case: dict[str, Any]) -> None:
    assert between_variance([contrast_of(row) for row in case["blocks"]]) == near(case["expect"]["between"])


@pytest.mark.parametrize("case", GOLDEN["pooled"])
def test_pooled_ratios_agree_with_the_oracle(case: dict[str, Any]) -> None:
    past_z2 = case["past_z2"]
    noise = SeriesNoise(between=case["between_variance"], factor=overdispersion(past_z2), learned_from=len(past_z2))
    spread = inflated([contrast_of(row) for row in case["blocks"]], noise)
    low, high = interval(spread)
    found = {
        "overdispersion": noise.factor,
        "centre": spread.centre,
        "stderr": spread.stderr,
        "df": spread.df,
        "p_slower": slower_p(spread),
        "p_faster": faster_p(spread),
        "ci_low": low,
        "ci_high": high,
    }
    assert found == {name: near(value) for name, value in case["expect"].items()}


@pytest.mark.parametrize("case", GOLDEN["history"])
def test_a_comparison_with_the_history_agrees_with_the_oracle(case: dict[str, Any]) -> None:
    spread = history_spread(case["log_time"], case["past"])
    found = {"centre": spread.centre, "stderr": spread.stderr, "df": spread.df, "p_slower": slower_p(spread)}
    assert found == {name: near(value) for name, value in case["expect"].items()}


@pytest.mark.parametrize("case", GOLDEN["decision"])
def test_decisions_agree_with_the_oracle(case: dict[str, Any]) -> None:
    series = [contrast_of(row) for row in case["series"]]
    found = decisions(series, Limits(alpha_test=case["alpha_test"], floor=case["floor"]))[-1]
    assert (found.word, found.sessions) == (case["expect"]["word"], case["expect"]["sessions"])
    assert found.noise.factor == near(case["expect"]["overdispersion"])
    assert found.noise.between == near(case["expect"]["between"])


@pytest.mark.shared_data
def test_the_shared_reference_cases_agree() -> None:
    path = shared_data("../verdicts/regression_golden.json")
    cases = [c for c in json.loads(path.read_text(encoding="utf-8"))["cases"] if c["kind"].startswith("latency_")]
    assert {case["kind"] for case in cases} == {"latency_ab_p", "latency_hist_t"}
    for case in cases:
        check = _check_interleaved if case["kind"] == "latency_ab_p" else _check_history
        check(case["input"], case["expect"])


def _check_interleaved(given_: dict[str, Any], expected: dict[str, float]) -> None:
    factor = overdispersion(given_["past_z2"])
    log_ratio, error = given_["log_ratio"], math.sqrt(2) * given_["boot_se"]
    noise = SeriesNoise(factor=factor, learned_from=len(given_["past_z2"]))
    assert factor == near(expected["lambda"])
    assert slower_p(inflated([contrast_of([log_ratio, error, log_ratio, error])], noise)) == near(expected["p"])


def _check_history(given_: dict[str, Any], expected: dict[str, float]) -> None:
    candidate, reference = np.array(given_["candidate_ms"]), np.array(given_["reference_ms"])
    starts = block_starts(candidate.size, 0)
    for percent in (50, 95):
        found = paired_contrast(candidate, reference, percent / 100, starts)
        assert found.log_ratio == near(expected[f"log_ratio_p{percent}"])
    spread = history_spread(given_["new_log_ratio"], given_["history_log_ratio"])
    assert spread.centre == near(expected["delta"])
    assert slower_p(spread) == near(expected["p"])


# --- symmetries


@given(times, st.floats(0.2, 5.0), st.sampled_from([0.5, 0.95]), st.integers(0, 2**64))
def test_exchanging_the_sides_changes_only_the_sign(
    values: list[float], factor: float, quantile: float, seed: int
) -> None:
    candidate, reference = np.array(values), factor * np.array(values[::-1])
    starts = block_starts(candidate.size, seed)
    one, other = (paired_contrast(a, b, quantile, starts) for a, b in ((candidate, reference), (reference, candidate)))
    assert one.log_ratio == pytest.approx(-other.log_ratio, abs=1e-12)
    assert one.stderr == pytest.approx(other.stderr, abs=1e-12)


@given(times, st.sampled_from([0.5, 0.95]), st.floats(0.01, 100.0))
def test_the_unit_of_time_does_not_matter(values: list[float], quantile: float, unit: float) -> None:
    candidate, reference = np.array(values), np.array(values[::-1])
    starts = block_starts(candidate.size, 1)
    in_ms, in_other = (paired_contrast(k * candidate, k * reference, quantile, starts) for k in (1.0, unit))
    assert (in_other.log_ratio, in_other.stderr) == pytest.approx((in_ms.log_ratio, in_ms.stderr), abs=1e-9)


@given(times, st.floats(1.001, 3.0))
def test_a_slower_candidate_has_a_larger_ratio_and_the_same_error(values: list[float], factor: float) -> None:
    candidate, reference = np.array(values), np.array(values[::-1])
    starts = block_starts(candidate.size, 1)
    before, after = (paired_contrast(k * candidate, reference, 0.5, starts) for k in (1.0, factor))
    assert after.log_ratio - before.log_ratio == pytest.approx(math.log(factor), abs=1e-9)
    assert after.stderr == pytest.approx(before.stderr, abs=1e-9)


@given(st.lists(st.floats(0, 1e6), max_size=60))
def test_noise_is_never_called_smaller_than_the_bootstrap_and_never_more_than_nine_times(z2: list[float]) -> None:
    assert 1.0 <= overdispersion(z2) <= 9.0
    assert overdispersion(z2) == overdispersion(z2[::-1])


rows = st.tuples(*[st.floats(-0.5, 0.5), st.floats(1e-3, 0.2)] * 2)


@given(st.lists(rows, min_size=1, max_size=40), st.floats(-0.3, 0.3))
def test_a_slower_model_says_nothing_of_the_noise_between_starts(blocks: list[tuple[float, ...]], slow: float) -> None:
    here = between_variance([contrast_of(row) for row in blocks])
    moved = between_variance([contrast_of([a + slow, s, b + slow, t]) for a, s, b, t in blocks])
    swapped = between_variance([contrast_of([-b, t, -a, s]) for a, s, b, t in blocks])
    assert here >= 0
    assert moved == pytest.approx(here, abs=1e-9)
    assert swapped == pytest.approx(here, abs=1e-12)


@given(st.lists(rows, min_size=1, max_size=40), st.floats(1.0, 10.0))
def test_blocks_that_disagree_more_mean_more_noise(blocks: list[tuple[float, ...]], factor: float) -> None:
    here = between_variance([contrast_of(row) for row in blocks])
    wider = between_variance([contrast_of([factor * a, s, factor * b, t]) for a, s, b, t in blocks])
    assert wider >= here - 1e-12


@given(st.integers(BLOCK, 500), st.integers(0, 2**128))
def test_blocks_lie_inside_and_the_same_seed_draws_the_same(pairs: int, seed: int) -> None:
    starts = block_starts(pairs, seed)
    assert starts.shape == (DRAWS, pairs // BLOCK)
    assert starts.min() >= 0
    assert starts.max() <= pairs - BLOCK
    assert np.array_equal(starts, block_starts(pairs, seed))


@given(st.floats(1.0, 1e4), st.floats(1.0, 1e4), st.sampled_from([0.5, 0.95]))
def test_constant_times_have_no_error_to_speak_of(one: float, other: float, quantile: float) -> None:
    candidate, reference = np.full(100, one), np.full(100, other)
    found = paired_contrast(candidate, reference, quantile, block_starts(100, 0))
    assert found.stderr < 1e-9


@given(st.lists(st.floats(-0.02, 0.02), min_size=3, max_size=40), st.floats(-0.5, 0.5))
def test_a_slower_checkpoint_never_has_a_larger_p(past: list[float], log_time: float) -> None:
    here, slower = (slower_p(history_spread(x, past)) for x in (log_time, log_time + 0.01))
    assert slower <= here


# --- the error is honest


@settings(deadline=None)
@given(st.integers(0, 10_000))
def test_equal_sides_are_within_a_few_errors(seed: int) -> None:
    rng = np.random.default_rng(seed)
    both = 200 * np.exp(0.25 * rng.standard_normal((2, 200)))
    found = paired_contrast(both[0], both[1], 0.5, block_starts(200, seed))
    assert z2(found) < 6**2


def test_the_error_of_related_neighbours_is_that_of_repeated_measurements() -> None:
    rng = np.random.default_rng(7)
    found = [paired_contrast(*_slow_load(rng), 0.5, block_starts(200, i)) for i in range(150)]
    true_error = float(np.std([c.log_ratio for c in found]))
    assert 0.8 < float(np.mean([c.stderr for c in found])) / true_error < 1.25


def _slow_load(rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Two sides that share a load which changes slowly."""
    load = np.cumsum(0.02 * rng.standard_normal(200))
    candidate, reference = (np.exp(5.3 + load + 0.25 * rng.standard_normal(200)) for _ in range(2))
    return candidate, reference


@pytest.mark.shared_data
def test_requests_of_one_real_server_do_not_differ_from_each_other_and_two_engines_do() -> None:
    vllm, sglang = (_real_ttft_ms(engine) for engine in ("vllm", "sgl"))
    starts = block_starts(vllm.size // 2, 0)
    for side in (vllm, sglang):
        for quantile in (0.5, 0.95):
            assert z2(paired_contrast(side[::2], side[1::2], quantile, starts)) < 9.0
    found = paired_contrast(sglang, vllm, 0.5, block_starts(vllm.size, 0))
    assert slower_p(inflated([LatencyContrast(found, found)], SeriesNoise())) < 1e-6


def _real_ttft_ms(engine: str) -> FloatArray:
    """500 requests, in order of sending."""
    folder: Path = shared_data("latency/vllm_bench_serve")
    path = next(folder.glob(f"*__{engine}-sharegpt.json"))
    return 1000 * np.array(json.loads(path.read_text(encoding="utf-8"))["ttfts"])
