from pathlib import Path

import pytest

from eval_jobs.errors import CheckpointNotFound
from eval_jobs.types import CheckpointFormat
from tests import trainer
from tests.tiny_model import write_checkpoint, write_lora
from tracker.adapters.checkpoints.files.listing import models_beside, places_in
from tracker.adapters.checkpoints.folder.runs import find_runs


def test_a_trainers_output_folder_is_described(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        trainer.save(tmp_path / "out", step)
    (tmp_path / "out" / "checkpoint-40").mkdir()
    found = find_runs(tmp_path / "out")
    (run,) = found.runs
    assert (run.sub_folder, run.checkpoints, run.newest) == ("", 4, "checkpoint-40")
    assert run.complete is not None
    assert run.complete.path.name == "checkpoint-30"
    assert run.problem is not None
    assert run.problem.reason == "folder is empty"


def test_runs_in_sub_folders_logs_and_data_are_found(tmp_path: Path) -> None:
    base = write_checkpoint(tmp_path / "base")
    for run in ("v0-20260101", "v1-20260102"):
        write_lora(base, tmp_path / "out" / run / "checkpoint-10", rank=2)
        (tmp_path / "out" / run / "logging.jsonl").write_text("{}\n")
        (tmp_path / "out" / run / "val_dataset.jsonl").write_text("{}\n")
    (tmp_path / "exam.jsonl").write_text("{}\n")
    (tmp_path / "train.jsonl").write_text("{}\n")
    found = find_runs(tmp_path / "out")
    assert [run.sub_folder for run in found.runs] == ["v0-20260101", "v1-20260102"]
    complete = [run.complete.complete for run in found.runs if run.complete is not None]
    assert [(one.format, one.base_model) for one in complete if one] == [(CheckpointFormat.LORA, str(base))] * 2
    assert [path.name for path in found.training_data] == ["train.jsonl"]
    assert [path.name for path in found.data] == ["exam.jsonl", "val_dataset.jsonl", "val_dataset.jsonl"]


def test_data_beside_the_configuration_is_found_once(tmp_path: Path) -> None:
    for name in ("exam.jsonl", "评测/问答.jsonl", "runs/one/val.jsonl", "other/deep/far.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}\n")
    found = find_runs(tmp_path / "runs" / "one", tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in found.data] == [
        "exam.jsonl",
        "runs/one/val.jsonl",
        "评测/问答.jsonl",
    ]


@pytest.mark.parametrize(
    ("names", "steps", "others"),
    [
        (("step_10", "step_20", "best"), [10, 20], ["best"]),
        (("iter_0000050", "latest"), [50], ["latest"]),
        (("save_10", "save_20", "merged"), [10, 20], ["merged"]),
        (("v0/checkpoint-10", "v0/best", "v1/checkpoint-10"), [10, 10], ["v0/best"]),
        (("save_10", "."), [], [".", "save_10"]),
        (("epoch_0", "epoch_1"), [0, 1], []),
    ],
)
def test_names_are_learned_and_models_without_a_step_are_known(
    names: tuple[str, ...], steps: list[int], others: list[str], tmp_path: Path
) -> None:
    (tmp_path / "runs").mkdir()
    for name in names:
        trainer.save_model(tmp_path / name, seed=1)
    places = places_in(tmp_path, run_name="r")
    assert [place.step for place in places] == steps
    assert [str(one.path.relative_to(tmp_path)) for one in models_beside(tmp_path, places, run_name="r")] == others


def test_a_folder_without_checkpoints_is_described_too(tmp_path: Path) -> None:
    assert find_runs(tmp_path).runs == ()


def test_a_folder_that_is_none_says_so(tmp_path: Path) -> None:
    assert find_runs(tmp_path / "missing").runs == ()
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointNotFound, match="cannot list"):
        find_runs(tmp_path / "file")
