"""A PostgreSQL cluster of a round's own; its server runs as a plain process, so that it can be killed like one."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

USER = "postgres"
PROGRAMS = Path("/usr/lib/postgresql")


def make_cluster(folder: Path) -> None:
    """Create `folder`/data."""
    folder.mkdir()
    if os.geteuid() == 0:
        shutil.chown(folder, USER, USER)
    command = [*_as_user(), str(_program("initdb")), "-D", str(folder / "data"), "-A", "trust", "-U", USER, "--no-sync"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def copy_cluster(source: Path, target: Path) -> None:
    """Copy a cluster whose server never ran, its owner included."""
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)


def server_command(folder: Path, port: int) -> list[str]:
    """Return what runs a server on the cluster in the foreground."""
    options = ["-p", str(port), "-k", str(folder), "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]
    return [*_as_user(), str(_program("postgres")), "-D", str(folder / "data"), *options]


def url_of(port: int) -> str:
    """Return the address of the cluster's only database."""
    return f"postgresql://{USER}@127.0.0.1:{port}/postgres"


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# --- private


def _as_user() -> list[str]:
    """PostgreSQL refuses to run as root."""
    return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"] if os.geteuid() == 0 else []


def _program(name: str) -> Path:
    found = shutil.which(name)
    return Path(found) if found else max(PROGRAMS.glob(f"*/bin/{name}"))
