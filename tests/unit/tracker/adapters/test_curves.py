import json
from dataclasses import replace
from pathlib import Path

import pytest

from eval_jobs.types import Checkpoint
from tests.records import checkpoint_of
from tests.requires import shared_data
from tracker.adapters.curves import TrainerCurves
from tracker.domain.records.tracking import TrainerFacts
from tracker.domain.records.types import CurvePoint

REAL_STATES = (
    "trainer_state/Fujump__qlora.trainer_state.json",
    "trainer_state/Jaong__Checkpoint-of-CPT.trainer_state.json",
    "trainer_state/Ray-Cheng-11__Tau-Bench-Model-Training.trainer_state.json",
    "trainer_state/XXX616519__CogniDet_Repository.trainer_state.json",
    "trainer_state/lgc-FINANCE__DeepClima-R1.trainer_state.json",
    "trainer_state/ljh696__MetaMath.trainer_state.json",
    "trainer_state/poludmik__qlora-fine-tune.trainer_state.json",
    "trainer_state/syGOAT__Mistral-v0.2-Translator-bf16.trainer_state.json",
)


def checkpoint(tmp_path: Path, step: int) -> Checkpoint:
    """Return a checkpoint whose pin and trainer's folder lie in `tmp_path`."""
    for folder in (tmp_path / "pin", tmp_path / "out"):
        folder.mkdir(exist_ok=True)
    return replace(
        checkpoint_of("run", step),
        uri=str(tmp_path / "pin"),
        source_uri=str(tmp_path / "out" / f"checkpoint-{step}"),
    )


def keys(points: tuple[CurvePoint, ...]) -> set[str]:
    return {p.key for p in points}


def test_the_length_of_a_training_is_what_its_state_says_and_the_rest_what_its_other_files_say(tmp_path: Path) -> None:
    found = checkpoint(tmp_path, 10)
    (tmp_path / "pin" / "trainer_state.json").write_text('{"max_steps": 500, "num_train_epochs": 2}')
    (tmp_path / "pin" / "adapter_config.json").write_text('{"r": 8}')
    (tmp_path / "out" / "args.json").write_text(
        '{"max_steps": -1, "num_train_epochs": 3, "seed": 5, "run_name": "sft"}'
    )
    params = {"max_steps": "500", "num_train_epochs": "2", "seed": "5", "lora_r": "8"}
    assert TrainerCurves().facts(found) == TrainerFacts(name="sft", params=params)
    in_bucket = replace(found, uri="s3://b/out/checkpoint-10", source_uri="s3://b/out/checkpoint-10")
    assert TrainerCurves().facts(in_bucket) == TrainerFacts()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"log_history": 5}', '{"log_history": [1, null]}', "\x00\xff"])
def test_a_broken_state_gives_no_points_and_no_error(text: str, tmp_path: Path) -> None:
    found = checkpoint(tmp_path, 10)
    (tmp_path / "pin" / "trainer_state.json").write_text(text)
    assert TrainerCurves().read(found) == ()


def test_a_folder_that_is_gone_gives_no_points(tmp_path: Path) -> None:
    found = checkpoint(tmp_path, 10)
    (tmp_path / "pin").rmdir()
    (tmp_path / "out").rmdir()
    assert TrainerCurves().read(found) == ()


@pytest.mark.shared_data
@pytest.mark.parametrize("name", REAL_STATES)
def test_curves_of_real_runs_have_every_logged_loss(name: str, tmp_path: Path) -> None:
    text = shared_data(name).read_text()
    state = json.loads(text)
    found = checkpoint(tmp_path, state["global_step"])
    (tmp_path / "pin" / "trainer_state.json").write_text(text)
    losses = {row["step"]: row["loss"] for row in state["log_history"] if "loss" in row}
    points = TrainerCurves().read(found)
    assert losses
    assert {p.step: p.value for p in points if p.key == "train/loss"} == losses
    assert "train/learning_rate" in keys(points)
    assert not any("runtime" in key and not key.startswith(("train/eval", "train/predict")) for key in keys(points))
