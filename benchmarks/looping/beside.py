"""What the tracker costs others: memory, processor time while nothing happens, and a trainer's step time beside it.

python -m benchmarks.looping.beside      # the trainer: for each line on stdin a block of steps, its mean on stdout
"""

from __future__ import annotations

import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from scipy import stats

BLOCK_S = 4.0
ROLES = {
    "eval_jobs.execute.worker.main": "worker",
    "tracker.wiring.agent": "agent",
    "eval_jobs.evaluate.evalscope.child.main": "evaluator",
    "eval_jobs.probe.client.main": "probe",
}
"""Modules that our processes are started with; the watcher is the one that started them, all others are the engine."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """Of a trainer's step time, as a share."""

    mean: float
    low: float
    high: float
    """Of the interval that holds the true change with 95 % confidence."""
    step_ms: float
    """Without the tracker."""


def memory_mb(tree: Sequence[psutil.Process]) -> dict[str, float]:
    """Return the proportional set size of each of our processes, by role."""
    found: dict[str, float] = {}
    for position, process in enumerate(tree):
        role = "watcher" if position == 0 else role_of(process)
        try:
            rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        except OSError:  # it has ended
            continue
        kib = next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
        found[role] = found.get(role, 0.0) + kib / 1024
    return found


def idle_shares(tree: Sequence[psutil.Process], seconds: float) -> dict[str, float]:
    """Return the share of one core that each role takes while nothing happens."""
    before = {process.pid: _cpu_s(process) for process in tree}
    time.sleep(seconds)
    found: dict[str, float] = {}
    for position, process in enumerate(tree):
        role = "watcher" if position == 0 else role_of(process)
        found[role] = found.get(role, 0.0) + (_cpu_s(process) - before[process.pid]) / seconds
    return found


def role_of(process: psutil.Process) -> str:
    """Return what a process is there for."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return "gone"
    return next((ROLES[word] for word in words if word in ROLES), "engine")


def step_time_change(tree: Sequence[psutil.Process], pairs: int) -> Change:
    """Run a trainer in blocks, with the tracker and its engine stopped (SIGSTOP) and running in turn."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.looping.beside"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as trainer:
        _block(trainer)  # warms up
        changes, alone = [], []
        for number in range(pairs):
            # Running first in one pair and last in the next: a drift of the machine hits both alike.
            times = {is_running: _beside(tree, trainer, is_running=is_running) for is_running in _order(number)}
            changes.append(math.log(times[True] / times[False]))
            alone.append(times[False])
        trainer.stdin.close()  # type: ignore[union-attr]
    mean, error = statistics.mean(changes), statistics.stdev(changes) / math.sqrt(pairs)
    half = float(stats.t.ppf(0.975, pairs - 1)) * error
    low, middle, high = (math.expm1(value) for value in (mean - half, mean, mean + half))
    return Change(mean=middle, low=low, high=high, step_ms=1000 * statistics.median(alone))


# --- private


def _cpu_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def _order(number: int) -> tuple[bool, bool]:
    return (True, False) if number % 2 else (False, True)


def _beside(tree: Sequence[psutil.Process], trainer: subprocess.Popen[bytes], *, is_running: bool) -> float:
    if is_running:
        return _block(trainer)
    _signal(tree, signal.SIGSTOP)
    try:
        return _block(trainer)
    finally:
        _signal(tree, signal.SIGCONT)
        time.sleep(1.0)  # what waited meanwhile is done


def _signal(tree: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in tree:
        try:
            process.send_signal(number)
        except psutil.Error:
            continue


def _block(trainer: subprocess.Popen[bytes]) -> float:
    """Return the mean step time of one block, in seconds."""
    if trainer.stdin is None or trainer.stdout is None:
        raise TypeError("the trainer is spoken to through pipes")
    trainer.stdin.write(b"go\n")
    trainer.stdin.flush()
    return float(trainer.stdout.readline())


def _train() -> None:
    """Do steps of a small model on one core, as the trainer of the demo does."""
    import torch  # here: only this process needs it

    torch.manual_seed(0)
    layers = [torch.nn.Linear(512, 512) for _ in range(8)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = torch.randn(64, 512)
    for _ in sys.stdin:
        begun_s, steps = time.perf_counter(), 0
        while time.perf_counter() - begun_s < BLOCK_S:
            optimizer.zero_grad()
            (model(batch) - batch).square().mean().backward()
            optimizer.step()
            steps += 1
        sys.stdout.write(f"{(time.perf_counter() - begun_s) / steps}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _train()
