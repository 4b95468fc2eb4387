"""Servers that several contract suites share."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from sqlalchemy import text

from eval_jobs.queue.database_sql import open_database
from tests.postgres import postgres_server

_NUMBERS = count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """URL of a PostgreSQL server, without a database name."""
    with postgres_server() as url:
        yield url


@pytest.fixture
def postgres_url(postgres: str) -> str:
    """URL of a fresh, empty PostgreSQL database."""
    name = f"test_{next(_NUMBERS)}"
    engine = open_database(f"{postgres}/postgres")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return f"{postgres}/{name}"
