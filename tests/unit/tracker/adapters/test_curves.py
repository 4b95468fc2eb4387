import json
from dataclasses import replace
from pathlib import Path

import pytest

from eval_jobs import limits
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


def test_the_trainers_state_wins_over_its_rounded_log(tmp_path: Path) -> None:
    found = checkpoint(tmp_path, 10)
    (tmp_path / "pin" / "trainer_state.json").write_text('{"log_history": [{"step": 5, "loss": 1.23456789}]}')
    (tmp_path / "out" / "logging.jsonl").write_text(
        '{"loss": 1.23, "global_step/max_steps": "5/20", "memory(GiB)": 2.5}\n'
        '{"loss": 1.11, "global_step/max_steps": "15/20"}\n'
    )
    assert TrainerCurves().read(found) == (
        CurvePoint(key="train/loss", step=5, value=1.23456789),
        CurvePoint(key="train/memory_GiB_", step=5, value=2.5),
    )


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


def test_a_log_is_read_past_broken_lines(tmp_path: Path) -> None:
    found = checkpoint(tmp_path, 10)
    (tmp_path / "out" / "trainer_log.jsonl").write_bytes(
        b'{"current_steps": 1, "loss": 3.0}\nhello\n\xff\xfe\n\n'
        b'{"current_steps": 2, "loss": 2.0}\n{"current_steps": 3, "lo'
    )
    assert [(p.step, p.value) for p in TrainerCurves().read(found)] == [(1, 3.0), (2, 2.0)]


def test_logs_of_lightning_and_llama_factory_give_curves_with_the_usual_names(tmp_path: Path) -> None:
    found = checkpoint(tmp_path, 20)
    (tmp_path / "metrics.csv").write_text(
        "epoch,step,train_loss,val_loss\n0,9,1.5,\n0,9,,1.7\n0,19,1.2,\n0,29,1.1,\n,,,\n"
    )
    (tmp_path / "out" / "trainer_log.jsonl").write_text('{"current_steps": 5, "lr": 0.001, "percentage": 25.0}\n')
    assert {(p.key, p.step): p.value for p in TrainerCurves().read(found)} == {
        ("train/loss", 10): 1.5,
        ("train/loss", 20): 1.2,
        ("train/eval_loss", 10): 1.7,
        ("train/epoch", 10): 0.0,
        ("train/epoch", 20): 0.0,
        ("train/learning_rate", 5): 0.001,
    }


def test_a_table_of_many_columns_and_short_rows_is_read_row_by_row(tmp_path: Path) -> None:
    found = checkpoint(tmp_path, 20)
    header = "step,loss," + ",".join(f"c{n}" for n in range(130_000))
    (tmp_path / "metrics.csv").write_text(header + "\n" + "9,1.5\n" * 100_000)  # 13 thousand million cells
    assert [(p.step, p.value) for p in TrainerCurves().read(found)] == [(10, 1.5)]


def test_a_log_of_too_many_values_gives_its_first_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "LOG_VALUES", replace(limits.LOG_VALUES, most=5))
    found = checkpoint(tmp_path, 20)
    (tmp_path / "out" / "log.jsonl").write_text("".join(f'{{"step": {n}, "loss": {n}.5}}\n' for n in range(1, 5)))
    assert [p.step for p in TrainerCurves().read(found)] == [1, 2]
    assert "is larger than 5 values" in caplog.text


def test_data_beside_the_checkpoints_is_no_log(tmp_path: Path) -> None:
    found = checkpoint(tmp_path, 10)
    (tmp_path / "out" / "val_dataset.jsonl").write_text('{"step": 1, "loss": 3.0}\n')
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


@pytest.mark.shared_data
def test_a_real_ms_swift_log_has_its_steps(tmp_path: Path) -> None:
    text = shared_data("train_logs/ms_swift/DeepClima_logging.jsonl").read_text()
    found = checkpoint(tmp_path, 400)
    (tmp_path / "out" / "logging.jsonl").write_text(text)
    points = TrainerCurves().read(found)
    losses = [(p.step, p.value) for p in points if p.key == "train/loss"]
    assert losses[:2] == [(1, 20.53074074), (10, 3.94745)]
    assert losses[-1][0] == 400
    assert [p.step for p in points if p.key == "train/eval_loss"] == [100, 200, 300, 400]
