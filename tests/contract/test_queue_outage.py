"""PostgreSQL goes down in the middle of everything, again and again: no plan is lost, none is finished twice."""

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import pytest

from eval_jobs.errors import StoreError
from eval_jobs.execute.worker.left_claims import take_back_left_claims
from eval_jobs.queue.database_sql import open_database
from eval_jobs.queue.sql_queue import SqlQueue
from eval_jobs.queue_types import Backlog, Claim
from tests.contract.queues import LEASE_END, NOW, RECORDS, plan_at
from tests.postgres import PostgresServer
from tests.shared_servers import alone_with

STEPS = 160
WORKERS = 3
OUTAGES = (25, 70, 115)
"""After so many finished plans."""

T = TypeVar("T")


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server for this test alone."""
    with alone_with(PostgresServer) as running:
        yield running


@contextmanager
def opened(url: str) -> Iterator[SqlQueue]:
    engine = open_database(url)
    try:
        yield SqlQueue(engine)
    finally:
        engine.dispose()


@dataclass(kw_only=True)
class Site:
    """Processes on one queue, each with connections of its own, and what they were told."""

    url: str
    finished: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def insist(self, ask: Callable[[], T]) -> T:
        """Ask until there is an answer."""
        while True:
            try:
                return ask()
            except StoreError as error:
                with self.lock:
                    self.faults.append(error.code)
                threading.Event().wait(0.02)

    def add_all(self) -> None:
        with opened(self.url) as queue:
            for step in range(STEPS):
                self.insist(partial(queue.add, plan_at(step), now=NOW, backlog=Backlog.ALL))

    def work(self, name: str) -> None:
        """Do as a worker does; no lease ever ends here, so what it leaves behind it must find itself."""
        with opened(self.url) as queue:
            while sum(self.finished.values()) < STEPS:
                claim = self._claim(queue, name)
                if claim is None:
                    threading.Event().wait(0.01)
                    continue
                record = replace(RECORDS[0], plan=claim.plan)
                assert self.insist(partial(queue.extend, claim, lease_until=LEASE_END))
                assert self.insist(partial(queue.finish, claim, record, now=NOW))
                with self.lock:
                    self.finished[claim.plan.id] += 1

    def _claim(self, queue: SqlQueue, name: str) -> Claim | None:
        def ask() -> Claim | None:
            take_back_left_claims(queue, name, NOW)
            return queue.claim(worker=name, now=NOW, lease_until=LEASE_END)

        return self.insist(ask)


@pytest.mark.timeout(600)
def test_a_server_that_crashes_in_the_middle_loses_and_doubles_nothing(server: PostgresServer) -> None:
    site = Site(url=server.new_database())
    with opened(site.url):
        pass
    with ThreadPoolExecutor(WORKERS + 1) as pool:
        done = [pool.submit(site.work, f"w{n}") for n in range(WORKERS)] + [pool.submit(site.add_all)]
        for finished in OUTAGES:
            while sum(site.finished.values()) < finished:
                assert not any(one.done() and one.exception() for one in done)
                threading.Event().wait(0.002)
            server.stop(signal.SIGQUIT)
            server.start()
        for one in done:
            one.result()
    assert len(site.faults) >= len(OUTAGES)
    assert set(site.faults) == {"E-STORE-AWAY"}
    assert site.finished == {plan_at(step).id: 1 for step in range(STEPS)}
    with opened(site.url) as queue:
        assert sorted(record.plan.checkpoint.step for record in queue.finished()) == list(range(STEPS))
        assert queue.state().counts == {"waiting": 0, "running": 0, "finished": STEPS, "skipped": 0}
