"""What an idle watch of a large folder costs: the share of one core, with file events and without."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.scale_data import write_training_output
from eval_jobs.host.clock import SystemClock
from tracker.adapters.checkpoints.folder.source import FilesystemSource
from tracker.app.daemon import TICK_S
from tracker.domain.checkpoints.watching import WatchOptions

FILES = 10
"""In each checkpoint folder."""


def idle_share(folder: Path, *, polling: bool, seconds: float) -> float:
    """Return CPU time / time while nothing happens in the training output below `folder`.

    Everything is pinned before the measurement begins; the loop is that of `tracker watch`, which asks every second.
    """
    clock = SystemClock()
    options = WatchOptions(settle_s=0.0, polling=polling)
    source = FilesystemSource("run", folder / "out", folder / f"pins-{polling}", options, clock)
    try:
        expected = sum(1 for _ in (folder / "out").iterdir())
        found = 0
        while found < expected:
            found += len(source.ready(clock.now()))
            source.wait(0.1)
        for _ in range(3):  # what the last pins set off has come to rest
            source.ready(clock.now())
            source.wait(TICK_S)
        begun, used = time.perf_counter(), time.process_time()
        while time.perf_counter() - begun < seconds:
            source.ready(clock.now())
            source.gaps()
            source.wait(TICK_S)
        return (time.process_time() - used) / (time.perf_counter() - begun)
    finally:
        source.close()


def watched_folder(folder: Path, *, checkpoints: int) -> Path:
    """Write a training output of `checkpoints` x `FILES` files and return `folder`."""
    write_training_output(folder / "out", checkpoints=checkpoints)
    return folder
