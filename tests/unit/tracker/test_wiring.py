"""What a tracker.toml becomes: the latency reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval_jobs.errors import CheckpointNotFound
from eval_jobs.types import Checkpoint
from tests.tiny_model import write_checkpoint
from tracker.config import parse_config
from tracker.wiring import Project


def project(folder: Path, probe: str) -> Project:
    (folder / "sums.jsonl").write_text('{"question": "1 + 1", "answer": "2"}\n')
    text = '[run]\nname = "r"\noutput_dir = "out"\n[[benchmark]]\nbenchmark = "exact"\ndata = "sums.jsonl"\n[probe]\n'
    return Project(parse_config(text + probe, folder / "tracker.toml"))


def test_a_reference_folder_is_pinned_apart_from_the_runs_own_checkpoints(tmp_path: Path) -> None:
    base = write_checkpoint(tmp_path / "base")
    reference = project(tmp_path, 'reference = "base"').measurement().reference
    assert isinstance(reference, Checkpoint)
    assert (reference.source_uri, reference.step) == (str(base), 0)
    assert Path(reference.uri).is_relative_to(tmp_path / ".tracker" / "reference")
    assert not (tmp_path / ".tracker" / "pins").exists()


def test_naming_it_again_gives_the_same_pin(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "checkpoint-7")
    first, second = (project(tmp_path, 'reference = "checkpoint-7"').measurement().reference for _ in range(2))
    assert first == second
    assert isinstance(first, Checkpoint)
    assert first.step == 7


def test_a_reference_that_is_not_there_is_said_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFound, match="base"):
        project(tmp_path, 'reference = "base"').measurement()


@pytest.mark.parametrize(
    ("probe", "expected"),
    [("", None), ('reference = "first"', "first"), ('enabled = false\nreference = "first"', None)],
)
def test_without_a_folder_nothing_is_pinned(tmp_path: Path, probe: str, expected: str | None) -> None:
    assert project(tmp_path, probe).measurement().reference == expected
    assert not (tmp_path / ".tracker").exists()
