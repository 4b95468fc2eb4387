"""What counts as a save: weights and states, not what loggers and the tracker write below the same folder."""

from pathlib import Path

import pytest

from tracker.adapters.trainer_files.saved import LARGE_BYTES, saved_bytes


def grow(path: Path, size: int = 10) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(b"x" * size)


@pytest.mark.parametrize(
    "name",
    [
        "checkpoint-5/model.safetensors",
        "checkpoint-5/global_step5/zero_pp_rank_0.pt",
        "v0-20261127/checkpoint-5/optimizer.bin",
        ".tmp-checkpoint-5/pytorch_model.bin",
        "checkpoint-5/.model.safetensors.a7Xb2",
        "checkpoint-5/model-00001-of-00002.safetensors.incomplete",
        "checkpoint-5/x.tmp",
        "dcp/__0_0.distcp",
        "ckpt.pt",
    ],
)
def test_a_file_of_weights_or_of_a_state_that_grows_is_a_save(tmp_path: Path, name: str) -> None:
    grow(tmp_path / name)
    before = saved_bytes(tmp_path)
    grow(tmp_path / name)
    assert saved_bytes(tmp_path) == before + 10


@pytest.mark.parametrize(
    "name",
    [
        "wandb/run-1/weights.bin",
        "runs/Nov27_host/plot.bin",
        "v0-20261127/runs/x/plot.bin",
        "mlruns/0/model.pt",
        ".tracker/cache/model.safetensors",
        "state/cache/model.safetensors",
        "out/events.out.tfevents.1.host.bin",
        "out/train.log",
        "out/rank0.err",
        "out/metrics.jsonl",
        "out/loss.csv",
        "out/notes.txt",
        "out/cache.arrow",
        "train.log",
        "out/pid",
    ],
)
def test_a_log_that_grows_is_none(tmp_path: Path, name: str) -> None:
    grow(tmp_path / "checkpoint-1" / "model.safetensors")
    grow(tmp_path / name)
    assert saved_bytes(tmp_path, [tmp_path / "state"]) == 10


def test_a_large_file_without_an_extension_is_a_state(tmp_path: Path) -> None:
    grow(tmp_path / "orbax" / "d" / "a1b2c3", LARGE_BYTES)
    assert saved_bytes(tmp_path) == LARGE_BYTES


def test_a_folder_that_is_gone_has_saved_nothing(tmp_path: Path) -> None:
    assert saved_bytes(tmp_path / "gone") == 0
