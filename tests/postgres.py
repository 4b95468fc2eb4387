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

from tests.requires import requires_binary


@contextmanager
def postgres_server() -> Iterator[str]:
    """Run a server and yield the URL of its database without a name: `postgresql+psycopg://postgres@127.0.0.1:PORT`."""
    programs = requires_binary("initdb", "postgresql").parent
    # Not pytest's folder: its parents are closed to other users.
    home = Path(tempfile.mkdtemp(prefix="tracker-postgres-"))
    as_postgres: list[str] = []
    if os.geteuid() == 0:
        as_postgres = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        shutil.chown(home, "postgres", "postgres")

    def run(program: str, *args: str) -> None:
        command = [*as_postgres, str(programs / program), "-D", str(home / "data"), *args]
        subprocess.run(command, cwd=home, check=True, stdout=subprocess.DEVNULL)

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    try:
        run("initdb", "-A", "trust", "-U", "postgres", "--no-sync")
        options = f"-p {port} -k {home} -c listen_addresses=127.0.0.1 -c fsync=off"
        run("pg_ctl", "-o", options, "-l", str(home / "log"), "-w", "start")
        try:
            yield f"postgresql+psycopg://postgres@127.0.0.1:{port}"
        finally:
            run("pg_ctl", "-m", "fast", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)
