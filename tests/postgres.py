"""A PostgreSQL server of our own for tests, run as the user `postgres` because initdb refuses to run as root."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import text

from eval_jobs.queue.database_sql import open_database
from tests import starts
from tests.requires import requires_binary


class PostgresServer:
    """A server that a test may stop and start again. `url` has no name of a database."""

    def __init__(self) -> None:
        self._programs = requires_binary("initdb", "postgresql").parent
        # Not pytest's folder: its parents are closed to other users.
        self._home = Path(tempfile.mkdtemp(prefix="tracker-postgres-"))
        self._as_postgres: list[str] = []
        if os.geteuid() == 0:
            self._as_postgres = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
            shutil.chown(self._home, "postgres", "postgres")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.url = f"postgresql+psycopg://postgres@127.0.0.1:{self._port}"

    def create(self) -> None:
        self._run("initdb", "-A", "trust", "-U", "postgres", "--no-sync")

    def start(self) -> None:
        options = f"-p {self._port} -k {self._home} -c listen_addresses=127.0.0.1 -c fsync=off"
        starts.note("postgresql")
        self._run("pg_ctl", "-o", options, "-l", str(self._home / "log"), "-w", "start")

    def add_user(self, name: str, password: str) -> None:
        """Add a user who enters with a password only."""
        engine = open_database(f"{self.url}/postgres")
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            hba = Path(str(connection.scalar(text("SHOW hba_file"))))
            hba.write_text(f"host all {name} 127.0.0.1/32 scram-sha-256\n{hba.read_text()}")
            connection.execute(text("SELECT pg_reload_conf()"))
            connection.execute(text(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'"))
            connection.execute(text(f"GRANT ALL ON SCHEMA public TO {name}"))
        engine.dispose()

    def stop(self, mode: str = "fast") -> None:
        """Stop it; `immediate` is like a crash."""
        self._run("pg_ctl", "-m", mode, "stop")

    def remove(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)

    def _run(self, program: str, *args: str) -> None:
        command = [*self._as_postgres, str(self._programs / program), "-D", str(self._home / "data"), *args]
        subprocess.run(command, cwd=self._home, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def postgres_server() -> Iterator[str]:
    """Run a server and yield the URL of its database without a name: `postgresql+psycopg://postgres@127.0.0.1:PORT`."""
    with restartable_postgres() as server:
        yield server.url


@contextmanager
def restartable_postgres() -> Iterator[PostgresServer]:
    """Run a server that the test may stop and start; it must run in the end."""
    server = PostgresServer()
    try:
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        server.remove()
