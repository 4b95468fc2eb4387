"""Servers that are started once in a run: by whichever process of it asks first, for all of them.

    with shared(PostgresServer) as server:      # others may use it meanwhile
        ...
    with alone_with(PostgresServer) as server:  # for this test alone: it may stop it, and must start it again
        ...

They run in folders below one that `begin` makes, and end when the run ends.
"""

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeVar

import psutil
import pytest

from tests import starts

VARIABLE = "TESTS_SHARED_SERVERS"
PATIENCE_S = 60.0
POLL_S = 0.05
STOP_S = 20.0

GUARD = 'while kill -0 "$(cat "$1/owner")"; do sleep 2; done 2> /dev/null; kill -INT "$(cat "$1/$2/pid")" 2> /dev/null'
"""Ends a server whose run was killed; where the run ended well, there is none any more."""


class Server(Protocol):
    """A server that is known by its folder: any process may ask for its address, or stop and start it."""

    NAME: str

    def __init__(self, folder: Path) -> None: ...

    def start(self) -> None:
        """Start it in its folder, by `start_detached`, and return when it answers."""


S = TypeVar("S", bound=Server)


def begin(config: pytest.Config) -> None:
    """Have this process, and those that it starts, share servers; end them when this one ends."""
    if VARIABLE not in os.environ:
        folder = Path(tempfile.mkdtemp(prefix="tracker-servers-"))
        folder.chmod(0o755)  # PostgreSQL runs as another user
        (folder / "owner").write_text(str(os.getpid()))
        os.environ[VARIABLE] = str(folder)
        config.add_cleanup(lambda: _end_all(folder))


@contextmanager
def shared(kind: type[S]) -> Iterator[S]:
    """Use a server together with others."""
    with _locked(kind, fcntl.LOCK_SH) as server:
        yield server


@contextmanager
def alone_with(kind: type[S]) -> Iterator[S]:
    """Use a server when nobody else does."""
    with _locked(kind, fcntl.LOCK_EX) as server:
        yield server


def start_detached(command: Sequence[str], folder: Path, is_ready: Callable[[], bool]) -> None:
    """Start what outlives this process, and return when it is ready: it writes to `folder`/log."""
    script = 'echo $$ > pid; exec "$@" >> log 2>&1'
    subprocess.run(
        ["setsid", "--fork", "sh", "-c", script, "sh", *command], cwd=folder, stdin=subprocess.DEVNULL, check=True
    )
    pause = threading.Event()
    for _ in range(int(PATIENCE_S / POLL_S)):
        if is_ready():
            return
        pause.wait(POLL_S)
    raise AssertionError((folder / "log").read_text())


def stop_detached(folder: Path, number: signal.Signals = signal.SIGINT) -> None:
    """Stop it with all that it started."""
    with suppress(FileNotFoundError, psutil.NoSuchProcess):
        leader = psutil.Process(int((folder / "pid").read_text()))
        family = [leader, *leader.children(recursive=True)]
        leader.send_signal(number)
        _, left = psutil.wait_procs(family, STOP_S)
        for process in left:
            process.kill()
        psutil.wait_procs(left, STOP_S)


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# --- private


@contextmanager
def _locked(kind: type[S], how: int) -> Iterator[S]:
    root = Path(os.environ[VARIABLE])
    with (root / f"{kind.NAME}.lock").open("ab") as lock:
        server = _started(kind, root)
        fcntl.flock(lock, how)
        yield server


def _started(kind: type[S], root: Path) -> S:
    folder = root / kind.NAME
    with (root / f"{kind.NAME}.start").open("ab") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        if not (folder / "started").exists():
            folder.mkdir(exist_ok=True)
            starts.note(kind.NAME)
            subprocess.run(["setsid", "--fork", "sh", "-c", GUARD, "sh", str(root), kind.NAME], check=True)
            kind(folder).start()
            (folder / "started").touch()
    return kind(folder)


def _end_all(root: Path) -> None:
    for pid in root.glob("*/pid"):
        stop_detached(pid.parent)
    shutil.rmtree(root, ignore_errors=True)
