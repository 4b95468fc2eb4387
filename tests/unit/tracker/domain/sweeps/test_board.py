"""What came of a turn: the order of the leaderboard, intervals that mean something, and latency by load."""

from dataclasses import replace

import numpy as np
import pytest

from eval_jobs.errors import ServerDied
from eval_jobs.run import record_of_failure
from eval_jobs.types import EvalPlan, EvalRecord, EvalResult, ProbeResult, SampleStatus
from tests.sweeping import CHECKPOINTS, LOADS, NOW, RECORDED, SUITE, answered, sweep_of
from tracker.domain.calibration.noise import share_interval
from tracker.domain.scores.statistics.paired import interval, paired_test
from tracker.domain.sweeps.board import Board, BoardScore, board_of, first_text, variant_text, without_texts
from tracker.domain.sweeps.matrix import plans_of
from tracker.domain.sweeps.types import Turn, TurnState

PLANS = plans_of(sweep_of(loads=LOADS), CHECKPOINTS[:2], run=RECORDED.run_id, due_at=NOW)
TURN = Turn(sweep="nightly", due_at=NOW, state=TurnState.RUNNING, plans=PLANS)
ONE = replace(SUITE, benchmarks=SUITE.benchmarks[:1])


def board(*records: EvalRecord) -> Board:
    return board_of(TURN, {record.plan.id: record for record in records})


def score_of(record: EvalRecord) -> BoardScore:
    turn = replace(TURN, plans=(record.plan,))
    return board_of(turn, {record.plan.id: record}).rows[0].scores[0]


def one_plan() -> EvalPlan:
    return plans_of(sweep_of(suite=ONE, axes={}), CHECKPOINTS[:1], run=RECORDED.run_id, due_at=NOW)[0]


def changed(record: EvalRecord, **changes: object) -> EvalRecord:
    outcome = record.outcomes[0]
    assert isinstance(outcome, EvalResult)
    return replace(record, outcomes=(replace(outcome, **changes),))  # type: ignore[arg-type]


def test_the_best_mean_comes_first_and_what_was_not_asked_or_failed_last() -> None:
    died = record_of_failure(PLANS[2], ServerDied("gone", hint="look"), started_at=NOW, finished_at=NOW)
    found = board(answered(PLANS[0], right=5), answered(PLANS[1], right=9), died)
    assert [row.plan_id for row in found.rows[:2]] == [PLANS[1].id, PLANS[0].id]
    assert [row.mean for row in found.rows[2:]] == [None, None]
    assert found.unanswered == 1
    failed = next(row for row in found.rows if row.plan_id == PLANS[2].id)
    assert {(s.mean, s.failure) for s in failed.scores} == {(None, "E-SERVE-DIED: gone")}


def test_the_interval_of_right_and_wrong_answers_is_exact_also_where_all_are_right() -> None:
    score = score_of(answered(one_plan(), right=7, of=10))
    assert (score.low, score.high) == pytest.approx(share_interval(7, 10))
    perfect = score_of(answered(one_plan(), right=10, of=10))
    assert (perfect.mean, perfect.high) == (1.0, 1.0)
    assert perfect.low == pytest.approx(share_interval(10, 10)[0])
    assert score_of(answered(one_plan(), right=1, of=1)).low == pytest.approx(0.025)


def test_questions_that_belong_together_count_as_few_as_they_are() -> None:
    record = answered(one_plan(), right=10, of=20)
    (result,) = record.outcomes
    assert isinstance(result, EvalResult)
    samples = tuple(replace(s, cluster_id=f"passage {n // 5}") for n, s in enumerate(result.samples))
    clustered = score_of(changed(record, samples=samples))
    alone = score_of(record)
    assert None not in (clustered.low, clustered.high, alone.low, alone.high)
    assert clustered.high - clustered.low > 1.5 * (alone.high - alone.low)  # type: ignore[operator]
    same = tuple(replace(s, score=1.0) for s in samples)
    flat = score_of(changed(record, samples=same))
    assert flat.low == pytest.approx(share_interval(4, 4)[0])


def test_a_share_has_no_interval_beyond_all_and_nothing() -> None:
    (result,) = answered(one_plan(), right=19, of=20).outcomes
    assert isinstance(result, EvalResult)
    samples = tuple(replace(s, cluster_id=f"passage {n // 5}") for n, s in enumerate(result.samples))
    high = score_of(changed(answered(one_plan()), samples=samples))
    parts = tuple(replace(s, score=0.05 * float(n == 0)) for n, s in enumerate(result.samples))
    low = score_of(changed(answered(one_plan()), samples=parts))
    assert (high.high, low.low) == (1.0, 0.0)
    assert high.low is not None
    assert high.low < 0.95


def test_each_row_is_held_against_the_first_that_was_asked_on_the_same_questions() -> None:
    found = board(answered(PLANS[0], right=5), answered(PLANS[1], right=9))
    assert (found.first, found.rows[0].plan_id) == (PLANS[0].id, PLANS[1].id)
    rows = {row.plan_id: row for row in found.rows}
    assert {s.change for s in rows[PLANS[0].id].scores} == {None}
    for score in rows[PLANS[1].id].scores:
        assert score.change is not None
        assert score.change.delta == pytest.approx(0.4)
        # Ten pairs, of which four differ: as `tracker compare` would say it.
        expected = interval(paired_test(np.array([1.0] * 9 + [0]), np.array([1.0] * 5 + [0] * 5)).spread)
        assert (score.change.low, score.change.high) == pytest.approx(expected)
        assert score.change.questions == 10
    assert first_text(found) == f"{RECORDED.run_id}@100, temperature 0"


def test_a_difference_is_turned_round_where_lower_is_better_and_lies_where_it_can() -> None:
    turned = [
        replace(r, outcomes=tuple(replace(o, higher_is_better=False) for o in r.outcomes if isinstance(o, EvalResult)))
        for r in (answered(PLANS[0], right=10), answered(PLANS[1], right=0))
    ]
    changes = [score.change for row in board(*turned).rows for score in row.scores if score.change is not None]
    assert changes
    assert {(change.delta, change.high) for change in changes} == {(1.0, 1.0)}


def test_other_questions_a_failure_and_no_answer_yet_have_no_difference() -> None:
    first, other = answered(PLANS[0]), answered(PLANS[1])
    outcomes = tuple(
        replace(o, samples=tuple(replace(s, sample_id=f"please {s.sample_id}") for s in o.samples))
        for o in other.outcomes
        if isinstance(o, EvalResult)
    )
    died = record_of_failure(PLANS[0], ServerDied("gone", hint="look"), started_at=NOW, finished_at=NOW)
    for found in (board(first, replace(other, outcomes=outcomes)), board(died, other), board(other)):
        assert {score.change for row in found.rows for score in row.scores} == {None}
        assert first_text(found) == ""


def test_an_answer_without_a_score_is_coverage_and_no_zero() -> None:
    record = answered(one_plan(), right=10, of=10)
    (result,) = record.outcomes
    assert isinstance(result, EvalResult)
    broken = tuple(
        replace(s, score=None, status=SampleStatus.ERROR) if n < 4 else s for n, s in enumerate(result.samples)
    )
    score = score_of(changed(record, samples=broken))
    assert (score.mean, score.questions, score.coverage) == (1.0, 6, 0.6)
    nothing = score_of(
        changed(record, samples=tuple(replace(s, score=None, status=SampleStatus.ERROR) for s in broken))
    )
    assert (nothing.mean, nothing.failure) == (None, "no sample has a score")


def test_where_lower_is_better_the_mean_turns_it_round() -> None:
    record = answered(one_plan(), right=2, of=10)
    turned = changed(record, higher_is_better=False)
    found = board_of(replace(TURN, plans=(record.plan,)), {record.plan.id: turned})
    assert found.rows[0].mean == pytest.approx(0.8)
    assert found.rows[0].scores[0].mean == pytest.approx(0.2)


def test_a_curve_rises_with_the_load_and_a_load_that_failed_is_said() -> None:
    record = answered(PLANS[0])
    first = record.probes[0]
    assert isinstance(first, ProbeResult)
    broken = replace(first, completed=0, failed=8, ttft_ms=None, first_error="HTTP 500")
    found = board(replace(record, probes=(record.probes[1], broken)))
    (curve,) = found.curves
    assert [probe.load.name for probe in curve.probes] == ["c4"]
    assert [failure.message for failure in curve.failures] == ["no request completed: HTTP 500"]
    both = board(replace(record, probes=record.probes[::-1])).curves[0].probes
    assert [probe.load.concurrency for probe in both] == [1, 4]
    assert both[0].output_tokens_per_s < both[1].output_tokens_per_s


def test_what_is_kept_holds_scores_and_no_texts() -> None:
    kept = without_texts(answered(PLANS[0]))
    assert kept.outcomes != answered(PLANS[0]).outcomes
    assert board(kept).rows == board(answered(PLANS[0])).rows


def test_a_variant_in_words() -> None:
    assert variant_text((("temperature", "0.7"), ("prompt", "cot"))) == "temperature 0.7, prompt cot"
    assert variant_text(()) == "suite defaults"
