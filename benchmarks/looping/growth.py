"""What many checkpoints leave behind in the memory of our processes, on a stand-in of an engine that is soon through.

Trainer, watcher, worker, evaluator, probe and MLflow store are real. The last checkpoints but two are deleted, as
trainers do. Memory is the proportional set size (PSS), looked at twice a second.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.killing.engine import write_interpreter
from benchmarks.looping.beside import memory_mb
from benchmarks.looping.material import Workload, save_checkpoint
from benchmarks.looping.tracker_way import Watched, watched
from tests.trainer import rotate

OF_THE_TRAINER = 2
"""Checkpoints that the trainer keeps."""
LOOK_S = 0.5
SHOWN = (5, 20, 50, 75, 100, 125, 150, 175)
"""Checkpoints after which memory is shown, and the last one."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Memory in MB after so many checkpoints, by role, without the engine."""

    checkpoints: int
    now_mb: Mapping[str, float]
    highest_mb: float
    """All roles together, since the reading before."""


@dataclass
class Highest:
    """The largest sum that a thread has seen since it was last asked."""

    run: Watched
    _value_mb: float = 0.0
    _is_over: threading.Event = field(default_factory=threading.Event)

    def look(self) -> None:
        """Look until it is over."""
        while not self._is_over.wait(LOOK_S):
            self._value_mb = max(self._value_mb, sum(ours_mb(self.run).values()))

    def take(self) -> float:
        """Return the largest sum and begin anew."""
        value_mb, self._value_mb = self._value_mb, 0.0
        return value_mb

    def end(self) -> None:
        """Look no more."""
        self._is_over.set()


def measure_growth(home: Path, workload: Workload, checkpoints: int) -> list[Reading]:
    """Let the tracker follow so many checkpoints; print each reading when it is there, and return all."""
    home.mkdir(parents=True)
    readings = []
    with watched(home, workload, python=write_interpreter(home)) as run:
        highest = Highest(run)
        looking = threading.Thread(target=highest.look, daemon=True)
        for number in range(1, checkpoints + 1):
            saved = save_checkpoint(run.output_dir, number)
            run.follow(saved.step, saved.at_s)
            rotate(run.output_dir, OF_THE_TRAINER)
            if number == 1:
                looking.start()
            if number in (*SHOWN, checkpoints):
                readings.append(Reading(checkpoints=number, now_mb=ours_mb(run), highest_mb=highest.take()))
                show(readings[-1])
        highest.end()
        looking.join()
    return readings


def ours_mb(run: Watched) -> dict[str, float]:
    """Return the memory of each role but the engine."""
    return {role: size for role, size in memory_mb(run.tree()).items() if role not in ("engine", "gone")}


def show(reading: Reading) -> None:
    """Print one reading."""
    roles = ", ".join(f"{role} {size:.1f}" for role, size in sorted(reading.now_mb.items()))
    together = f"{sum(reading.now_mb.values()):.1f} MB, at most {reading.highest_mb:.1f}"
    print(f"after {reading.checkpoints:3} checkpoints: {together}; {roles}", flush=True)
