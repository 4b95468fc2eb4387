"""Sweeps on a real database: many watchers at the same moment, and the queue behind them."""

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine

from eval_jobs.queue.database_sql import open_database
from eval_jobs.queue.rules import lease_end
from eval_jobs.queue.sql_queue import SqlQueue
from tests.fakes.history import FakeHistory
from tests.fakes.tracking import FakeTracking
from tests.sweeping import NOW, RECORDED, FakePins, answered, sweep_of
from tests.unit.tracker.app.steps.test_sweeps import nobody_registered
from tracker.adapters.history.sweeps_sql import SqlSweeps
from tracker.app.steps.sweeps import SweepService, follow, take_sweep_result
from tracker.domain.sweeps.types import Timetable, Turn, TurnState

WATCHERS = 6
RUN = RECORDED.run_id
TWO = NOW.replace(hour=2)


@pytest.fixture(params=["sqlite", "postgresql"])
def engines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Engine]]:
    sqlite = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/tracker.db" if sqlite else request.getfixturevalue("postgres_url")
    opened = [open_database(url) for _ in range(WATCHERS)]
    yield opened
    for engine in opened:
        engine.dispose()


def service_on(engine: Engine, number: int, tracking: FakeTracking) -> SweepService:
    other = sweep_of("other", timetable=Timetable(cron="0 2 * * *"), checkpoints=("first",))
    return SweepService(
        run=RUN,
        sweeps={"nightly": sweep_of(), "other": other},
        store=SqlSweeps(engine, RUN),
        queue=SqlQueue(engine, run=RUN),
        records=FakeHistory(),
        pins=FakePins(),
        tracking=tracking,
        holder=str(number),
        registered=nobody_registered,
    )


def follow_at_once(services: list[SweepService]) -> list[Turn]:
    begun: list[Turn] = []
    ready = threading.Barrier(len(services))

    def watch(service: SweepService) -> None:
        ready.wait(timeout=120.0)
        begun.extend(follow(service, TWO))

    threads = [threading.Thread(target=watch, args=(service,)) for service in services]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300.0)
    return begun


def work_and_follow(services: list[SweepService], now: datetime) -> list[str]:
    """Do what workers would, then let every watcher look; return the plans that were asked."""
    asked, queue = [], services[0].queue
    assert isinstance(queue, SqlQueue)
    while claim := queue.claim(worker="w", now=now, lease_until=lease_end(now)):
        asked.append(claim.plan.id)
        queue.finish(claim, answered(claim.plan), now=now)
    for service in services:
        for record in service.queue.finished():
            take_sweep_result(record, service)
        follow(service, now)
    return asked


def test_of_many_watchers_at_one_moment_each_turn_is_begun_by_one_and_one_turn_at_a_time(engines: list[Engine]) -> None:
    tracking = FakeTracking()
    services = [service_on(engine, number, tracking) for number, engine in enumerate(engines)]
    for service in services:
        follow(service, NOW)
    assert [(turn.sweep, turn.state) for turn in follow_at_once(services)] == [("nightly", TurnState.RUNNING)]
    assert services[0].queue.state().counts["waiting"] == 4
    asked = [one for minute in range(1, 4) for one in work_and_follow(services, TWO + timedelta(minutes=minute))]
    assert len(asked) == len(set(asked)) == 6
    assert [[t.state for t in services[0].store.turns(name)] for name in ("nightly", "other")] == [[TurnState.DONE]] * 2
    tracking.flush()
    assert sorted(record.plan.id for record in tracking.sweeps) == sorted(asked)
