"""The PostgreSQL server of all tests, run as the user `postgres` because initdb refuses to run as root.

with shared(PostgresServer) as server:
    url = server.new_database()
"""

import os
import shutil
import signal
import subprocess
from pathlib import Path
from uuid import uuid4

import psycopg
from sqlalchemy import text

from eval_jobs.queue.database_sql import open_database
from tests.requires import requires_binary
from tests.shared_servers import free_port, start_detached, stop_detached

WITH_PASSWORD = "who_needs_a_password"  # noqa: S105 - a name
"""The role of users who enter with a password only."""


class PostgresServer:
    """A server that a test may stop and start again."""

    NAME = "postgresql"

    def __init__(self, folder: Path) -> None:
        self._programs = requires_binary("postgres", "postgresql").parent
        self._folder = folder
        self._as_postgres: list[str] = []
        if os.geteuid() == 0:
            self._as_postgres = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]

    @property
    def url(self) -> str:
        """Address of the server, without a name of a database."""
        return f"postgresql+psycopg://postgres@127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it, the first time with a new cluster."""
        is_new = not (self._folder / "data").exists()
        if is_new:
            self._create()
        program = [*self._as_postgres, str(self._programs / "postgres"), "-D", str(self._folder / "data")]
        options = ["-p", self._port, "-k", str(self._folder), "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]
        start_detached([*program, *options], self._folder, self._is_ready)
        if is_new:
            self._run_sql(f"CREATE ROLE {WITH_PASSWORD}")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it; by SIGQUIT as in a crash."""
        stop_detached(self._folder, how)

    def new_database(self, owner: str = "postgres") -> str:
        """Return the URL of a new, empty database that its owner enters."""
        name = f"test_{uuid4().hex}"
        self._run_sql(f"CREATE DATABASE {name} OWNER {owner}")
        return f"{self.url.replace('postgres@', f'{owner}@')}/{name}"

    def new_user(self, password: str) -> str:
        """Return the name of a new user who enters with this password only."""
        name = f"user_{uuid4().hex}"
        self._run_sql(f"CREATE ROLE {name} LOGIN PASSWORD '{password}' IN ROLE {WITH_PASSWORD}")
        return name

    # --- private

    @property
    def _port(self) -> str:
        return (self._folder / "port").read_text()

    def _create(self) -> None:
        (self._folder / "port").write_text(str(free_port()))
        if self._as_postgres:
            shutil.chown(self._folder, "postgres", "postgres")
        command = [str(self._programs / "initdb"), "-A", "trust", "-U", "postgres", "--no-sync"]
        command += ["-D", str(self._folder / "data")]
        subprocess.run([*self._as_postgres, *command], cwd=self._folder, check=True, stdout=subprocess.DEVNULL)
        hba = self._folder / "data" / "pg_hba.conf"
        hba.write_text(f"host all +{WITH_PASSWORD} 127.0.0.1/32 scram-sha-256\n{hba.read_text()}")

    def _is_ready(self) -> bool:
        try:
            psycopg.connect(host="127.0.0.1", port=int(self._port), user="postgres", dbname="postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def _run_sql(self, *statements: str) -> None:
        engine = open_database(f"{self.url}/postgres")
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for statement in statements:
                connection.execute(text(statement))
        engine.dispose()
