"""Servers that several contract suites share."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from eval_jobs.ports import Queue
from eval_jobs.queue.database_sql import open_database
from eval_jobs.queue.sql_queue import SqlQueue
from tests.contract.queues import Reopen
from tests.fakes.history import FakeHistory
from tests.fakes.queue import FakeQueue
from tests.postgres import PostgresServer
from tests.shared_servers import shared
from tracker.adapters.history.store_sql import SqlHistory
from tracker.ports import History

ReopenHistory = Callable[[], History]
"""Another handle on the same history, as another process has it."""


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """URL of a fresh, empty PostgreSQL database."""
    with shared(PostgresServer) as server:
        yield server.new_database()


@pytest.fixture(params=["fake", "sqlite", "postgresql"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reopen]:
    """Handles on one queue, of each kind in turn."""
    engines: list[Engine] = []

    def open_again() -> Queue:
        engines.append(open_database(url))
        return SqlQueue(engines[-1])

    if request.param == "fake":
        fake = FakeQueue()
        yield lambda: fake
        return
    url = (
        f"sqlite:///{tmp_path}/tracker.db"
        if request.param == "sqlite"
        else str(request.getfixturevalue("postgres_url"))
    )
    yield open_again
    for engine in engines:
        engine.dispose()


@pytest.fixture
def queue(reopen: Reopen) -> Queue:
    """An empty queue, of each kind in turn."""
    return reopen()


@pytest.fixture(params=["fake", "sqlite", "postgresql"])
def reopen_history(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ReopenHistory]:
    """Handles on one history, of each kind in turn."""
    engines: list[Engine] = []

    def open_again() -> History:
        engines.append(open_database(url))
        return SqlHistory(engines[-1], tmp_path / "samples")

    if request.param == "fake":
        fake = FakeHistory()
        yield lambda: fake
        return
    url = f"sqlite:///{tmp_path}/tracker.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    yield open_again
    for engine in engines:
        engine.dispose()
