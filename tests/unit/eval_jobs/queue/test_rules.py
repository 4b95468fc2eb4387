from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from eval_jobs.queue.rules import (
    MAX_ATTEMPTS,
    MAX_LOST,
    is_worn_out,
    may_pass,
    retry_delay_s,
    should_retry,
    tries,
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


def claim(attempt: int = 1, lost: int = 0) -> Claim:
    return Claim(plan=RECORD.plan, worker="a", attempt=attempt, lost=lost, lease_until=NOW)


def test_failures_that_may_pass_are_tried_four_times() -> None:
    record = failed(RECORD, [True, True])
    assert [should_retry(record, claim(n)) for n in (1, 2, 3, 4, 5)] == [True, True, True, False, False]
    assert MAX_ATTEMPTS == 4


def test_one_failure_that_may_pass_is_enough_beside_scores_and_lasting_failures() -> None:
    failures = failed(RECORD, [True, False])
    assert isinstance(RECORD.outcomes[0], EvalResult)
    assert should_retry(failures, claim())
    assert should_retry(replace(failures, outcomes=(*failures.outcomes, RECORD.outcomes[0])), claim())


def test_failures_that_will_not_pass_end_it() -> None:
    assert not should_retry(failed(RECORD, [False, False]), claim())
    assert not may_pass(failed(RECORD, [False]))


def test_a_plan_without_failures_is_never_tried_again() -> None:
    assert not should_retry(RECORD, claim())
    assert not should_retry(failed(RECORD, []), claim())


def test_a_worker_that_was_killed_used_up_no_try() -> None:
    assert tries(claim(attempt=6, lost=2)) == 4
    assert should_retry(failed(RECORD, [True]), claim(attempt=5, lost=2))


def test_the_wait_before_the_next_try_grows() -> None:
    assert [retry_delay_s(tried) for tried in (1, 2, 3)] == [10.0, 30.0, 90.0]


def test_a_plan_that_brought_three_workers_down_is_not_tried_again() -> None:
    assert [is_worn_out(claim(9, lost=n)) for n in range(MAX_LOST + 2)] == [False, False, False, True, True]
