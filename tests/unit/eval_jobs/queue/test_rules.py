from dataclasses import replace
from datetime import UTC, datetime

import pytest

from eval_jobs.errors import ServerDied, ServerKilled
from eval_jobs.identity import sweep_plan
from eval_jobs.queue.rules import (
    MAX_ATTEMPTS,
    MAX_CRASHES,
    MAX_STALLED,
    is_worn_out,
    lacks_latency,
    may_pass,
    may_skip,
    place_of,
    poisoned,
    retry_delay_s,
    retry_note,
    should_retry,
    tries,
)
from eval_jobs.queue_types import Backlog, Claim, Crash
from eval_jobs.records.progress import MAX_TEXT_CHARS, Progress, Stage
from eval_jobs.types import BenchmarkFailure, EvalRecord, EvalResult, ProbeFailure, SweepCell
from tests.contract.queues import plan_at
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


def test_a_latency_that_is_missing_beside_all_scores_is_tried_once_more() -> None:
    failure = ProbeFailure(
        load=RECORD.plan.loads[0], code="E-PROBE", message="the client was killed", hint="see its log"
    )
    no_latency = replace(RECORD, probes=(failure,))
    assert lacks_latency(no_latency)
    assert [should_retry(no_latency, claim(n)) for n in (1, 2)] == [True, False]
    assert not should_retry(replace(no_latency, outcomes=failed(RECORD, [False]).outcomes), claim())
    assert not should_retry(RECORD, claim())


def test_an_engine_that_died_of_an_error_gets_one_more_start_and_one_that_was_killed_as_many_as_others() -> None:
    (failure,) = failed(RECORD, [True]).outcomes
    assert isinstance(failure, BenchmarkFailure)
    died, killed = (replace(failure, code=error.code) for error in (ServerDied, ServerKilled))
    for outcomes, tried in (((died, died), 2), ((killed,), 4), ((died, killed), 4)):
        record = replace(RECORD, outcomes=outcomes)
        assert [should_retry(record, claim(n)) for n in range(1, 6)] == [n < tried for n in range(1, 6)]


def test_before_the_next_attempt_its_time_the_reason_and_the_log_are_shown() -> None:
    lasting, passing = failed(RECORD, [False, True]).outcomes
    assert isinstance(passing, BenchmarkFailure)
    assert RECORD.engine is not None
    why = replace(passing, code="E-SERVE-DIED", message=f"the engine died (RuntimeError: no) {'x ' * 300}", hint="ask")
    record = replace(RECORD, outcomes=(lasting, why), engine=replace(RECORD.engine, log="/logs/engine-1.log"))
    note = retry_note(record, claim(2), NOW)
    assert note.startswith("attempt 3 at 12:00:30 UTC: E-SERVE-DIED: the engine died (RuntimeError: no) x x")
    assert note.endswith("x...; log: /logs/engine-1.log")
    assert len(note) <= MAX_TEXT_CHARS
    assert retry_note(replace(record, engine=None), claim(2), NOW).endswith("...; ask")


def test_one_failure_that_may_pass_is_enough_beside_scores_and_lasting_failures() -> None:
    failures = failed(RECORD, [True, False])
    assert isinstance(RECORD.outcomes[0], EvalResult)
    assert should_retry(failures, claim())
    assert should_retry(replace(failures, outcomes=(*failures.outcomes, RECORD.outcomes[0])), claim())


def test_what_will_not_pass_or_did_not_fail_is_never_tried_again() -> None:
    assert not any(should_retry(r, claim()) for r in (failed(RECORD, [False, False]), RECORD, failed(RECORD, [])))
    assert not may_pass(failed(RECORD, [False]))
    assert [retry_delay_s(tried) for tried in (1, 2, 3)] == [10.0, 30.0, 90.0], "the waits between tries grow"


def test_a_worker_that_was_killed_used_up_no_try() -> None:
    assert tries(claim(attempt=6, lost=2)) == 4
    assert should_retry(failed(RECORD, [True]), claim(attempt=5, lost=2))


def test_a_plan_that_brought_three_workers_down_is_not_tried_again() -> None:
    progress = Progress(stage=Stage.EVALUATING, benchmarks=("sums",), done=7, total=30)
    crash = Crash(worker="node7:4242 log=/logs/worker-4242.log", progress=progress, claimed_at=NOW)
    worn = [replace(claim(), crashes=(crash,) * n) for n in range(MAX_CRASHES + 2)]
    assert [is_worn_out(one) for one in worn] == [False, False, False, True, True]
    error = poisoned(worn[3])
    assert error.message.count("node7:4242 log=/logs/worker-4242.log at 'sums 7/30'") == 3
    assert (error.code, error.retryable) == ("E-PLAN-POISONED", False)


def test_a_plan_whose_workers_are_killed_without_end_is_not_tried_for_ever() -> None:
    assert not is_worn_out(replace(claim(), stalled=MAX_STALLED - 1))
    worn = replace(claim(), stalled=MAX_STALLED)
    assert is_worn_out(worn)
    assert "30 consecutive workers were killed" in poisoned(worn).message


def test_random_kills_set_no_plan_aside() -> None:
    """Of 1000 plans that fill the time between two kills half, the chance that one is hit 30 times in a row."""
    assert 1000 * 0.5**MAX_STALLED < 1e-5


def test_the_place_of_a_plan_follows_the_order_and_what_is_kept_comes_first() -> None:
    plans = [plan_at(step) for step in (0, 7, 10**18 - 1)]
    first, second, last = plans
    assert sorted(plans, key=lambda p: place_of(p, Backlog.OLDEST, keep=False)) == plans
    assert sorted(plans, key=lambda p: place_of(p, Backlog.NEWEST, keep=False)) == plans[::-1]
    assert place_of(first, Backlog.NEWEST, keep=True) < place_of(last, Backlog.NEWEST, keep=False)
    assert place_of(second, Backlog.OLDEST, keep=True) == place_of(second, Backlog.OLDEST, keep=False)
    allowed = {(backlog, keep) for backlog in Backlog for keep in (False, True) if may_skip(backlog, keep=keep)}
    assert allowed == {(Backlog.NEWEST, False)}


@pytest.mark.parametrize("backlog", Backlog)
@pytest.mark.parametrize("keep", [False, True])
def test_what_a_sweep_asks_comes_after_every_checkpoint_of_the_run_and_by_step(backlog: Backlog, *, keep: bool) -> None:
    first, last = (sweep_plan(plan_at(step), SweepCell(sweep="s", target="t")) for step in (0, 10**18 - 1))
    own = max(place_of(plan_at(step), backlog, keep=keep) for step in (0, 10**18 - 1))
    assert own < place_of(first, backlog, keep=keep) < place_of(last, backlog, keep=keep) < 2**63
