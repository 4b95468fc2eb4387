"""A training of two ranks over gloo in which rank 1 goes wrong after step 10; it runs as a script of its own.

Rank 0 prints `step N | loss: X` on its standard output. The rank, the number of ranks and their address come from the
environment, as torchrun sets it.
"""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

WRONG_AT_STEP = 10


class Samples:
    """Samples without end; `go_wrong` runs in the worker of the data loader that reads the sample after step 10."""

    def __init__(self, go_wrong: Callable[[], None]) -> None:
        self.go_wrong = go_wrong

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == WRONG_AT_STEP:
            time.sleep(0.5)  # the thread that sends the samples before this one must not be stopped with it
            self.go_wrong()
        return torch.ones(4)


def nothing() -> None:
    pass


def sleep_for_ever() -> None:
    time.sleep(1e9)


def wait_for_a_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def spin() -> None:
    number = 0
    while True:
        number = (number + 1) % 1000


def stop_itself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def open_a_fifo(folder: Path) -> None:
    os.mkfifo(folder / "fifo")
    (folder / "fifo").open(encoding="utf-8").close()


def wait_at_a_barrier() -> None:
    dist.barrier()


def go_wrong(case: str, folder: Path) -> None:
    """Do in rank 1 what the case is called after."""
    ways: dict[str, Callable[[], None]] = {
        "sleep": sleep_for_ever,
        "lock": wait_for_a_lock,
        "spin": spin,
        "stop": stop_itself,
        "killed": kill_itself,
        "zombie": kill_itself,
        "collectives": wait_at_a_barrier,
        "fifo": lambda: open_a_fifo(folder),
    }
    ways.get(case, nothing)()


def batches(case: str, rank: int) -> Iterator[torch.Tensor]:
    wrong = {"loader": sleep_for_ever, "loader_stop": stop_itself, "loader_killed": kill_itself}.get(case)
    if wrong is None:
        while True:
            yield torch.ones(1, 4)
    yield from DataLoader(Samples(wrong if rank == 1 else nothing), num_workers=1, prefetch_factor=2)


def train_step(model: torch.nn.Module, batch: torch.Tensor, pause_s: float) -> float:
    loss = (model(batch) - 1.0).square().mean()
    loss.backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        dist.all_reduce(parameter.grad)
        parameter.data -= 0.01 * parameter.grad
        parameter.grad = None
    time.sleep(pause_s)
    return float(loss.detach())


def train(case: str, folder: Path, pause_s: float) -> None:
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = torch.nn.Linear(4, 1)
    for step, batch in enumerate(batches(case, rank), start=1):
        loss = train_step(model, batch, pause_s)
        if rank == 0:
            sys.stdout.write(f"step {step} | loss: {loss:.4f}\n")
            sys.stdout.flush()
        if step == WRONG_AT_STEP and rank == 1:
            go_wrong(case, folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", required=True)
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--pause_s", type=float, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    train(given.case, given.output_dir, given.pause_s)
