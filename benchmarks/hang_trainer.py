"""A healthy training of two ranks over gloo that pauses as long as real ones do: one process is one rank.

    python hang_trainer.py --output_dir FOLDER --times FILE      # RANK, WORLD_SIZE, MASTER_* as torchrun sets them

Rank 0 prints `step N | loss: X`, and writes the kind and the seconds of each step to FILE. With `--steady`, all steps
take equally long.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

STEP_S, LONG_S, EVAL_S, SAVE_S, STALL_S = 0.7, 20.0, 90.0, 60.0, 40.0
SIZE = 20_000


class Samples:
    """Samples without end; unless steady, the worker of rank 1's data loader sleeps for long now and then."""

    def __init__(self, *, is_steady: bool) -> None:
        self._stalls = not is_steady and os.environ["RANK"] == "1"

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if self._stalls and index % 60 == 55:
            time.sleep(STALL_S)
        return torch.ones(4)


class Work:
    """Calls of C that compute for about as many seconds as they are asked for."""

    def __init__(self) -> None:
        self._row = np.ones(SIZE)
        self._per_s = 1.0
        begun_s = time.perf_counter()
        for _ in range(3):
            self._call(SIZE)
        self._per_s = 3 * SIZE / (time.perf_counter() - begun_s)

    def compute(self, seconds: float) -> None:
        """Compute in one call."""
        self._call(max(1, int(self._per_s * seconds)))

    def _call(self, rows: int) -> None:
        np.einsum("i,j->", np.broadcast_to(np.ones(1), (rows,)), self._row, optimize=False)


def kind_of(step: int) -> str:
    """Return what a step does beside the ordinary; `stall` follows from the samples."""
    if step % 120 == 45:
        return "evaluation"
    if step % 90 == 30:
        return "save"
    if step % 60 == 56:
        return "stall"
    return "long" if step % 20 == 0 else "ordinary"


def evaluate(rank: int, work: Work) -> None:
    """Rank 0 computes, prints nothing, and the others wait."""
    begun_s = time.monotonic()
    while rank == 0 and time.monotonic() - begun_s < EVAL_S:
        work.compute(2.0)
    dist.barrier()


def save(rank: int, folder: Path) -> None:
    """Rank 0 writes slowly, as to a file server, and the others wait."""
    if rank == 0:
        folder.mkdir(parents=True)
        with (folder / "model.safetensors").open("wb") as file:
            for _ in range(int(SAVE_S)):
                file.write(b"\0" * (1 << 18))
                file.flush()
                time.sleep(1.0)
    dist.barrier()


def train(folder: Path, times: Path, *, is_steady: bool) -> None:
    """Train until the process is ended."""
    dist.init_process_group("gloo")
    rank, work = dist.get_rank(), Work()
    model = torch.nn.Linear(4, 1)
    begun_s = time.monotonic()
    with times.open("a", encoding="utf-8", buffering=1) if rank == 0 else Path(os.devnull).open("w") as file:
        for step, batch in enumerate(batches(is_steady=is_steady), start=1):
            kind = "ordinary" if is_steady else kind_of(step)
            takes_long = kind == "long" and (step // 20) % 3 != rank  # one of them alone, then both
            work.compute(LONG_S if takes_long else STEP_S)
            loss = learn(model, batch)
            if kind == "evaluation":
                evaluate(rank, work)
            elif kind == "save":
                save(rank, folder / f"checkpoint-{step}")
            begun_s, seconds = time.monotonic(), time.monotonic() - begun_s
            if rank == 0:
                sys.stdout.write(f"step {step} | loss: {loss:.4f}\n")
                sys.stdout.flush()
                file.write(f"{step}\t{kind}\t{time.time():.3f}\t{seconds:.4f}\n")


def batches(*, is_steady: bool) -> Iterator[torch.Tensor]:
    """Yield what one worker has read."""
    yield from DataLoader(Samples(is_steady=is_steady), num_workers=1, prefetch_factor=2)


def learn(model: torch.nn.Module, batch: torch.Tensor) -> float:
    """Do one step, and return the loss."""
    loss: torch.Tensor = (model(batch) - 1.0).square().mean()
    loss.backward()
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.data -= 0.01 * parameter.grad
            parameter.grad = None
    return float(loss.detach())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--times", type=Path, required=True)
    parser.add_argument("--steady", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    train(given.output_dir, given.times, is_steady=given.steady)
