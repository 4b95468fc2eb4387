"""A trainer that writes 100 MB in four shards, in the Trainer's order, and keeps the newest two.

python -m tests.integration.sharded_training OUTPUT_DIR PINS --saves 8 --pause 1
"""

import argparse
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from tests import trainer

SHARDS = 4
SHAPE = (2_600, 2_500)


def weights(step: int, shard: int) -> NDArray[np.float32]:
    """Return the 26 MB of one shard: other numbers at every step, drawn once."""
    return _NOISE + np.float32(step + shard)


def save(output_dir: Path, step: int) -> None:
    """Write one checkpoint, then rotate."""
    folder = output_dir / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    trainer.write_json(folder / "config.json", trainer.CONFIG)
    names = {}
    for shard in range(SHARDS):
        name = f"model-{shard + 1:05d}-of-{SHARDS:05d}.safetensors"
        save_file({f"part.{shard}.weight": weights(step, shard)}, folder / ".tmpAbCdEf")
        (folder / ".tmpAbCdEf").rename(folder / name)
        names[f"part.{shard}.weight"] = name
    trainer.write_json(folder / "model.safetensors.index.json", {"weight_map": names})
    for name in ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth"):
        (folder / name).write_bytes(b"\0" * 64)
    trainer.write_json(folder / "trainer_state.json", trainer.trainer_state(step))
    trainer.rotate(output_dir, keep=2)


_NOISE = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("pins", type=Path)
    parser.add_argument("--saves", type=int, default=8)
    parser.add_argument("--pause", type=float, default=1.0)
    arguments = parser.parse_args()
    for number in range(1, arguments.saves + 1):
        save(arguments.output_dir, number * 10)
        trainer.wait_until_held(arguments.pins, number)
        time.sleep(arguments.pause)


if __name__ == "__main__":
    main()
