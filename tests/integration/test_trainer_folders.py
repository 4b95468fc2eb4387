"""What real trainers leave on disk, built again without their weights: every checkpoint is found and understood."""

import base64
import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from eval_jobs.types import CheckpointFormat
from tests.requires import PROJECT
from tests.watched import watching
from tracker.adapters.curves import TrainerCurves

GOLDEN: dict[str, dict[str, dict[str, Any]]] = json.loads((PROJECT / "tests" / "trainer_folders.json").read_text())
LAST = {"torchtune": 4, "torchtune LoRA": 4}
UNSERVED = {
    "Lightning": "PyTorch Lightning checkpoint, which needs a converter",
    "torchtitan": "checkpoint of torchtitan, which needs a converter",
    "Trainer, FSDP2": "no config.json",
}
"""What is held, and why it is not served without a setting."""


def build(files: dict[str, dict[str, Any]], out: Path) -> None:
    """Write the files of a trainer's output folder, with two small tensors for each file of weights."""
    for name, content in files.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if "tensors" in content:
            tensors = {tensor: np.ones((2, 2), dtype=np.float32) for tensor in content["tensors"]}
            save_file(tensors, path, metadata={"format": "pt"})
        elif "json" in content:
            path.write_text(json.dumps(content["json"]))
        elif "text" in content:
            path.write_text("".join(line + "\n" for line in content["text"]))
        elif "packed" in content:
            path.write_bytes(zlib.decompress(base64.b64decode(content["packed"])))
        elif path.suffix == ".distcp":
            with path.open("wb") as file:
                file.truncate(content["bytes"])
        elif path.suffix in {".ckpt", ".pt", ".pth", ".bin"}:
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("archive/data.pkl", b"content")
        else:
            path.write_bytes(b"\0" * min(content["bytes"], 64))


@pytest.mark.parametrize("trainer", GOLDEN)
def test_the_folders_of_a_trainer_are_understood(trainer: str, tmp_path: Path) -> None:
    below = "lightning_logs/version_0/checkpoints" if trainer == "Lightning" else ""
    build(GOLDEN[trainer], tmp_path / "out")
    with watching(tmp_path, below=below) as watched:
        found = watched.settle()
        while watched.source.is_behind():  # a machine under load publishes in several calls
            found += watched.look()
        if trainer in UNSERVED:
            assert {gap.step for gap in watched.source.gaps()} >= {160, 200}
            assert {gap.message for gap in watched.source.gaps()} == {UNSERVED[trainer]}
            return
        assert watched.source.gaps() == ()
    expected = CheckpointFormat.FULL
    if trainer in {"TRL SFT LoRA", "LLaMA-Factory LoRA", "ms-swift LoRA"}:
        expected = CheckpointFormat.LORA
    assert {checkpoint.format for checkpoint in found} == {expected}
    assert max(checkpoint.step for checkpoint in found) == LAST.get(trainer, 200)
    if trainer not in LAST:
        assert any(point.key == "train/loss" for point in TrainerCurves().read(found[-1]))
