"""The rules of `tracker.ports.CurveReader`, for the fake and for the trainer's files."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from eval_jobs.types import Checkpoint
from tests import trainer
from tests.fakes.curves import FakeCurves
from tests.records import checkpoint_of
from tracker.adapters.curves import TrainerCurves
from tracker.domain.records.types import CurvePoint
from tracker.ports import CurveReader

LOSSES = {step: 5.0 / step for step in range(1, 21)}


@pytest.fixture(params=["fake", "trainer"])
def reader(request: pytest.FixtureRequest, tmp_path: Path) -> CurveReader:
    """A reader of a run that logged LOSSES at steps 1 to 20."""
    if request.param == "fake":
        points = (CurvePoint(key="train/loss", step=step, value=value) for step, value in LOSSES.items())
        return FakeCurves(points, last_step=10_000)
    for step in (10, 20):
        trainer.save(tmp_path, step)
    return TrainerCurves()


def checkpoint(tmp_path: Path, step: int) -> Checkpoint:
    folder = str(tmp_path / f"checkpoint-{step}")
    return replace(checkpoint_of("run", step), uri=folder, source_uri=folder)


def test_points_are_ordered_finite_and_unique(reader: CurveReader, tmp_path: Path) -> None:
    points = reader.read(checkpoint(tmp_path, 20))
    assert [p.step for p in points] == sorted(p.step for p in points)
    assert all(math.isfinite(p.value) for p in points)
    assert len({(p.key, p.step) for p in points}) == len(points)
    assert {p.step: p.value for p in points if p.key == "train/loss"} == LOSSES


def test_only_what_was_known_at_the_checkpoint_is_returned(reader: CurveReader, tmp_path: Path) -> None:
    assert max(p.step for p in reader.read(checkpoint(tmp_path, 10))) == 10


def test_the_last_step_is_what_the_trainer_says(reader: CurveReader, tmp_path: Path) -> None:
    assert reader.last_step(checkpoint(tmp_path, 10)) == 10_000
    assert reader.last_step(checkpoint(tmp_path / "elsewhere", 0)) is None


def test_a_run_without_curves_gives_none(reader: CurveReader, tmp_path: Path) -> None:
    assert reader.read(checkpoint(tmp_path / "elsewhere", 0)) == ()


def test_a_run_that_counts_epochs_has_none(tmp_path: Path) -> None:
    for name, read in (("step_2", ["train/loss"]), ("epoch_2", [])):
        saved = replace(checkpoint(tmp_path, 2), source_uri=str(tmp_path / name))
        (tmp_path / "checkpoint-2").mkdir(exist_ok=True)
        (tmp_path / "checkpoint-2" / "trainer_state.json").write_text('{"log_history": [{"step": 1, "loss": 2.0}]}')
        assert [point.key for point in TrainerCurves().read(saved)] == read
