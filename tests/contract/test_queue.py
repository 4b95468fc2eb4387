"""The rules of `ports.Queue`, over the fake, SQLite and PostgreSQL: one plan's way. See also test_queue_*.py."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from eval_jobs.errors import StoreError
from eval_jobs.ports import Queue
from eval_jobs.queue.database_sql import open_database
from eval_jobs.queue.sql_queue import SqlQueue
from eval_jobs.queue_types import Backlog, Claim
from eval_jobs.types import EvalPlan
from tests.contract.queues import (
    AFTER_LEASE,
    LEASE_END,
    NOW,
    PLANS,
    RECORDS,
    Reopen,
    as_it_is,
    claim,
    fail,
    ids,
    loading,
    nothing_to_claim,
    record_of,
    waiting,
    with_failure,
    without_failures,
)
from tests.records import forgetting_run


def with_python(plan: EvalPlan, python: str) -> EvalPlan:
    """Return the plan as corrected settings make it: its id stays, because the result does not depend on them."""
    return replace(plan, serve=replace(plan.serve, python=python))


def test_a_new_queue_is_empty(queue: Queue) -> None:
    assert nothing_to_claim(queue)
    assert queue.finished() == ()
    state = queue.state()
    assert (state.waiting, state.running) == ((), ())
    assert state.counts == {"waiting": 0, "running": 0, "finished": 0, "skipped": 0}


def test_adding_a_plan_twice_changes_nothing(queue: Queue) -> None:
    assert queue.add(PLANS[0], now=NOW)
    assert not queue.add(PLANS[0], now=NOW)
    assert waiting(queue) == ids(PLANS[0])


def test_a_known_plan_is_not_added_again_whatever_its_state(queue: Queue) -> None:
    queue.add(PLANS[0], now=NOW)
    taken = claim(queue)
    assert not queue.add(PLANS[0], now=NOW)
    queue.finish(taken, record_of(taken), now=NOW)
    assert not queue.add(PLANS[0], now=NOW)
    queue.acknowledge(PLANS[0].id)
    assert not queue.add(PLANS[0], now=NOW)
    assert nothing_to_claim(queue, AFTER_LEASE)


def test_a_plan_is_known_from_its_adding_on_whatever_its_state(queue: Queue) -> None:
    every = [plan.id for plan in PLANS]
    assert queue.known(every) == frozenset()
    queue.add(PLANS[0], now=NOW)
    assert queue.known(every) == {PLANS[0].id}
    taken = claim(queue)
    queue.finish(taken, record_of(taken), now=NOW)
    queue.acknowledge(PLANS[0].id)
    assert queue.known(every) == {PLANS[0].id}
    assert queue.known([]) == frozenset()


def test_steps_are_open_until_their_record_is_taken_over(queue: Queue) -> None:
    first, second = PLANS[:2]
    queue.add(first, now=NOW)
    queue.add(second, now=NOW)
    steps = {plan.checkpoint.step for plan in (first, second)}
    run_id = first.checkpoint.run_id
    assert queue.open_steps(run_id) == steps
    taken = claim(queue)
    assert queue.open_steps(run_id) == steps
    queue.finish(taken, record_of(taken), now=NOW)
    assert queue.open_steps(run_id) == steps
    queue.acknowledge(first.id)
    assert queue.open_steps(run_id) == {second.checkpoint.step}
    assert queue.open_steps("another run") == frozenset()


def test_the_lowest_step_is_claimed_first_in_whatever_order_plans_came(queue: Queue) -> None:
    for plan in reversed(PLANS):
        queue.add(plan, now=NOW)
    assert [claim(queue).plan for _ in PLANS] == list(PLANS)
    assert nothing_to_claim(queue)


def test_a_claim_holds_the_whole_plan_and_its_terms(queue: Queue) -> None:
    queue.add(PLANS[0], now=NOW)
    assert claim(queue) == Claim(plan=PLANS[0], worker="a", attempt=1, lost=0, lease_until=LEASE_END)


def test_a_claimed_plan_is_taken_again_only_when_its_lease_has_run_out(queue: Queue) -> None:
    queue.add(PLANS[0], now=NOW)
    claim(queue, "a")
    assert nothing_to_claim(queue, AFTER_LEASE - timedelta(microseconds=1))
    second = claim(queue, "b", AFTER_LEASE)
    assert (second.worker, second.attempt, second.lost) == ("b", 2, 1)


def test_extending_moves_the_lease_and_leaves_the_note(queue: Queue) -> None:
    queue.add(PLANS[0], now=NOW)
    taken = claim(queue)
    later = LEASE_END + timedelta(seconds=30)
    assert queue.extend(taken, lease_until=later, progress=loading("sums 120/300"))
    assert nothing_to_claim(queue, AFTER_LEASE)
    (running,) = queue.state().running
    assert (running.plan, running.worker, running.since) == (PLANS[0], "a", NOW)
    assert running.progress == loading("sums 120/300")


def test_why_a_plan_waits_is_shown_until_somebody_takes_it(queue: Queue) -> None:
    queue.add(PLANS[0], now=NOW)
    queue.add(PLANS[1], now=NOW)
    taken = claim(queue)
    queue.release(taken, counts=False, note="waits until 20:00\n")
    assert [w.note for w in queue.state().waiting] == ["waits until 20:00 ", ""]
    assert not queue.add(PLANS[0], now=NOW)
    assert [(w.note, w.noted_at) for w in queue.state().waiting] == [("waits until 20:00 ", NOW), ("", None)]
    again = claim(queue)
    assert (again.plan, again.attempt) == (PLANS[0], 1)
    assert [r.progress for r in queue.state().running] == [None]
    queue.release(again)
    assert [w.note for w in queue.state().waiting] == ["", ""]


def test_why_a_plan_waited_is_not_shown_any_more_when_a_later_one_of_its_run_was_begun(queue: Queue) -> None:
    older, newer = PLANS[0], PLANS[1]
    queue.add(older, now=NOW)
    queue.release(claim(queue), counts=False, note="waits until 20:00")
    queue.add(newer, now=NOW, backlog=Backlog.NEWEST)
    later = NOW + timedelta(seconds=5)
    taken = queue.claim(worker="a", now=later, lease_until=later + timedelta(seconds=60))
    assert taken is not None
    assert [w.note for w in queue.state().waiting] == [""]
    queue.finish(taken, record_of(taken), now=later)
    assert [w.note for w in queue.state().waiting] == [""], "nobody is paused between two plans"


def test_a_worker_that_comes_back_before_anybody_took_its_plan_keeps_it(queue: Queue) -> None:
    queue.add(PLANS[0], now=NOW)
    taken = claim(queue)
    later = AFTER_LEASE + timedelta(hours=1)
    assert queue.extend(taken, lease_until=later + timedelta(seconds=60))
    assert nothing_to_claim(queue, later)


def test_a_worker_that_lost_its_plan_can_change_nothing(queue: Queue) -> None:
    queue.add(PLANS[0], now=NOW)
    old = claim(queue, "a")
    new = claim(queue, "b", AFTER_LEASE)
    assert not queue.extend(old, lease_until=AFTER_LEASE, progress=loading("still here"))
    assert not queue.finish(old, record_of(old), now=AFTER_LEASE)
    queue.release(old)
    assert queue.finished() == ()
    assert [r.worker for r in queue.state().running] == ["b"]
    assert queue.finish(new, record_of(new), now=AFTER_LEASE)


def test_a_worker_that_took_its_own_plan_again_holds_only_the_new_claim(queue: Queue) -> None:
    queue.add(PLANS[0], now=NOW)
    old = claim(queue, "a")
    new = claim(queue, "a", AFTER_LEASE)
    assert not queue.extend(old, lease_until=AFTER_LEASE)
    assert queue.extend(new, lease_until=AFTER_LEASE + timedelta(seconds=9))


def test_a_released_plan_waits_again_and_counts_as_a_try_but_not_as_lost(queue: Queue) -> None:
    queue.add(PLANS[0], now=NOW)
    taken = claim(queue)
    queue.extend(taken, lease_until=LEASE_END, progress=loading("half-way"))
    queue.release(taken)
    assert waiting(queue) == ids(PLANS[0])
    assert queue.state().running == ()
    again = claim(queue, "b")
    assert (again.attempt, again.lost) == (2, 0)
    assert [r.progress for r in queue.state().running] == [None]


def test_a_claim_that_was_only_interrupted_is_not_counted_as_a_try(queue: Queue) -> None:
    queue.add(PLANS[0], now=NOW)
    for worker in ("a", "b", "c", "d", "e"):
        taken = claim(queue, worker)
        assert (taken.attempt, taken.lost) == (1, 0)
        queue.release(taken, counts=False)
        assert not queue.extend(taken, lease_until=LEASE_END)
    queue.release(claim(queue))
    assert claim(queue).attempt == 2


def test_adding_a_plan_that_waits_takes_over_its_new_settings(queue: Queue) -> None:
    queue.add(PLANS[0], now=NOW)
    corrected = with_python(PLANS[0], "/opt/vllm/bin/python")
    assert not queue.add(corrected, now=NOW)
    assert claim(queue).plan == corrected


def test_adding_a_plan_that_runs_changes_nothing(queue: Queue) -> None:
    queue.add(PLANS[0], now=NOW)
    claim(queue)
    assert not queue.add(with_python(PLANS[0], "/opt/vllm/bin/python"), now=NOW)
    assert [r.plan for r in queue.state().running] == [PLANS[0]]


def test_a_plan_that_failed_can_be_measured_again_with_other_settings(queue: Queue) -> None:
    fail(queue, PLANS[0])
    queue.acknowledge(PLANS[0].id)
    assert queue.revive(as_it_is) == 1
    assert queue.revive(as_it_is) == 0
    assert waiting(queue) == ids(PLANS[0])
    assert queue.state().counts == {"waiting": 1, "running": 0, "finished": 0, "skipped": 0}
    corrected = with_python(PLANS[0], "/opt/vllm/bin/python")
    assert not queue.add(corrected, now=NOW)
    again = claim(queue, "b")
    assert (again.plan, again.attempt, again.lost) == (corrected, 1, 0)
    repaired = replace(RECORDS[1], plan=corrected)
    assert queue.finish(again, repaired, now=NOW)
    assert queue.finished() == (repaired,)
    queue.acknowledge(PLANS[0].id)
    assert queue.revive(as_it_is) == 0


def test_a_plan_is_revived_only_in_the_form_that_it_is_renewed_to(queue: Queue) -> None:
    for plan in PLANS[:2]:
        fail(queue, plan)
        queue.acknowledge(plan.id)
    corrected = with_python(PLANS[1], "/opt/vllm/bin/python")
    assert queue.revive(lambda plan: corrected if plan.id == PLANS[1].id else None) == 1
    assert claim(queue, "b").plan == corrected
    assert queue.revive(as_it_is) == 1
    assert waiting(queue) == ids(PLANS[0])


def test_only_plans_that_failed_and_were_taken_over_are_revived(queue: Queue) -> None:
    for plan in PLANS:
        queue.add(plan, now=NOW)
    taken = claim(queue)
    queue.finish(taken, without_failures(record_of(taken)), now=NOW)
    queue.acknowledge(taken.plan.id)
    fail(queue, PLANS[1])
    claim(queue)
    assert queue.revive(as_it_is) == 0
    assert queue.state().counts == {"waiting": 1, "running": 1, "finished": 1, "skipped": 0}
    queue.acknowledge(PLANS[1].id)
    assert queue.revive(as_it_is) == 1
    assert waiting(queue) == ids(PLANS[1], PLANS[3])


def test_a_plan_is_revived_even_when_it_wore_out_its_workers(queue: Queue) -> None:
    queue.add(PLANS[0], now=NOW)
    claim(queue, "a")
    taken = claim(queue, "b", AFTER_LEASE)
    assert (taken.attempt, taken.lost) == (2, 1)
    queue.finish(taken, with_failure(record_of(taken)), now=AFTER_LEASE)
    queue.acknowledge(PLANS[0].id)
    queue.revive(as_it_is)
    again = claim(queue, "c", AFTER_LEASE)
    assert (again.attempt, again.lost) == (1, 0)


def test_a_finished_record_comes_back_as_it_was_until_it_is_acknowledged(queue: Queue) -> None:
    for plan in PLANS:
        queue.add(plan, now=NOW)
    taken = [claim(queue) for _ in PLANS]
    for one in reversed(taken):
        assert queue.finish(one, record_of(one), now=NOW)
    assert queue.finished() == RECORDS
    assert queue.finished() == RECORDS
    queue.acknowledge(PLANS[1].id)
    queue.acknowledge(PLANS[1].id)
    assert queue.finished() == (RECORDS[0], *RECORDS[2:])
    assert queue.state().counts == {"waiting": 0, "running": 0, "finished": 3, "skipped": 0}


def test_what_is_handed_in_without_a_failure_is_done(queue: Queue) -> None:
    for plan in PLANS:
        queue.add(plan, now=NOW)
    for taken in (claim(queue), claim(queue)):
        queue.finish(taken, without_failures(record_of(taken)), now=NOW)
    fail(queue, PLANS[2])
    claim(queue)
    for plan in PLANS[1:]:
        queue.acknowledge(plan.id)
    assert queue.done([*ids(*PLANS), "unknown"]) == {PLANS[0].id, PLANS[1].id}
    assert queue.done([PLANS[1].id, PLANS[3].id]) == {PLANS[1].id}
    assert queue.done([]) == frozenset()


def test_finishing_twice_stores_once(queue: Queue) -> None:
    queue.add(PLANS[0], now=NOW)
    taken = claim(queue)
    assert queue.finish(taken, record_of(taken), now=NOW)
    assert queue.finish(taken, without_failures(RECORDS[1]), now=NOW)  # the first answer was lost on its way
    assert not queue.extend(taken, lease_until=LEASE_END)
    queue.release(taken)
    assert queue.finished() == (RECORDS[0],)
    queue.acknowledge(PLANS[0].id)
    assert queue.finish(taken, record_of(taken), now=NOW)
    assert queue.finished() == ()


def test_acknowledging_what_is_not_finished_changes_nothing(queue: Queue) -> None:
    queue.add(PLANS[0], now=NOW)
    queue.acknowledge(PLANS[0].id)
    queue.acknowledge("unknown")
    claim(queue)
    queue.acknowledge(PLANS[0].id)
    assert queue.state().counts["running"] == 1


def test_everything_survives_opening_the_queue_again(queue: Queue, reopen: Reopen) -> None:
    queue.add(PLANS[0], now=NOW)
    queue.add(PLANS[1], now=NOW)
    taken = claim(queue)
    other = reopen()
    assert not other.add(PLANS[1], now=NOW)
    assert other.finish(taken, record_of(taken), now=NOW)
    assert queue.finished() == (RECORDS[0],)


def test_a_lease_is_compared_as_a_time_in_whatever_zone_it_was_given(queue: Queue) -> None:
    shanghai = NOW.astimezone(ZoneInfo("Asia/Shanghai"))
    queue.add(PLANS[0], now=shanghai)
    claim(queue, "a", shanghai)
    assert nothing_to_claim(queue, NOW + timedelta(seconds=59))
    assert claim(queue, "b", AFTER_LEASE).attempt == 2


def test_workers_that_ask_at_once_never_get_the_same_plan(reopen: Reopen) -> None:
    runs = [forgetting_run(run_id=f"run-{n}", checkpoints=4, samples=2, trouble=False) for n in range(5)]
    plans = [record.plan for run in runs for record in run.records]
    starting = threading.Barrier(8)

    def take_all(worker: int) -> list[str]:
        queue = reopen()  # several processes also create the table at once
        starting.wait()
        for plan in plans:
            queue.add(plan, now=NOW)
        taken = []
        while (got := queue.claim(worker=str(worker), now=NOW, lease_until=LEASE_END)) is not None:
            taken.append(got.plan.id)
        return taken

    with ThreadPoolExecutor(8) as pool:
        taken = [plan_id for ids in pool.map(take_all, range(8)) for plan_id in ids]
    assert sorted(taken) == sorted(plan.id for plan in plans)


def test_only_one_of_many_workers_takes_over_a_plan_whose_lease_ran_out(reopen: Reopen) -> None:
    queue = reopen()
    queue.add(PLANS[0], now=NOW)
    claim(queue)

    def take(worker: int) -> bool:
        return reopen().claim(worker=str(worker), now=AFTER_LEASE, lease_until=AFTER_LEASE + timedelta(60)) is not None

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(take, range(8))) == 1


def test_a_database_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/no/such/folder/tracker.db")
    with pytest.raises(StoreError, match="no/such/folder"):
        SqlQueue(engine)


def test_a_database_server_that_is_down_is_named_without_its_password() -> None:
    engine = open_database("postgresql+psycopg://me@127.0.0.1:9/tracker", password="secret")  # noqa: S106 - opens nothing
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:9") as caught:
        SqlQueue(engine)
    assert "secret" not in str(caught.value)


def test_plans_of_runs_that_a_worker_leaves_to_others_are_not_claimed(queue: Queue) -> None:
    for run_id in ("near", "far"):
        plan = forgetting_run(run_id=run_id, checkpoints=1, samples=2, trouble=False).records[0].plan
        queue.add(plan, now=NOW)
    taken = queue.claim(worker="a", now=NOW, lease_until=LEASE_END, except_runs=("far",))
    assert taken is not None
    assert taken.plan.checkpoint.run_id == "near"
    assert queue.claim(worker="a", now=NOW, lease_until=LEASE_END, except_runs=("far",)) is None
    assert queue.claim(worker="a", now=NOW, lease_until=LEASE_END) is not None
