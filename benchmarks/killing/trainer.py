"""A process that saves checkpoints as Hugging Face's Trainer does, is killed once in the middle, and rewinds once.

    python -m benchmarks.killing.trainer ROUND_DIR [--real-model]

Saves number i when ROUND_DIR/allowed says a number above i, and notes it in ROUND_DIR/saved. Started again after a
kill it goes on with the save that was not noted, in the same folder: so does a trainer that resumes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests import tiny_model
from tests.trainer import CONFIG, rotate, trainer_state, weights

KEEP = 2
WRITE_S = 0.01
WEIGHTS = "model.safetensors"


@dataclass(frozen=True, kw_only=True)
class Save:
    """One save of the script."""

    step: int
    seed: int
    dies: bool = False
    """The trainer is killed in the middle of it."""
    resumes: bool = False
    """What the killed one left is still there, so that nothing but time shows that the checkpoint is finished."""


SCRIPT = (
    Save(step=10, seed=10),
    Save(step=20, seed=20),
    Save(step=30, seed=30, dies=True),
    Save(step=30, seed=30, resumes=True),
    Save(step=40, seed=40),
    Save(step=50, seed=50),
    Save(step=50, seed=51),  # rewound to 40: other content for the same step
    Save(step=60, seed=61),
    Save(step=70, seed=71, dies=True),  # and nobody resumes
)
"""Nine saves, of which seven are complete checkpoints."""


def script_of(*, real: bool) -> tuple[Save, ...]:
    """Return what is saved; for a real engine, which takes long to start, three complete checkpoints."""
    return (*SCRIPT[:4], SCRIPT[-1]) if real else SCRIPT


def whole_saves(*, real: bool) -> tuple[Save, ...]:
    """Return the saves that leave a checkpoint."""
    return tuple(save for save in script_of(real=real) if not save.dies)


@cache
def files_of(seed: int, *, real: bool) -> Mapping[str, bytes]:
    """Return the files of a model in the order in which a trainer writes them."""
    if not real:
        config = json.dumps({**CONFIG, "vocab_size": 8})  # an engine that stays asks fixed prompts in it
        small = {"config.json": config.encode(), "generation_config.json": b'{"eos_token_id": 2}'}
        return small | {WEIGHTS: weights(seed), "tokenizer.json": b'{"version": "1.0"}'}
    with tempfile.TemporaryDirectory() as name:
        folder = tiny_model.write_checkpoint(Path(name) / "checkpoint-0", seed=seed)
        found = {path.name: path.read_bytes() for path in folder.iterdir()}
    first = ("config.json", "generation_config.json", WEIGHTS)
    return {name: found[name] for name in (*first, *sorted(found.keys() - {*first}))}


def hash_of_weights(seed: int, *, real: bool) -> str:
    """Return what `engine.hash_of` says of these weights."""
    return hashlib.sha256(files_of(seed, real=real)[WEIGHTS]).hexdigest()


def writes(folder: Path, save: Save, *, real: bool) -> Iterator[str]:
    """Do one save, one change to the disk at a time, and say which."""
    folder.mkdir(parents=True, exist_ok=True)
    yield "folder"
    for name, content in files_of(save.seed, real=real).items():
        if name == WEIGHTS:
            temporary = folder / f".tmp{os.urandom(3).hex()}"
            for part in (content[: len(content) // 2], content[len(content) // 2 :]):
                with temporary.open("ab") as file:
                    file.write(part)
                yield temporary.name
            temporary.rename(folder / name)
        else:
            (folder / name).write_bytes(content)
        yield name
    for name in ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth"):
        (folder / name).write_bytes(b"\0" * 64)
        yield name
    text = json.dumps(trainer_state(save.step))
    (folder / "trainer_state.json").write_text(text[: len(text) // 2], encoding="utf-8")
    yield "half of trainer_state.json"
    (folder / "trainer_state.json").write_text(text, encoding="utf-8")
    yield "trainer_state.json"


def read_number(path: Path) -> int:
    """Return the number in a file, 0 when there is none."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


def write_number(path: Path, number: int) -> None:
    """Write it whole or not at all."""
    draft = path.with_name(f".{path.name}")
    draft.write_text(str(number))
    draft.replace(path)


# --- private


def _train(home: Path, *, real: bool) -> None:
    script = script_of(real=real)
    while (number := read_number(home / "saved")) < len(script):
        if read_number(home / "allowed") <= number:
            time.sleep(0.02)
            continue
        save = script[number]
        for name in writes(home / "out" / f"checkpoint-{save.step}", save, real=real):
            if save.dies and name.startswith(".tmp"):
                write_number(home / "saved", number + 1)
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(WRITE_S)
        rotate(home / "out", KEEP)
        write_number(home / "saved", number + 1)


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("--real-model", action="store_true")
    options = parser.parse_args()
    _train(options.home, real=options.real_model)


if __name__ == "__main__":
    _main()
