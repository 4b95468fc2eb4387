"""Weights that somebody writes to while an engine reads them are found out, whenever that was."""

import os
from pathlib import Path

import pytest

from eval_jobs.errors import CheckpointUnreadable
from eval_jobs.serve.weights.digest_check import DigestCheck
from eval_jobs.types import Checkpoint
from tests.tiny_model import checkpoint_record, write_checkpoint


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return checkpoint_record(write_checkpoint(tmp_path / "pinned", seed=1), step=1)


def weights(checkpoint: Checkpoint) -> Path:
    return Path(checkpoint.uri, "model.safetensors")


def test_weights_that_are_written_to_after_they_were_hashed_are_not_served(checkpoint: Checkpoint) -> None:
    with DigestCheck(checkpoint) as check:
        check.demand()
        with weights(checkpoint).open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\x7f")
        with pytest.raises(CheckpointUnreadable, match="changed after the checkpoint was found"):
            check.demand()


def test_weights_whose_file_is_replaced_after_they_were_hashed_are_not_served(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    with DigestCheck(checkpoint) as check:
        check.demand()
        weights(checkpoint_record(write_checkpoint(tmp_path / "other", seed=2), step=2)).replace(weights(checkpoint))
        with pytest.raises(CheckpointUnreadable, match="changed after the checkpoint was found"):
            check.demand()


def test_equal_weights_are_served_whenever_they_were_written(checkpoint: Checkpoint) -> None:
    with DigestCheck(checkpoint) as check:
        check.demand()
        weights(checkpoint).touch()
        check.demand()
