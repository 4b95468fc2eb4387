"""Starts jobs of two ranks, several at once, and ends every process of them when the block is left."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

HERE = Path(__file__).parent
HANGING = ("sleep", "lock", "spin", "stop", "loader", "loader_stop", "collectives", "fifo")
"""Cases in which both ranks remain and make no step."""
ENDING = ("killed", "zombie", "loader_killed")
"""Cases in which rank 1 ends, whereupon gloo ends rank 0."""
CASES = ("healthy", *HANGING, *ENDING)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One running job. `folder` is its output folder."""

    case: str
    folder: Path
    parent: subprocess.Popen[bytes]

    @property
    def log(self) -> Path:
        """The standard output of rank 0."""
        return self.folder / "train.log"

    def steps(self) -> int:
        """Return how many steps rank 0 reported."""
        return self.log.read_text("utf-8", "replace").count("| loss:")

    def processes(self) -> dict[str, psutil.Process]:
        """Return `rank0`, `rank1` and their data loaders' workers: `rank1-worker0`. Ranks that are gone are absent."""
        found = {}
        top = psutil.Process(self.parent.pid)
        ranks = sorted(child.pid for child in top.children())
        for process in top.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if (name := _name(process, ranks)) is not None:
                    found[name] = process
        return dict(sorted(found.items()))

    def rank(self, number: int) -> psutil.Process:
        """Return the process of a rank; it must still be there."""
        return self.processes()[f"rank{number}"]

    def wait_for_steps(self, steps: int, timeout_s: float = 60.0) -> None:
        """Return once rank 0 reported this many steps."""
        deadline = time.monotonic() + timeout_s
        while self.steps() < steps:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.case}: {self.steps()} of {steps} steps\n{self.log.read_text('utf-8')}")
            time.sleep(0.02)


@contextmanager
def jobs(
    root: Path, cases: Sequence[str] = CASES, *, pause_s: float = 0.3, torchrun: bool = False
) -> Iterator[dict[str, Job]]:
    """Yield running jobs by the name of their case; each writes to the folder of that name in `root`."""
    with ExitStack() as stack:
        ports = [stack.enter_context(socket.socket()) for _ in cases]
        for port in ports:  # all at once, so that no two jobs get the same one
            port.bind(("127.0.0.1", 0))
        numbers = [int(port.getsockname()[1]) for port in ports]
        for port in ports:
            port.close()
        yield {
            case: stack.enter_context(_job(case, root / case, _command(case, root / case, pause_s, torchrun), number))
            for case, number in zip(cases, numbers, strict=True)
        }


def is_alive(process: psutil.Process) -> bool:
    """Return whether a process still runs; a zombie does not: it only waits for its parent."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# --- private


def _command(case: str, folder: Path, pause_s: float, torchrun: bool) -> list[str]:  # noqa: FBT001
    script = [str(HERE / "job.py"), "--case", case, "--output_dir", str(folder), "--pause_s", str(pause_s)]
    if torchrun:
        return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *script]
    reaping = "leave" if case == "zombie" else "reap"
    return [sys.executable, str(HERE / "parent.py"), reaping, str(folder / "train.log"), sys.executable, *script]


@contextmanager
def _job(case: str, folder: Path, command: list[str], port: int) -> Iterator[Job]:
    folder.mkdir(parents=True, exist_ok=True)
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    with (folder / "train.log").open("ab") as log:
        parent = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | address,
            start_new_session=True,
        )
    with parent:
        try:
            yield Job(case=case, folder=folder, parent=parent)
        finally:
            _end(parent)


def _end(parent: subprocess.Popen[bytes]) -> None:
    """Kill the parent and everything below it, which torchrun starts in sessions of its own, until it is gone."""
    with contextlib.suppress(psutil.Error):
        below = psutil.Process(parent.pid).children(recursive=True)
        os.killpg(parent.pid, signal.SIGKILL)
        for process in below:
            with contextlib.suppress(psutil.Error):
                process.kill()
        while any(is_alive(process) for process in below):
            time.sleep(0.005)


def _name(process: psutil.Process, ranks: list[int]) -> str | None:
    """Return what a process is, given the children of the parent in the order of their start."""
    if process.status() == psutil.STATUS_ZOMBIE:  # its environment is gone
        return f"rank{ranks.index(process.pid)}" if process.pid in ranks else None
    if (rank := process.environ().get("RANK")) is None:
        return None
    above = process.parent()
    if above is not None and process.pid not in ranks and above.environ().get("RANK") == rank:
        return f"rank{rank}-worker0"
    return f"rank{rank}"
