"""Plans and results that are damaged in the database of the queue."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, update

from eval_jobs.queue.database_sql import open_database
from eval_jobs.queue.plans_sql import PLANS as TABLE
from eval_jobs.queue.sql_queue import SqlQueue
from tests.contract.queues import NOW, PLANS, claim, ids, record_of, waiting


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_database(f"sqlite:///{tmp_path}/queue.db")
    yield engine
    engine.dispose()


def damage(engine: Engine, plan_id: str, **columns: object) -> None:
    with engine.begin() as connection:
        connection.execute(update(TABLE).where(TABLE.c.id == plan_id).values(columns))


def test_a_damaged_result_is_measured_again_and_the_others_are_returned(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    queue = SqlQueue(engine)
    for plan in PLANS[:3]:
        queue.add(plan, now=NOW)
    for _ in range(3):
        taken = claim(queue)
        assert queue.finish(taken, record_of(taken), now=NOW)
    damage(engine, PLANS[1].id, record=b"torn")
    assert [record.plan for record in queue.finished()] == [PLANS[0], PLANS[2]]
    assert waiting(queue) == [PLANS[1].id]
    assert caplog.text.count(f"plan {PLANS[1].id}: a stored record is damaged; the plan is evaluated again") == 1
    taken = claim(queue)
    assert queue.finish(taken, record_of(taken), now=NOW)
    assert ids(*(record.plan for record in queue.finished())) == ids(*PLANS[:3])


@pytest.mark.parametrize("state", ["waiting", "running"])
def test_a_damaged_plan_is_removed_and_can_be_added_again(
    engine: Engine, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    queue = SqlQueue(engine)
    for plan in PLANS[:2]:
        queue.add(plan, now=NOW)
    damage(engine, PLANS[0].id, plan='{"schema_version": 1}', state=state)
    if state == "running":
        assert queue.state().running == ()
    else:
        assert queue.claim(worker="a", now=NOW, lease_until=NOW) is None
    assert f"plan {PLANS[0].id}: a stored plan is damaged and is removed" in caplog.text
    assert queue.waiting() == PLANS[1:2]
    assert queue.add(PLANS[0], now=NOW)
    assert claim(queue).plan == PLANS[0]
