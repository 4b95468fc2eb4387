"""What the database does for each question: a search in an index, never a look at every plan."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, text

from eval_jobs.queue.database_sql import open_database, transaction
from eval_jobs.queue.sql_queue import SqlQueue
from eval_jobs.queue_types import Backlog, HoldEnd
from tests.contract.queues import LEASE_END, NOW, PLANS, RECORDS, claim, loading, plan_at, record_of

MANY = 3000

Asked = list[tuple[str, Any]]


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    sqlite = f"sqlite:///{tmp_path}/tracker.db"
    engine = open_database(sqlite if request.param == "sqlite" else request.getfixturevalue("postgres_url"))
    yield engine
    engine.dispose()


def with_many_acknowledged(engine: Engine) -> SqlQueue:
    """Return a queue with thousands of old plans; PostgreSQL keeps statistics of them by itself, SQLite none."""
    queue = SqlQueue(engine)
    queue.add(plan_at(1, "old"), now=NOW)
    copied = ", ".join(column for column in _columns(engine) if column not in ("id", "state"))
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :many)"
    select = f"SELECT 'old-' || n.i, 'acknowledged', {copied} FROM n, eval_plans"  # noqa: S608 - constants
    with transaction(engine) as connection:
        connection.execute(text(f"INSERT INTO eval_plans (id, state, {copied}) {numbers} {select}"), {"many": MANY})
    if engine.dialect.name == "postgresql":
        with transaction(engine) as connection:
            connection.execute(text("ANALYZE eval_plans"))
    return queue


def _columns(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.execute(text("SELECT * FROM eval_plans")).keys())


def use_everything(queue: SqlQueue) -> None:
    run_id = PLANS[0].checkpoint.run_id
    for plan in PLANS:
        queue.add(plan, now=NOW, backlog=Backlog.NEWEST)
        queue.add(plan, now=NOW, backlog=Backlog.NEWEST)
    queue.skip(run_id, max_waiting=2)
    for plan in queue.skipped():
        queue.leave_out(plan.id)
    first, second = claim(queue, "a"), claim(queue, "b")
    queue.extend(first, lease_until=LEASE_END + timedelta(seconds=1), progress=loading("n"), answered=1)
    queue.holds()
    queue.take_back(first.hold, HoldEnd.KILLED)
    queue.release(second)
    done = claim(queue)
    queue.finish(done, record_of(done) if done.plan in PLANS else RECORDS[0], now=NOW)
    queue.finish(done, RECORDS[0], now=NOW)
    queue.finished()
    queue.acknowledge(done.plan.id)
    queue.state()
    queue.open_steps(run_id)


def asked_of(engine: Engine, queue: SqlQueue) -> Asked:
    """Return every statement on plans, with its values, that using the queue makes."""
    asked: Asked = []

    def remember(_: object, __: object, statement: str, values: Any, ___: object, ____: object) -> None:
        if "eval_plans" in statement:
            asked.append((statement, values))

    event.listen(engine, "before_cursor_execute", remember)
    use_everything(queue)
    event.remove(engine, "before_cursor_execute", remember)
    return list({statement: (statement, values) for statement, values in asked}.values())


def test_no_statement_looks_at_every_plan(engine: Engine) -> None:
    queue = with_many_acknowledged(engine)
    asked = asked_of(engine, queue)
    assert len(asked) > 15
    explain = "EXPLAIN QUERY PLAN " if engine.dialect.name == "sqlite" else "EXPLAIN "
    for statement, values in asked:
        with engine.connect() as connection:
            rows = connection.exec_driver_sql(explain + statement, values).all()
        steps = [str(row[-1]) for row in rows]
        scans = [step for step in steps if "SCAN eval_plans" in step or "Seq Scan on eval_plans" in step]
        assert not scans, f"{statement}\n" + "\n".join(steps)


def test_what_is_done_with_is_not_read_to_tell_the_state(engine: Engine) -> None:
    queue = with_many_acknowledged(engine)
    state = queue.state()
    assert sum(state.counts.values()) == len(state.waiting) == 1
