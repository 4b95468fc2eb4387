"""Writes checkpoints as Hugging Face's Trainer does: its files, its order, its rotation by the folders' times.

save(output_dir, 10, seed=1, keep=2)
python -m tests.trainer OUTPUT_DIR --saves 40 --pause 0.3 --keep 2 --pins FOLDER
"""

import argparse
import json
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import save as to_bytes

HELD_WITHIN_S = 120.0
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}


def weights(seed: int, *, shape: tuple[int, ...] = (8, 16)) -> bytes:
    """Return a safetensors file of three small tensors."""
    generator = np.random.default_rng(seed)
    names = ("model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight", "lm_head.weight")
    tensors = {name: generator.normal(size=shape).astype(np.float32) for name in names}
    return bytes(to_bytes(tensors, {"format": "pt"}))


def trainer_state(step: int, *, save_steps: int = 10) -> Mapping[str, object]:
    """Return trainer_state.json at `step`, with a loss at every step."""
    history = [{"step": s, "epoch": s / 100, "loss": 5.0 / s, "learning_rate": 1e-4} for s in range(1, step + 1)]
    return {
        "global_step": step,
        "save_steps": save_steps,
        "best_global_step": None,
        "max_steps": 10_000,
        "log_history": history,
    }


def save_model(folder: Path, *, seed: int) -> Path:
    """Write what `save_pretrained` writes, the weights through a temporary file."""
    for _ in model_writes(folder, seed=seed):
        pass
    return folder


def save(output_dir: Path, step: int, *, seed: int | None = None, keep: int | None = None) -> Path:
    """Write one checkpoint in the Trainer's order, then rotate."""
    folder = output_dir / f"checkpoint-{step}"
    for _ in writes(folder, step, seed=step if seed is None else seed):
        pass
    if keep is not None:
        rotate(output_dir, keep)
    return folder


def model_writes(folder: Path, *, seed: int) -> Iterator[str]:
    """Do what `save_pretrained` does, one change to the disk at a time, and say which."""
    folder.mkdir(parents=True, exist_ok=True)
    yield "folder"
    write_json(folder / "config.json", CONFIG)
    yield "config.json"
    write_json(folder / "generation_config.json", {"eos_token_id": 2})
    yield "generation_config.json"
    temporary, content = folder / ".tmpA1b2C3", weights(seed)
    for part in (content[:100], content[100:]):
        with temporary.open("ab") as file:
            file.write(part)
        yield temporary.name
    temporary.rename(folder / "model.safetensors")
    yield "model.safetensors"
    write_json(folder / "tokenizer.json", {"version": "1.0"})
    yield "tokenizer.json"


def writes(folder: Path, step: int, *, seed: int) -> Iterator[str]:
    """Save one checkpoint in the Trainer's order, one change to the disk at a time, and say which."""
    yield from model_writes(folder, seed=seed)
    for name in ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth"):
        (folder / name).write_bytes(b"\0" * 64)
        yield name
    text = json.dumps(trainer_state(step))
    (folder / "trainer_state.json").write_text(text[: len(text) // 2], encoding="utf-8")
    yield "half of trainer_state.json"
    (folder / "trainer_state.json").write_text(text, encoding="utf-8")
    yield "trainer_state.json"


def rotate(output_dir: Path, keep: int) -> None:
    """Delete the oldest checkpoints by the folders' modification times, as transformers does."""
    folders = sorted(output_dir.glob("checkpoint-*"), key=lambda folder: folder.stat().st_mtime_ns)
    for folder in folders[: max(0, len(folders) - keep)]:
        shutil.rmtree(folder)


def wait_until_held(pins: Path, count: int) -> None:
    """Wait until a tracker holds so many checkpoints in `pins`, and no longer than HELD_WITHIN_S.

    No tracker can promise to be faster than a trainer on a machine that stands still for seconds.
    """
    started_s = time.monotonic()
    while len(list(pins.glob("*/*/.pin.json"))) < count and time.monotonic() - started_s < HELD_WITHIN_S:
        time.sleep(0.02)


def everything_below(folder: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Return path -> (inode, mtime, size, content) of a whole tree, folders included."""
    found = {}
    for path in sorted((folder, *folder.rglob("*"))):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (status.st_ino, status.st_mtime_ns, status.st_size, content)
    return found


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("--saves", type=int, default=10)
    parser.add_argument("--pause", type=float, default=0.3)
    parser.add_argument("--keep", type=int, default=2)
    parser.add_argument("--pins", type=Path, help="wait after each save until the tracker holds it there")
    arguments = parser.parse_args()
    for number in range(1, arguments.saves + 1):
        save(arguments.output_dir, number * 10, keep=arguments.keep)
        if arguments.pins is not None:
            wait_until_held(arguments.pins, number)
        time.sleep(arguments.pause)


if __name__ == "__main__":
    main()
