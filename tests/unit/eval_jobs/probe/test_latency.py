from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_jobs.probe.latency import Measurement, Timeline, percentiles, summarize, tpot_s
from eval_jobs.types import Percentiles, ProbeLoad

LOAD = ProbeLoad(requests=4)

TWO_TOKENS_AT_ONCE = Timeline(sent_s=10.0, events_s=(10.1, 10.2, 10.5), output_tokens=5)
ONE_TOKEN = Timeline(sent_s=11.0, events_s=(11.3,), output_tokens=1)
FAILED = Timeline(sent_s=12.0, events_s=(12.9,), output_tokens=3, error="HTTP 500: no")

finite = st.floats(min_value=0.0, max_value=1e6, allow_nan=False)
gaps = st.lists(st.floats(min_value=0.0, max_value=100.0), min_size=1, max_size=20)


def timeline(sent_s: float, steps: list[float], tokens: int | None) -> Timeline:
    return Timeline(sent_s=sent_s, events_s=tuple(sent_s + t for t in np.cumsum(steps)), output_tokens=tokens)


def test_figures_computed_by_hand() -> None:
    result = summarize(LOAD, Measurement(timelines=(TWO_TOKENS_AT_ONCE, ONE_TOKEN, FAILED), duration_s=2.0))
    assert near(result.ttft_ms, p50=200, p90=280, p95=290, p99=298, mean=200)  # of 100 and 300
    assert near(result.e2e_ms, p50=400, p90=480, p95=490, p99=498, mean=400)  # of 500 and 300
    assert near(result.tpot_ms, p50=100, p90=100, p95=100, p99=100, mean=100)  # (500 - 100) / (5 - 1)
    assert near(result.itl_ms, p50=200, p90=280, p95=290, p99=298, mean=200)  # gaps of 100 and 300
    assert (result.completed, result.failed, result.first_error) == (2, 1, "HTTP 500: no")
    assert (result.output_tokens, result.requests_per_s, result.output_tokens_per_s) == (6, 1.0, 3.0)


def test_every_completed_request_keeps_its_own_times_and_its_place() -> None:
    shuffled = (ONE_TOKEN, FAILED, TWO_TOKENS_AT_ONCE, replace(ONE_TOKEN, sent_s=13.0, events_s=(13.1,)))
    result = summarize(LOAD, Measurement(timelines=shuffled, duration_s=2.0))
    assert [timing.position for timing in result.requests] == [0, 1, 3]
    assert [timing.ttft_ms for timing in result.requests] == pytest.approx([100, 300, 100])
    assert [timing.e2e_ms for timing in result.requests] == pytest.approx([500, 300, 100])
    assert [timing.tpot_ms is None for timing in result.requests] == [False, True, True]
    assert result.requests[0].tpot_ms == pytest.approx(100)


def near(found: Percentiles | None, **values: float) -> bool:
    return found is not None and asdict(found) == pytest.approx(values, abs=1e-6)


def test_nothing_completed_gives_none_and_counts_the_failures() -> None:
    result = summarize(LOAD, Measurement(timelines=(FAILED, FAILED), duration_s=1.0))
    assert (result.ttft_ms, result.tpot_ms, result.itl_ms, result.e2e_ms) == (None, None, None, None)
    assert (result.completed, result.failed, result.requests_per_s, result.output_tokens) == (0, 2, 0.0, 0)
    never = summarize(LOAD, Measurement(timelines=(), duration_s=0.0))
    assert (never.completed, never.failed, never.requests_per_s, never.output_tokens_per_s) == (0, 0, 0.0, 0.0)
    silent = summarize(LOAD, Measurement(timelines=(Timeline(sent_s=0.0),), duration_s=1.0))
    assert (silent.failed, silent.first_error) == (1, "no event in the stream")


def test_tpot_counts_tokens_not_events_and_needs_more_than_one() -> None:
    assert tpot_s(Timeline(sent_s=0.0, events_s=(1.0, 2.0), output_tokens=11)) == pytest.approx(0.1)
    for tokens in (None, 0, 1):
        assert tpot_s(Timeline(sent_s=0.0, events_s=(0.1, 0.4), output_tokens=tokens)) is None


@given(st.lists(finite, min_size=1, max_size=200))
def test_percentiles_are_numpys(values: list[float]) -> None:
    found = percentiles(values)
    assert found is not None
    expected = np.percentile(values, [50, 90, 95, 99])
    assert [found.p50, found.p90, found.p95, found.p99] == pytest.approx(list(expected), rel=1e-9, abs=1e-9)
    assert found.mean == pytest.approx(float(np.mean(values)), rel=1e-9, abs=1e-9)


@given(st.lists(finite, min_size=1))
def test_percentiles_are_ordered_and_within_the_values(values: list[float]) -> None:
    found = percentiles(values)
    assert found is not None
    tolerance = 1e-9 * max(values)
    assert min(values) <= found.p50 <= found.p90 + tolerance
    assert found.p90 <= found.p95 + tolerance
    assert found.p95 <= found.p99 + tolerance
    assert found.p99 <= max(values) + tolerance


@given(gaps, st.integers(2, 100))
def test_ttft_plus_tpot_times_the_other_tokens_is_e2e(steps: list[float], tokens: int) -> None:
    one = timeline(5.0, steps, tokens)
    tpot = tpot_s(one)
    assert tpot is not None
    assert one.ttft_s + tpot * (tokens - 1) == pytest.approx(one.e2e_s, abs=1e-6)


@given(st.lists(st.tuples(gaps, st.integers(1, 50)), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_requests_changes_nothing(specs: list[tuple[list[float], int]], random: object) -> None:
    timelines = [timeline(float(n), steps, tokens) for n, (steps, tokens) in enumerate(specs)]
    shuffled = sorted(timelines, key=lambda _: random.random())  # type: ignore[attr-defined]
    first = summarize(LOAD, Measurement(timelines=tuple(timelines), duration_s=3.0))
    second = summarize(LOAD, Measurement(timelines=tuple(shuffled), duration_s=3.0))
    assert first == second


@given(gaps, st.lists(gaps, max_size=5))
def test_failed_requests_move_no_figure(steps: list[float], failures: list[list[float]]) -> None:
    good = timeline(0.0, steps, 7)
    bad = [Timeline(sent_s=0.0, events_s=timeline(0.0, s, 3).events_s, error="cut") for s in failures]
    alone = summarize(LOAD, Measurement(timelines=(good,), duration_s=1.0))
    mixed = summarize(LOAD, Measurement(timelines=(good, *bad), duration_s=1.0))
    for figure in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
        assert getattr(alone, figure) == getattr(mixed, figure)
    assert mixed.failed == len(failures)
