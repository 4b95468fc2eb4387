"""What it costs to watch 64 processes that look like the ranks of a training among 500."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.hang_watcher import Watcher, used_cpu_s

RANKS, PROCESSES = 64, 500
FINDS_S = 12.0
"""In which the watch finds the training and learns how often it logs steps."""
SLEEPS = "import time; time.sleep(1e6)"


def many(folder: Path, seconds: float) -> Iterator[str]:
    """Yield the share of a core, while the log has a step a second, and what a look costs."""
    folder.mkdir()
    with processes(folder), logging(folder / "train.log"):
        watcher = Watcher.of(folder)
        yield from watcher.watch(FINDS_S)  # not counted: it happens once
        yield from watcher.watch(seconds)
        watcher.close()
        found = watcher.job_watch.job
        yield (
            f"{len(found.ranks)} ranks of {found.world_size} among {PROCESSES} processes: "
            f"{100 * watcher.cpu_share:.2f} % of a core"
        )
        before_s = used_cpu_s()
        ids = [one.id for one in found.ranks.values()]
        samples = watcher.processes.samples(ids)
        readable = sum(sample.stack is not None for sample in samples.values())
        yield f"one reading of {readable} stacks takes {used_cpu_s() - before_s:.2f} s of CPU time"


@contextmanager
def processes(folder: Path) -> Iterator[None]:
    """Run sleeping processes, of which some look like ranks, while the context is open."""
    job = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    trainer = [sys.executable, "-S", "-E", "-c", SLEEPS, "--output_dir", str(folder)]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(RANKS):
            numbers = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            started.append(subprocess.Popen(trainer, env=os.environ | job | numbers))
        for number in range(PROCESSES - RANKS):
            started.append(subprocess.Popen(["sleep", f"{1_000_000 + number}"]))
        yield
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


@contextmanager
def logging(path: Path) -> Iterator[None]:
    """Log a step each second while the context is open."""
    is_over = threading.Event()

    def write() -> None:
        step = 0
        with path.open("w", encoding="utf-8", buffering=1) as file:
            while not is_over.wait(1.0):
                step += 1
                file.write(f"step {step} | loss: 2.5\n")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
