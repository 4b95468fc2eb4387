"""What both ways measure: the questions, the settings, and a trainer that saves checkpoints when it is told to."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

from safetensors.numpy import load_file, save

from eval_jobs.types import ProbeLoad
from tests.tiny_model import write_checkpoint
from tests.trainer import trainer_state

BENCHMARKS = ("facts", "sums", "reversal")
SAMPLES = 50
"""Of each benchmark."""
LOAD = ProbeLoad()
MAX_MODEL_LEN = 512
SAVE_STEPS = 10
END_OF_ANSWER = 2
"""Token of the tiny model."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What is asked of every checkpoint, beside the load of the probe."""

    concurrency: int = 8
    max_tokens: int = 48
    """Of every answer of the tiny model: pure generation then takes some 3 s on two cores."""
    load: ProbeLoad = LOAD

    def toml(self) -> str:
        """Return the tables of tracker.toml that say the same."""
        benchmarks = "".join(f'[[benchmark]]\nbenchmark = "exact"\ndata = "{name}.jsonl"\n' for name in BENCHMARKS)
        suite = f"[suite]\nconcurrency = {self.concurrency}\nmax_tokens = {self.max_tokens}\n"
        probe = f"[probe]\nrequests = {self.load.requests}\nconcurrency = {self.load.concurrency}\n"
        return suite + benchmarks + probe


def questions(name: str) -> list[dict[str, str]]:
    """Return the rows of one benchmark."""
    offset = 1000 * BENCHMARKS.index(name)
    return [{"query": f"{name} {offset + n} + {n} = ?", "response": str(offset + 2 * n)} for n in range(SAMPLES)]


def write_questions(folder: Path) -> None:
    """Write one JSONL file for each benchmark, in keys that both ways understand."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in BENCHMARKS:
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in questions(name)))


@dataclass(frozen=True, kw_only=True)
class Saved:
    """One checkpoint of the trainer."""

    folder: Path
    step: int
    at_s: float
    """When its last byte was written, in seconds since 1970."""


def save_checkpoint(output_dir: Path, number: int, *, model: Path | None = None) -> Saved:
    """Write the checkpoint of a number from 1 as Hugging Face's Trainer does: weights by renaming, its state last.

    Args:
        output_dir: of the training run.
        number: also seeds the weights.
        model: a folder whose model is saved with slightly other weights; None: a tiny random one.
    """
    step = number * SAVE_STEPS
    folder = output_dir / f"checkpoint-{step}"
    weights = _write_model(folder, number, model)
    (folder / ".tmp-model").write_bytes(weights)
    (folder / ".tmp-model").rename(folder / "model.safetensors")
    for name in ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth"):
        (folder / name).write_bytes(b"\0" * 64)
    (folder / "trainer_state.json").write_text(json.dumps(trainer_state(step, save_steps=SAVE_STEPS)))
    return Saved(folder=folder, step=step, at_s=time.time())


# --- private


def _write_model(folder: Path, number: int, model: Path | None) -> bytes:
    """Write all files of the model but its weights, which are returned."""
    made = folder.with_name(f".making-{folder.name}")
    if model is None:
        write_checkpoint(made, seed=number)
    else:
        made.mkdir(parents=True)
        for path in model.glob("*.json"):
            (made / path.name).write_bytes(path.read_bytes())
        (made / "model.safetensors").hardlink_to(model / "model.safetensors")
    tensors = load_file(made / "model.safetensors")
    if model is None:
        # What ends an answer scores 0, below the best of all others: the length of answers is not a matter of chance.
        tensors["lm_head.weight"][END_OF_ANSWER] = 0
    else:
        tensors = {name: tensor * (1 + number / 1024) for name, tensor in tensors.items()}
    (made / "model.safetensors").unlink()
    made.rename(folder)
    return bytes(save(tensors, {"format": "pt"}))
