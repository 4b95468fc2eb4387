"""What the watch of a training's processes reports of a healthy one, and what it costs.

    python -m benchmarks.hang [--minutes 30] [--beside-minutes 10] [--many-s 60]

A training of two real ranks that evaluates, saves, waits for data and computes for long, on a machine that is busy: it
must report nothing with the default limits. Then the steps of a steady one, by turns with the watch and without it, on
a machine that does nothing else; and 64 processes that look like ranks among 500.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from rich.console import Console

from benchmarks.hang_many import many
from benchmarks.hang_watcher import Watcher
from tests.hung_jobs import parent
from tracker.app.health.job_watch import SAMPLES

TRAINER = Path(__file__).with_name("hang_trainer.py")
BUSY = 4
"""Processes that compute beside the training."""
TURN_S = 20.0
"""Of a steady training with the watch, and then without it."""


def main() -> None:
    """Print all three, and exit with 1 if anything was reported."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long the healthy training is watched")
    parser.add_argument("--beside-minutes", type=float, default=10.0, help="how long the steady training takes; 0: not")
    parser.add_argument("--many-s", type=float, default=60.0, help="how long many processes are watched; 0: not")
    given, console = parser.parse_args(), Console(soft_wrap=True)
    reported = 0
    with tempfile.TemporaryDirectory(prefix="bench-hang-") as name:
        if given.minutes:
            healthy = Healthy(folder=Path(name) / "out", watch_s=60 * given.minutes)
            for text in healthy.run():
                console.print(text, markup=False)
            reported = len(healthy.reported)
        if given.beside_minutes:
            console.print(beside(Path(name) / "beside", 60 * given.beside_minutes), markup=False)
        if given.many_s:
            for text in many(Path(name) / "many", given.many_s):
                console.print(text, markup=False)
    sys.exit(1 if reported else 0)


@dataclass(kw_only=True)
class Healthy:
    """A healthy training, watched as an agent watches it, but by this process, which counts."""

    folder: Path
    watch_s: float
    reported: list[str] = field(default_factory=list)

    def run(self) -> Iterator[str]:
        """Yield what was reported, and what it cost."""
        self.folder.mkdir()
        times = self.folder.with_name("times.tsv")
        with ExitStack() as stack:
            for _ in range(BUSY):
                stack.enter_context(busy())
            stack.enter_context(training(self.folder, times))
            wait_for(times)
            watcher = Watcher.of(self.folder)
            begun_s = time.time()
            for text in watcher.watch(self.watch_s):
                self.reported.append(text)
                yield text
            watcher.close()
            watched = [one for one in read_steps(times) if begun_s < one.begun_s]
        yield (
            f"{len(self.reported)} incidents in {self.watch_s / 60:.0f} minutes; {len(watched)} steps; "
            f"{watcher.stacks / SAMPLES:.1f} looks; longest time without progress {watcher.longest_s:.0f} s"
        )
        yield f"steps: {', '.join(kinds(watched))}"
        yield f"the watch took {100 * watcher.cpu_share:.2f} % of a core"


def beside(folder: Path, seconds: float) -> str:
    """Return how long a step takes with the watch and without it."""
    folder.mkdir()
    times = folder.with_name("steady.tsv")
    turns: list[tuple[float, float]] = []
    with training(folder, times, "--steady"):
        wait_for(times)
        watcher = Watcher.of(folder)
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            begun_s = time.time()
            for _ in watcher.watch(TURN_S):
                pass
            turns.append((begun_s, time.time()))
            threading.Event().wait(TURN_S)
        watcher.close()
        steps = read_steps(times)
    watched = [one for one in steps if any(begun < one.begun_s and one.ended_s < ended for begun, ended in turns)]
    alone = [one for one in steps if not any(begun < one.ended_s and one.begun_s < ended for begun, ended in turns)]
    with_s, without_s = usual(watched), usual(alone)
    return (
        f"a step takes {with_s:.4f} s with the watch ({len(watched)} steps) and {without_s:.4f} s without it "
        f"({len(alone)} steps): {100 * (with_s / without_s - 1):+.1f} %"
    )


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step, as the training measured it."""

    kind: str
    ended_s: float
    seconds: float

    @property
    def begun_s(self) -> float:
        """When it began."""
        return self.ended_s - self.seconds


def read_steps(times: Path) -> list[Step]:
    rows = [line.split("\t") for line in times.read_text("utf-8").splitlines()]
    return [Step(kind=kind, ended_s=float(at_s), seconds=float(seconds)) for _, kind, at_s, seconds in rows[1:]]


def usual(steps: Iterable[Step]) -> float:
    return median(one.seconds for one in steps if one.kind == "ordinary")


def kinds(steps: Iterable[Step]) -> list[str]:
    """Return how many steps of each kind there were, and the longest of them."""
    seconds: dict[str, list[float]] = {}
    for one in steps:
        seconds.setdefault(one.kind, []).append(one.seconds)
    return [f"{len(all_s)} {kind} (up to {max(all_s):.0f} s)" for kind, all_s in sorted(seconds.items())]


def wait_for(times: Path) -> None:
    """Return once the training has made its third step."""
    end_s = time.monotonic() + 120
    while not times.exists() or times.read_text("utf-8").count("\n") < 3:
        if time.monotonic() > end_s:
            raise TimeoutError(f"the training makes no steps: see {times.parent}")
        threading.Event().wait(0.2)


@contextmanager
def training(folder: Path, times: Path, *options: str) -> Iterator[None]:
    """Run both ranks while the context is open."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    script = [sys.executable, str(TRAINER), "--output_dir", str(folder), "--times", str(times), *options]
    command = [sys.executable, str(Path(parent.__file__)), "reap", str(folder / "train.log"), *script]
    with started(command, variables):
        yield


@contextmanager
def busy() -> Iterator[None]:
    """Compute in a process while the context is open."""
    with started([sys.executable, "-c", "while True: pass"]):
        yield


@contextmanager
def started(command: list[str], variables: Mapping[str, str] | None = None) -> Iterator[None]:
    """Run a command in a process group of its own, all of which is ended with the context."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, env=os.environ | dict(variables or {}), start_new_session=True
    ) as process:
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
