"""Checkpoints of forms that only a command of the user can convert: held first, named, converted once."""

import sys
import zipfile
from pathlib import Path

import pytest

from eval_jobs.types import Checkpoint
from tests import trainer
from tests.watched import Watched, watching

COPY = (
    "import pathlib, shutil, sys; source, target, model = map(pathlib.Path, sys.argv[1:]);"
    "assert source.exists(); shutil.copytree(model, target, dirs_exist_ok=True)"
)


def save_lightning(out: Path, step: int) -> Path:
    """Write what torch.save writes, a zip file, under Lightning's name."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"epoch={step // 100}-step={step}.ckpt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
    return path


def save_megatron(out: Path, step: int) -> Path:
    folder = out / f"iter_{step:07d}"
    folder.mkdir(parents=True)
    for name in ("common.pt", "metadata.json", "__0_0.distcp", ".metadata"):
        (folder / name).write_bytes(b"content")
    return folder


def save_nemo(out: Path, step: int) -> Path:
    folder = out / f"model-step={step}"
    for name in ("weights/common.pt", "weights/.metadata", "context/model.yaml"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"content")
    return folder


SAVES = {"Lightning": save_lightning, "Megatron-core": save_megatron, "NeMo": save_nemo}


def converted(watched: Watched) -> tuple[Checkpoint, ...]:
    found = watched.settle()
    while watched.source.is_behind():
        watched.source.wait(0.1)
        found += watched.look()
    return found + watched.look()


@pytest.mark.parametrize("form", SAVES)
def test_another_form_is_named_held_through_rotation_and_converted_by_a_later_command(
    form: str, tmp_path: Path
) -> None:
    model = trainer.save_model(tmp_path / "model", seed=9)
    with watching(tmp_path) as watched:
        path = SAVES[form](watched.out, 100)
        assert watched.steps() == []
        (gap,) = watched.source.gaps()
        assert (gap.step, form in gap.message, "watch.convert" in gap.hint) == (100, True, True)
        path.rename(tmp_path / "rotated away")
        watched.settle()
    command = (sys.executable, "-c", COPY, "{source}", "{target}", str(model))
    with watching(tmp_path, convert=command) as watched:
        (checkpoint,) = converted(watched)
        assert checkpoint.step == 100
        assert (Path(checkpoint.uri) / "model.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()
        names = {path.name for path in Path(checkpoint.uri).iterdir()}
        assert not any(name.endswith((".ckpt", ".pt", ".distcp")) or name in {"weights", "context"} for name in names)
        assert watched.source.gaps() == ()


def test_conversions_are_done_lowest_step_first(tmp_path: Path) -> None:
    model = trainer.save_model(tmp_path / "model", seed=9)
    command = (sys.executable, "-c", COPY, "{source}", "{target}", str(model))
    with watching(tmp_path, convert=command) as watched:
        for step in (300, 1000, 200):
            save_lightning(watched.out, step)
        assert [checkpoint.step for checkpoint in converted(watched)] == [200, 300, 1000]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ((sys.executable, "-c", "raise SystemExit('no such layer')", "{source}", "{target}"), "no such layer"),
        ((sys.executable, "-c", "pass", "{source}", "{target}"), "the result is not a Hugging Face folder"),
        (("/nowhere/python", "{source}", "{target}"), "No such file"),
    ],
)
def test_a_command_that_fails_is_a_gap_with_its_last_line(
    command: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    with watching(tmp_path, convert=command) as watched:
        save_lightning(watched.out, 100)
        assert converted(watched) == ()
        (gap,) = watched.source.gaps()
        assert (gap.code, message in gap.message, "watch.convert" in gap.hint) == ("E-CKPT-CONSOLIDATE", True, True)


def test_a_file_that_is_still_written_is_waited_for(tmp_path: Path) -> None:
    model = trainer.save_model(tmp_path / "model", seed=9)
    command = (sys.executable, "-c", COPY, "{source}", "{target}", str(model))
    with watching(tmp_path, convert=command) as watched:
        path = save_lightning(watched.out, 100)
        whole = path.read_bytes()
        path.write_bytes(whole[:-10])
        assert converted(watched) == ()
        assert watched.source.gaps() == ()
        path.write_bytes(whole)
        assert [checkpoint.step for checkpoint in converted(watched)] == [100]
