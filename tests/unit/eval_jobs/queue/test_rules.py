from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_jobs.queue.rules import (
    MAX_ATTEMPTS,
    MAX_LOST,
    PlanState,
    is_claimable,
    is_worn_out,
    lease_end,
    retry_delay_s,
    should_retry,
)
from eval_jobs.types import BenchmarkFailure, Claim, EvalRecord, EvalResult
from tests.records import forgetting_run

NOW = datetime(2026, 3, 14, 12, 0, tzinfo=UTC)
RECORD = forgetting_run(checkpoints=1, samples=2).records[0]


def failed(record: EvalRecord, retryable: list[bool]) -> EvalRecord:
    failures = [
        BenchmarkFailure(benchmark=f"b{n}", fingerprint="", code="E", message="", hint="", retryable=one)
        for n, one in enumerate(retryable)
    ]
    return replace(record, outcomes=tuple(failures))


def test_a_record_of_nothing_but_passing_failures_is_tried_three_times() -> None:
    record = failed(RECORD, [True, True])
    assert [should_retry(record, attempt) for attempt in (1, 2, 3, 4)] == [True, True, False, False]


def test_one_failure_that_will_not_pass_ends_it() -> None:
    assert not should_retry(failed(RECORD, [True, False]), attempt=1)


def test_one_score_is_worth_keeping() -> None:
    failures = failed(RECORD, [True, True])
    assert isinstance(RECORD.outcomes[0], EvalResult)
    assert not should_retry(replace(failures, outcomes=(*failures.outcomes, RECORD.outcomes[0])), attempt=1)


def test_a_plan_without_benchmarks_is_never_tried_again() -> None:
    assert not should_retry(failed(RECORD, []), attempt=1)


def test_the_wait_before_the_next_try_grows() -> None:
    assert [retry_delay_s(attempt) for attempt in (1, 2, 3)] == [10.0, 30.0, 90.0]


@pytest.mark.parametrize("state", [PlanState.FINISHED, PlanState.ACKNOWLEDGED])
def test_what_is_done_is_never_claimed_again(state: PlanState) -> None:
    assert not is_claimable(state, NOW - timedelta(days=1), NOW)


@given(st.timedeltas(timedelta(seconds=-100), timedelta(seconds=100)))
def test_a_running_plan_is_claimable_exactly_from_the_end_of_its_lease(offset: timedelta) -> None:
    assert is_claimable(PlanState.RUNNING, NOW, NOW + offset) == (offset >= timedelta())


@given(st.floats(min_value=0.001, max_value=1e6))
def test_a_fresh_lease_holds_now_and_not_for_ever(lease_s: float) -> None:
    end = lease_end(NOW, lease_s)
    assert not is_claimable(PlanState.RUNNING, end, NOW)
    assert is_claimable(PlanState.RUNNING, end, end)


def test_a_plan_that_brought_three_workers_down_is_not_tried_again() -> None:
    claim = Claim(plan=RECORD.plan, worker="a", attempt=9, lease_until=NOW)
    assert [is_worn_out(replace(claim, lost=n)) for n in range(MAX_LOST + 2)] == [False, False, False, True, True]
    assert MAX_ATTEMPTS == 3
