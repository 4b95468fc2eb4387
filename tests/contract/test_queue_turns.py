"""Whose turn it is, and what is skipped: the rules of `ports.Queue` over the fake, SQLite and PostgreSQL."""

from datetime import timedelta

import pytest

from eval_jobs.identity import sweep_plan
from eval_jobs.ports import Queue
from eval_jobs.queue_types import Backlog
from eval_jobs.types import EvalPlan, SweepCell
from tests.contract.queues import (
    AFTER_LEASE,
    LEASE_END,
    NOW,
    PLANS,
    RECORDS,
    Reopen,
    claim,
    ids,
    nothing_to_claim,
    plan_at,
    record_of,
    waiting,
)


def put(queue: Queue, *steps: int, run_id: str = "run", backlog: Backlog = Backlog.NEWEST) -> list[EvalPlan]:
    plans = [plan_at(step, run_id) for step in steps]
    for plan in plans:
        queue.add(plan, now=NOW, backlog=backlog)
    return plans


def claimed_steps(queue: Queue, count: int) -> list[int]:
    return [claim(queue, f"w{number}").plan.checkpoint.step for number in range(count)]


@pytest.mark.parametrize(
    ("backlog", "order"),
    [(Backlog.NEWEST, [30, 20, 10]), (Backlog.ALL, [30, 20, 10]), (Backlog.OLDEST, [10, 20, 30])],
)
def test_any_worker_obeys_the_order_that_the_plans_were_added_with(
    reopen: Reopen, backlog: Backlog, order: list[int]
) -> None:
    put(reopen(), 20, 10, 30, backlog=backlog)
    assert claimed_steps(reopen(), 3) == order


def test_a_plan_to_be_kept_comes_before_newer_ones_but_not_before_lower_steps(queue: Queue) -> None:
    put(queue, 20, 30)
    queue.add(plan_at(10), now=NOW, backlog=Backlog.NEWEST, keep=True)
    assert claimed_steps(queue, 3) == [10, 30, 20]
    put(queue, 10, 20, run_id="other", backlog=Backlog.OLDEST)
    queue.add(plan_at(30, "other"), now=NOW, backlog=Backlog.OLDEST, keep=True)
    assert claimed_steps(queue, 3) == [10, 20, 30]


def test_runs_take_turns_whatever_their_steps_and_orders_are(queue: Queue) -> None:
    put(queue, 1000, 2000, run_id="ahead")
    put(queue, 1, 2, run_id="behind")
    put(queue, 5, 6, run_id="steady", backlog=Backlog.OLDEST)
    taken = []
    for second in range(6):
        now = NOW + timedelta(seconds=second)
        got = queue.claim(worker=str(second), now=now, lease_until=now + timedelta(seconds=60))
        assert got is not None
        taken.append((got.plan.checkpoint.run_id, got.plan.checkpoint.step))
    first_round = [("ahead", 2000), ("behind", 2), ("steady", 5)]
    assert taken == [*first_round, ("ahead", 1000), ("behind", 1), ("steady", 6)]


def test_the_oldest_of_too_many_are_skipped_and_told_until_they_are_noted(queue: Queue, reopen: Reopen) -> None:
    ten, twenty, thirty, forty = put(queue, 10, 20, 30, 40)
    assert queue.skip("run", max_waiting=2) == 2
    assert queue.skip("run", max_waiting=2) == 0
    assert waiting(queue) == ids(forty, thirty)
    assert reopen().skipped() == (ten, twenty)
    assert queue.state().counts["skipped"] == 2
    queue.leave_out(ten.id)
    queue.leave_out(ten.id)
    assert queue.skipped() == (twenty,)
    queue.leave_out(twenty.id)
    assert queue.skipped() == ()
    assert queue.state().counts == {"waiting": 2, "running": 0, "finished": 0, "skipped": 0}
    assert claimed_steps(queue, 2) == [40, 30]
    assert nothing_to_claim(queue)


def test_nothing_is_skipped_that_runs_is_finished_is_kept_or_is_of_another_run(queue: Queue) -> None:
    queue.add(RECORDS[0].plan, now=NOW, backlog=Backlog.NEWEST)
    done, run_id = claim(queue), RECORDS[0].plan.checkpoint.run_id
    assert queue.finish(done, RECORDS[0], now=NOW)
    (running,) = put(queue, 150, run_id=run_id)
    claim(queue, "b")
    queue.add(plan_at(101, run_id), now=NOW, backlog=Backlog.NEWEST, keep=True)
    surplus, newest = put(queue, 200, 300, run_id=run_id)
    put(queue, 1, 2, 3, run_id="other")
    put(queue, 4, 5, 6, run_id="all", backlog=Backlog.ALL)
    assert queue.skip(run_id, max_waiting=1) == 2
    assert queue.skipped() == (surplus, newest)
    assert queue.skip("all", max_waiting=1) == 0
    assert [one.plan.id for one in queue.state().running] == [running.id]
    assert queue.finished() == (RECORDS[0],)
    assert sorted(claimed_steps(queue, 7)) == [1, 2, 3, 4, 5, 6, 101]
    assert nothing_to_claim(queue)


def test_a_checkpoint_is_skipped_with_all_its_waiting_plans_and_counts_once(queue: Queue) -> None:
    plans = [plan_at(step, suite=suite) for step in (10, 20, 30) for suite in ("one", "two")]
    for plan in plans:
        queue.add(plan, now=NOW, backlog=Backlog.NEWEST)
    assert queue.skip("run", max_waiting=3) == 0
    assert queue.skip("run", max_waiting=2) == 2
    assert sorted(ids(*queue.skipped())) == sorted(ids(*plans[:2]))


def test_a_plan_whose_worker_died_waits_in_its_turn_and_may_be_skipped(queue: Queue) -> None:
    (old,) = put(queue, 10)
    claim(queue)
    put(queue, 20, 30)
    assert claim(queue, "b", AFTER_LEASE).plan.checkpoint.step == 30
    assert queue.skip("run", max_waiting=1) == 1
    assert queue.skipped() == (old,)


def test_what_was_skipped_stays_so_when_it_is_added_alike_and_waits_again_when_nothing_is_skipped(queue: Queue) -> None:
    ten, twenty, thirty = put(queue, 10, 20, 30)
    queue.skip("run", max_waiting=1)
    queue.leave_out(ten.id)
    put(queue, 10, 20, 30)
    assert waiting(queue) == ids(thirty)
    assert queue.skipped() == (twenty,)
    assert not queue.add(ten, now=NOW, backlog=Backlog.ALL)
    assert not queue.add(twenty, now=NOW, backlog=Backlog.OLDEST)
    assert sorted(waiting(queue)) == sorted(ids(ten, twenty, thirty))
    assert queue.skipped() == ()
    assert queue.skip("run", max_waiting=1) == 0


def test_adding_a_waiting_plan_again_changes_its_turn(queue: Queue) -> None:
    put(queue, 10, 20, 30)
    put(queue, 10, 20, 30, backlog=Backlog.OLDEST)
    assert queue.skip("run", max_waiting=1) == 0
    assert claimed_steps(queue, 3) == [10, 20, 30]


def test_leaving_out_what_is_not_skipped_changes_nothing(queue: Queue) -> None:
    (plan,) = put(queue, 10)
    queue.leave_out(plan.id)
    queue.leave_out("unknown")
    assert claim(queue).plan == plan
    queue.leave_out(plan.id)
    assert queue.state().counts["running"] == 1


def test_steps_of_any_size_have_a_place(queue: Queue) -> None:
    put(queue, 10**18 - 1, 3_000_000_000, 0)
    assert claimed_steps(queue, 3) == [10**18 - 1, 3_000_000_000, 0]


def test_the_state_counts_everything_on_its_way_and_names_the_first(queue: Queue) -> None:
    put(queue, *range(1, 31))
    put(queue, 5, run_id="zebra")
    claim(queue)
    state = queue.state()
    assert [one.step for one in state.waiting] == list(range(29, 9, -1))
    assert state.unfinished == {"run": 30, "zebra": 1}
    assert state.counts == {"waiting": 30, "running": 1, "finished": 0, "skipped": 0}


def test_a_lease_given_before_the_clock_was_set_back_does_not_block_a_plan_for_hours(queue: Queue) -> None:
    """Its worker lives as long as it says so within the time of a lease; else another one takes the plan."""
    put(queue, 10)
    ahead = NOW + timedelta(hours=5)
    living = queue.claim(worker="a", now=ahead, lease_until=ahead + timedelta(seconds=60))
    assert living is not None
    assert nothing_to_claim(queue)  # it ends at LEASE_END now
    assert nothing_to_claim(queue, LEASE_END - timedelta(seconds=1))
    assert queue.extend(living, lease_until=LEASE_END + timedelta(seconds=50))
    assert nothing_to_claim(queue, LEASE_END)
    assert claim(queue, "b", LEASE_END + timedelta(seconds=50)).attempt == 2


def test_a_plan_of_a_sweep_is_told_from_the_runs_own(queue: Queue) -> None:
    of_sweep = sweep_plan(PLANS[0], SweepCell(sweep="nightly", target="r@100"))
    queue.add(of_sweep, now=NOW)
    (own,) = put(queue, 100, run_id="zebra")
    assert [(w.plan_id, w.is_sweep) for w in queue.state().waiting] == [(own.id, False), (of_sweep.id, True)]


def test_steps_that_only_a_sweep_is_about_are_told_apart_while_it_waits_and_while_it_runs(queue: Queue) -> None:
    plan = plan_at(100, "run")
    queue.add(sweep_plan(plan, SweepCell(sweep="nightly", target="run@100")), now=NOW)
    assert (queue.open_steps("run"), queue.open_steps("run", sweeps=False)) == (frozenset({100}), frozenset())
    claim(queue)
    assert (queue.open_steps("run"), queue.open_steps("run", sweeps=False)) == (frozenset({100}), frozenset())
    queue.add(plan, now=NOW)
    assert queue.open_steps("run", sweeps=False) == {100}


def test_a_waiting_plan_can_be_withdrawn_and_added_again_and_no_other(queue: Queue) -> None:
    first, second = PLANS[:2]
    for plan in (second, first):
        queue.add(plan, now=NOW)
    assert queue.waiting() == (first, second)
    taken = claim(queue)
    assert not queue.withdraw(first.id), "it runs"
    assert queue.withdraw(second.id)
    assert not queue.withdraw(second.id)
    assert queue.waiting() == ()
    assert queue.add(second, now=NOW)
    assert queue.finish(taken, record_of(taken), now=NOW)
