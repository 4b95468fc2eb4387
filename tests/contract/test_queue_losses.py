"""Workers that go away, and plans that bring them down: `ports.Queue` over the fake, SQLite and PostgreSQL."""

from dataclasses import replace
from datetime import datetime, timedelta

from eval_jobs.errors import PlanPoisoned
from eval_jobs.ports import Queue
from eval_jobs.queue.rules import MAX_REVIVALS, is_worn_out, tries
from eval_jobs.queue_types import Crash, Hold, HoldEnd
from tests.contract.queues import (
    AFTER_LEASE,
    LEASE_END,
    LEASE_S,
    NOW,
    PLANS,
    as_it_is,
    claim,
    ids,
    loading,
    nothing_to_claim,
    record_of,
    waiting,
    with_failure,
)


def later(leases: int) -> datetime:
    return NOW + timedelta(seconds=leases * LEASE_S)


def poison(queue: Queue) -> None:
    """Claim a plan and set it aside, as a worker does that finds it worn out; the watcher takes the record over."""
    taken = claim(queue)
    assert queue.finish(taken, with_failure(record_of(taken), PlanPoisoned.code), now=NOW)
    queue.acknowledge(taken.plan.id)


def test_consecutive_crashes_are_reported_with_worker_and_last_note(queue: Queue) -> None:
    queue.add(PLANS[0], now=NOW)
    for number, worker in enumerate(("a", "b")):
        taken = claim(queue, worker, later(number))
        queue.extend(taken, lease_until=later(number + 1), progress=loading(f"note of {worker}\x1e\x1f"))
    taken = claim(queue, "c", later(2))
    assert taken.crashes == (
        Crash(worker="a", progress=loading("note of a\x1e\x1f"), claimed_at=NOW),
        Crash(worker="b", progress=loading("note of b\x1e\x1f"), claimed_at=later(1)),
    )
    assert (taken.attempt, taken.lost, taken.stalled, tries(taken)) == (3, 2, 2, 1)
    assert not is_worn_out(taken)
    assert is_worn_out(claim(queue, "d", later(3)))


def test_a_plan_that_gets_further_is_not_one_that_brings_its_workers_down(queue: Queue) -> None:
    queue.add(PLANS[0], now=NOW)
    for number in range(9):
        taken = claim(queue, str(number), later(number))
        assert len(taken.crashes) <= 1
        queue.extend(taken, lease_until=later(number + 1), answered=10 * number)
        queue.extend(taken, lease_until=later(number + 1), answered=0)  # starts the next benchmark
    for number in range(9, 11):
        taken = claim(queue, str(number), later(number))
        queue.extend(taken, lease_until=later(number + 1), answered=80)  # no further than before
    assert len(claim(queue, "last", later(11)).crashes) == 3


def test_a_killed_worker_counts_as_a_stall_and_not_as_a_crash(queue: Queue) -> None:
    queue.add(PLANS[0], now=NOW)
    for number in range(30):
        taken = claim(queue, str(number))
        assert (taken.crashes, taken.stalled, tries(taken)) == ((), number, 1)
        assert not is_worn_out(taken)
        assert queue.take_back(taken.hold, HoldEnd.KILLED)
    assert is_worn_out(claim(queue))


def test_a_killed_worker_in_between_does_not_make_crashes_forgotten(queue: Queue) -> None:
    queue.add(PLANS[0], now=NOW)
    for end in (HoldEnd.CRASHED, HoldEnd.KILLED, HoldEnd.CRASHED, HoldEnd.CRASHED):
        assert queue.take_back(claim(queue).hold, end)
    assert is_worn_out(claim(queue))


def test_an_interrupted_claim_leaves_no_trace(queue: Queue) -> None:
    queue.add(PLANS[0], now=NOW)
    assert queue.take_back(claim(queue).hold, HoldEnd.INTERRUPTED)
    again = claim(queue)
    assert (again.attempt, again.lost, again.stalled, again.crashes) == (1, 0, 0, ())


def test_the_holder_of_a_claim_is_listed_before_and_after_its_lease_expires(queue: Queue) -> None:
    for plan in PLANS[:2]:
        queue.add(plan, now=NOW)
    first, second = claim(queue, "a"), claim(queue, "b")
    held = [
        Hold(plan_id=first.plan.id, worker="a", attempt=1, lease_until=LEASE_END),
        Hold(plan_id=second.plan.id, worker="b", attempt=1, lease_until=LEASE_END),
    ]
    assert queue.holds() == tuple(sorted(held, key=lambda hold: hold.plan_id))
    queue.release(first)
    assert [hold.worker for hold in queue.holds()] == ["b"]


def test_only_the_very_claim_that_was_seen_is_taken_back(queue: Queue) -> None:
    queue.add(PLANS[0], now=NOW)
    old = claim(queue, "a").hold
    new = claim(queue, "b", AFTER_LEASE)
    assert not queue.take_back(old, HoldEnd.KILLED)
    assert not queue.take_back(replace(new.hold, attempt=7), HoldEnd.KILLED)
    assert nothing_to_claim(queue, AFTER_LEASE)
    assert queue.take_back(new.hold, HoldEnd.KILLED)
    assert not queue.take_back(new.hold, HoldEnd.KILLED)
    assert waiting(queue) == ids(PLANS[0])
    assert not queue.extend(new, lease_until=LEASE_END)


def test_a_plan_that_was_set_aside_is_revived_three_times_in_all(queue: Queue) -> None:
    queue.add(PLANS[0], now=NOW)
    for _ in range(MAX_REVIVALS):
        poison(queue)
        assert queue.revive(as_it_is) == 1
    poison(queue)
    assert queue.revive(as_it_is) == 0
    assert nothing_to_claim(queue)


def test_a_revived_plan_has_no_crashes(queue: Queue) -> None:
    queue.add(PLANS[0], now=NOW)
    for _ in range(3):
        queue.take_back(claim(queue).hold, HoldEnd.CRASHED)
    assert is_worn_out(claim(queue, "b"))
    queue.take_back(queue.holds()[0], HoldEnd.INTERRUPTED)
    poison(queue)
    queue.revive(as_it_is)
    again = claim(queue)
    assert (again.attempt, again.lost, again.stalled, again.crashes) == (1, 0, 0, ())


def test_what_failed_otherwise_is_revived_at_every_start(queue: Queue) -> None:
    queue.add(PLANS[0], now=NOW)
    for _ in range(3 * MAX_REVIVALS):
        taken = claim(queue)
        queue.finish(taken, with_failure(record_of(taken)), now=NOW)
        queue.acknowledge(taken.plan.id)
        assert queue.revive(as_it_is) == 1
