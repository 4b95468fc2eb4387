"""What `tracker compare RUN_A RUN_B` is told."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import pytest

from eval_jobs.errors import ConfigError
from eval_jobs.identity import screen_plan
from eval_jobs.types import EvalRecord, Screen, ServeSpec
from tests.compared_runs import to_compare, two_runs
from tests.unit.tracker.domain.judging import right, run_of
from tests.unit.tracker.domain.making import failure_of, record_of, suite_of
from tracker.domain.compare.run_text import remarks, summary_rows
from tracker.domain.compare.runs import By, RunComparison, compare_runs, tokens_of
from tracker.domain.compare.view import RunNoise, compare_parts
from tracker.domain.records.policy import Policy
from tracker.domain.records.types import CurvePoint

CLUSTERS = [f"passage {i // 4}" for i in range(40)]
LOWER = suite_of(["sums"], higher_is_better=False)


def compared(a: Sequence[EvalRecord], b: Sequence[EvalRecord], tokens: tuple[int, int] = (0, 0)) -> RunComparison:
    """Compare at equal steps, or at equal tokens if a step of each run has some."""
    left, right = (
        replace(to_compare(run), tokens={step: float(step * of_step) for step in (100, 500) if of_step})
        for run, of_step in zip((a, b), tokens, strict=True)
    )
    return compare_runs(left, right, min_coverage=0.95, by=By.TOKENS if any(tokens) else By.STEP)


def steps(found: RunComparison) -> list[tuple[int | None, int | None, bool]]:
    """Return the steps of both sides of each row, and whether it has a difference."""
    (one,) = found.benchmarks
    return [(row.a.step if row.a else None, row.b.step if row.b else None, bool(row.difference)) for row in one.rows]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (record_of(100, {"sums": right(30, 40)}), record_of(100, {"sums": right(20, 40)})),
        (record_of(100, {"sums": [0.1 * (i % 9) for i in range(40)]}), record_of(100, {"sums": right(20, 40)})),
        (record_of(100, {"sums": [None, *right(30, 39)]}), record_of(100, {"sums": [*right(20, 39), None]})),
        (
            record_of(100, {"sums": right(30, 40)}, clusters=CLUSTERS),
            record_of(100, {"sums": right(18, 40)}, clusters=CLUSTERS),
        ),
        (record_of(100, {"sums": right(30, 40)}, suite=LOWER), record_of(100, {"sums": right(9, 40)}, suite=LOWER)),
        (record_of(100, {"sums": right(40, 40)}), record_of(100, {"sums": right(40, 40)})),
    ],
    ids=["right or wrong", "graded", "errors", "clusters", "lower is better", "all right"],
)
def test_a_difference_of_runs_is_that_of_their_checkpoints(a: EvalRecord, b: EvalRecord) -> None:
    (expected,) = compare_parts([(a, b)], Policy(), RunNoise()).benchmarks
    (found,) = compared([a], [b]).benchmarks
    (row,) = found.rows
    assert row.a is not None
    assert row.b is not None
    assert row.difference is not None
    assert found.mean == row.difference == found.best.difference
    change = expected.comparison
    known = row.difference
    assert (known.n, known.delta, known.ci_low, known.ci_high) == pytest.approx(
        (change.n_common, change.delta, change.ci_low, change.ci_high)
    )
    assert (row.a.score, row.b.score) == pytest.approx((expected.before.mean, expected.after.mean))
    assert row.a.ci_low is not None
    assert row.a.ci_high is not None
    assert row.a.ci_low < row.a.ci_high
    assert found.higher_is_better == expected.higher_is_better


@pytest.mark.parametrize(
    ("a", "b", "tokens", "rows"),
    [
        ([9, 9, 9], [9, 9], (0, 0), [(100, 100, True), (200, 200, True), (300, None, False)]),
        ([9, 9, 9], [9, 9], (10, 20), [(100, None, False), (200, 100, True), (300, None, False), (None, 200, False)]),
        ([9, 9], [9, 9], (100, 101), [(100, 100, True), (200, 200, True)]),
        ([9, 9], [9, 9], (100, 105), [(100, None, False), (None, 100, False), (200, None, False), (None, 200, False)]),
        ([9, [None] * 200], [9, 9], (0, 0), [(100, 100, True), (None, 200, False)]),
        ([9, failure_of()], [9, 9], (0, 0), [(100, 100, True), (None, 200, False)]),
    ],
    ids=["by step", "twice the tokens", "about as many", "not as many", "no answers", "failed"],
)
def test_checkpoints_are_paired_at_equal_steps_or_tokens(
    a: list[int], b: list[int], tokens: tuple[int, int], rows: list[tuple[int | None, int | None, bool]]
) -> None:
    assert steps(compared(run_of(*a), run_of(*b), tokens)) == rows


def test_the_mean_over_all_steps_is_more_certain_than_one_step() -> None:
    (one,) = compared(run_of(150, 100, 150), run_of(100, 150, 120)).benchmarks
    assert one.mean is not None
    assert one.mean.delta == pytest.approx((-50 + 50 - 30) / 3 / 200)
    widths = [row.difference.ci_high - row.difference.ci_low for row in one.rows if row.difference is not None]
    assert one.mean.ci_high - one.mean.ci_low < min(widths)


def test_a_screened_checkpoint_has_no_score_of_the_whole_benchmark() -> None:
    whole = run_of(50, 50)
    screened = replace(whole[1], plan=screen_plan(whole[1].plan, Screen(samples=100)))
    screened = replace(screened, outcomes=tuple(replace(result, left_out=100) for result in whole[1].results))
    assert steps(compared([whole[0], screened], whole)) == [(100, 100, True), (None, 200, False)]


@pytest.mark.parametrize(
    ("b", "said"),
    [
        (record_of(100, {"facts": right(5)}), "no samples with a score in run"),
        (record_of(100, {"sums": failure_of()}), "no samples with a score in run"),
        (
            record_of(100, {"sums": right(5)}, suite=suite_of(["sums"], few_shot=3)),
            "few_shot (examples in the prompt) is 3",
        ),
        (record_of(100, {"sums": right(5)}, serve=ServeSpec(dtype="float32")), "serve.dtype is float32"),
        (record_of(200, {"sums": right(5)}), "no equal checkpoints by step in run"),
    ],
    ids=["another suite", "failed", "another prompt", "another dtype", "other steps"],
)
def test_what_cannot_be_compared_is_named_with_the_reason(b: EvalRecord, said: str) -> None:
    found = compared([record_of(100, {"sums": right(9)})], [b])
    assert any("sums: " in line and said in line for line in remarks(found)), list(remarks(found))


def test_runs_as_a_whole_show_their_best_checkpoint_and_latency() -> None:
    quick, slow = two_runs()
    found = compared(quick, slow)
    assert (found.a.best_step, found.b.best_step) == (600, 700)
    assert [one.best.a and one.best.a.step for one in found.benchmarks] == [600, 600, 700]
    rows = dict(summary_rows((found.a, found.b)))
    assert rows["steps"] == ("100 to 700", "200 to 700")
    times = [median(p.ttft_ms.p50 for r in run for p in r.probes if p.ttft_ms) for run in (quick, slow)]  # type: ignore[union-attr]
    assert rows["TTFT median, load default"] == tuple(f"{time_ms:.1f} ms" for time_ms in times)
    assert found.is_latency_alike


def test_latencies_of_another_engine_version_are_not_compared() -> None:
    quick, slow = two_runs()
    assert quick[0].engine is not None
    newer = replace(quick[0].engine, version="0.99")
    found = compared(quick, [replace(record, engine=newer) for record in slow])
    assert "cannot compare latency: tiny-forgetting and slower differ in" in " ".join(remarks(found))


@pytest.mark.parametrize(
    ("points", "tokens"),
    [
        ([], [None, None, None, None]),
        ([("train/loss", 10, 2.0)], [None, None, None, None]),
        ([("train/num_tokens", 100, 1000.0), ("train/num_tokens", 200, 3000.0)], [500, 1000, 2000, 6000]),
        ([("train/num_tokens", 100, 7.0), ("train/num_input_tokens_seen", 100, 1000.0)], [500, 1000, 1500, 4000]),
    ],
)
def test_training_tokens_come_from_the_log_of_the_trainer(
    points: list[tuple[str, int, float]], tokens: list[float | None]
) -> None:
    known = tokens_of(CurvePoint(key=key, step=step, value=value) for key, step, value in points)
    run = replace(to_compare(run_of(9)), tokens=known)
    assert run.tokens_at([50, 100, 150, 400]) == tokens


def test_equal_tokens_need_a_log_of_them() -> None:
    with pytest.raises(ConfigError, match="logged no token counts"):
        compared(run_of(9), run_of(9), (0, 5))
