"""The rules of `tracker.ports.CurveReader`, for the fake and for the trainer's files."""

import math
import os
from dataclasses import replace
from datetime import UTC, datetime
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


def test_curves_over_steps_are_left_out_of_a_run_that_counts_epochs(tmp_path: Path) -> None:
    (tmp_path / "logging.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    for name, read in (("step_2", ["train/loss"]), ("epoch_2", [])):
        saved = replace(checkpoint(tmp_path, 2), source_uri=str(tmp_path / name))
        assert [point.key for point in TrainerCurves().read(saved)] == read


def test_when_the_trainer_logged_last_is_known_of_lines_and_of_event_files(tmp_path: Path) -> None:
    reader, trained = TrainerCurves(), checkpoint(tmp_path / "out", 10)
    folder = tmp_path / "out" / "runs" / "Nov22_host"
    folder.mkdir(parents=True)
    assert reader.logged_at(trained) is None
    logs = (tmp_path / "out" / "logging.jsonl", folder / "events.out.tfevents.1.host")
    for second, log in enumerate(logs, start=1_700_000_000):
        log.write_text("{}")
        os.utime(log, (second, second))
        assert reader.logged_at(trained) == datetime.fromtimestamp(second, UTC)
    other = tmp_path / "out" / "questions.jsonl"  # no log: what somebody evaluates with, perhaps
    other.write_text("{}")
    assert reader.logged_at(trained) == datetime.fromtimestamp(1_700_000_001, UTC)
    assert reader.logged_at(replace(trained, source_uri="s3://bucket/out/checkpoint-10")) is None
