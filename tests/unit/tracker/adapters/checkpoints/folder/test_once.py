import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_jobs.errors import (
    CheckpointError,
    CheckpointIncomplete,
    CheckpointNotFound,
    CheckpointUnreadable,
    CheckpointUnsafe,
    StoreError,
)
from eval_jobs.types import CheckpointFormat
from tests import trainer
from tests.tiny_model import write_checkpoint, write_lora, write_sharded_checkpoint
from tracker.adapters.checkpoints.folder.once import pin_folder


def test_a_trainers_checkpoint_is_pinned_under_its_step(tmp_path: Path) -> None:
    folder = trainer.save(tmp_path, 10)
    checkpoint = pin_folder(folder, run_id="run", pins_dir=tmp_path / "pins")
    assert (checkpoint.step, checkpoint.run_id, checkpoint.source_uri) == (10, "run", str(folder))
    assert Path(checkpoint.uri, "model.safetensors").samefile(folder / "model.safetensors")


def test_a_model_without_a_step_is_no_part_of_the_run_unless_a_step_is_given(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "qwen 2")
    apart = pin_folder(folder, run_id="run", pins_dir=tmp_path / "pins")
    assert (apart.run_id, apart.step) == ("run/qwen 2", 0)
    given = pin_folder(folder, run_id="run", pins_dir=tmp_path / "pins", step=70)
    assert (given.run_id, given.step) == ("run", 70)


@pytest.mark.parametrize(("max_steps", "run_id", "step"), [(20, "run", 20), (500, "run/out", 0)])
def test_a_final_save_has_the_last_step_if_the_training_reached_it(
    tmp_path: Path, max_steps: int, run_id: str, step: int
) -> None:
    trainer.save_model(tmp_path / "out", seed=3)
    for saved in (10, 20):
        state = trainer.save(tmp_path / "out", saved) / "trainer_state.json"
        state.write_text(json.dumps(json.loads(state.read_text()) | {"max_steps": max_steps}))
    checkpoint = pin_folder(tmp_path / "out", run_id="run", pins_dir=tmp_path / "pins")
    assert (checkpoint.run_id, checkpoint.step) == (run_id, step)


def test_a_checkpoint_and_the_model_in_it_have_the_step_in_its_name(tmp_path: Path) -> None:
    inner = write_checkpoint(tmp_path / "global_step_50" / "actor" / "huggingface", seed=1)
    for path in (tmp_path / "global_step_50", inner):
        checkpoint = pin_folder(path, run_id="run", pins_dir=tmp_path / "pins")
        assert (checkpoint.run_id, checkpoint.step, checkpoint.source_uri) == ("run", 50, str(inner))
    own = trainer.save(tmp_path / "step-5", 100)
    assert pin_folder(own, run_id="run", pins_dir=tmp_path / "pins").step == 100


def test_trainer_state_says_the_step_of_a_folder_with_another_name(tmp_path: Path) -> None:
    folder = trainer.save(tmp_path, 10).rename(tmp_path / "final")
    assert pin_folder(folder, run_id="run", pins_dir=tmp_path / "pins").step == 10


def test_shards_are_pinned_together(tmp_path: Path) -> None:
    folder = write_sharded_checkpoint(tmp_path / "checkpoint-5", shards=3)
    checkpoint = pin_folder(folder, run_id="run", pins_dir=tmp_path / "pins")
    assert len(list(Path(checkpoint.uri).glob("*.safetensors"))) == 3


def test_an_adapter_is_pinned_with_its_base(tmp_path: Path) -> None:
    base = write_checkpoint(tmp_path / "base")
    adapter = write_lora(base, tmp_path / "checkpoint-7", rank=2)
    checkpoint = pin_folder(adapter, run_id="run", pins_dir=tmp_path / "pins")
    assert (checkpoint.format, checkpoint.base_model) == (CheckpointFormat.LORA, str(base))


def test_a_snapshot_of_links_as_the_hub_cache_keeps_is_followed(tmp_path: Path) -> None:
    blobs = trainer.save_model(tmp_path / "blobs", seed=1)
    snapshot = tmp_path / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    for blob in blobs.iterdir():
        (snapshot / blob.name).symlink_to(Path("../../blobs") / blob.name)
    checkpoint = pin_folder(snapshot, run_id="run", pins_dir=tmp_path / "pins")
    pinned = Path(checkpoint.uri) / "model.safetensors"
    assert not pinned.is_symlink()
    assert pinned.samefile(blobs / "model.safetensors")


def test_pinning_twice_gives_one_pin(tmp_path: Path) -> None:
    folder = trainer.save(tmp_path, 10)
    first = pin_folder(folder, run_id="run", pins_dir=tmp_path / "pins")
    assert pin_folder(folder, run_id="run", pins_dir=tmp_path / "pins") == first
    assert len(list((tmp_path / "pins" / "run").iterdir())) == 1


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("truncated")


@settings(deadline=None)
@given(
    kept=st.integers(0, len(trainer.weights(10)) - 1), name=st.sampled_from(["model.safetensors", "two.safetensors"])
)
def test_no_truncated_file_whatever_is_ever_pinned(kept: int, name: str, scratch: Path) -> None:
    folder = trainer.save(scratch / "out", 10)
    index = folder / "model.safetensors.index.json"
    if name == "two.safetensors":
        (folder / "model.safetensors").rename(folder / name)
        trainer.write_json(index, {"weight_map": {"lm_head.weight": name}})
    (folder / name).write_bytes(trainer.weights(10)[:kept])
    with pytest.raises(CheckpointIncomplete):
        pin_folder(folder, run_id="run", pins_dir=scratch / "pins")
    shutil.rmtree(folder)


def damage_nothing(folder: Path) -> None:
    shutil.rmtree(folder)


def damage_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("a file")


def damage_empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def damage_truncate(folder: Path) -> None:
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(500)


def damage_zero(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")


def damage_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\xff" * 2000)


def damage_config(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": ')


def damage_state(folder: Path) -> None:
    (folder / "trainer_state.json").write_text("[1, 2]")


def damage_no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def damage_nan(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(trainer.weights(1)[:-4] + b"\xff\xff\xff\x7f")


def damage_pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def damage_index(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    (folder / "model.safetensors.index.json").write_text("not JSON")


def damage_wrong_step(folder: Path) -> None:
    trainer.write_json(folder / "trainer_state.json", trainer.trainer_state(11))


@pytest.mark.parametrize(
    ("damage", "error", "words"),
    [
        (damage_nothing, CheckpointNotFound, "does not exist"),
        (damage_file, CheckpointNotFound, "is a file"),
        (damage_empty, CheckpointNotFound, "is empty"),
        (damage_truncate, CheckpointIncomplete, "has 500 bytes, expected"),
        (damage_zero, CheckpointIncomplete, "0 bytes long"),
        (damage_header, CheckpointUnreadable, "no safetensors header"),
        (damage_config, CheckpointUnreadable, "config.json is not valid JSON"),
        (damage_state, CheckpointUnreadable, "trainer_state.json is not a JSON object"),
        (damage_no_config, CheckpointIncomplete, "config.json is missing"),
        (damage_nan, CheckpointUnreadable, "contains NaN or Inf"),
        (damage_pickle, CheckpointUnsafe, "pytorch_model.bin"),
        (damage_index, CheckpointUnreadable, "index.json is not valid JSON"),
        (damage_wrong_step, CheckpointIncomplete, "has step 11, the folder name has 10"),
    ],
)
def test_bad_input_gets_one_clear_message_and_leaves_no_pin(
    damage: Callable[[Path], None], error: type[CheckpointError], words: str, tmp_path: Path
) -> None:
    folder = trainer.save(tmp_path / "out", 10)
    damage(folder)
    with pytest.raises(error, match="checkpoint-10") as caught:
        pin_folder(folder, run_id="run", pins_dir=tmp_path / "pins")
    assert type(caught.value) is error
    assert words in caught.value.message
    assert caught.value.hint
    assert not list((tmp_path / "pins").glob("*/*"))


def test_an_output_folder_instead_of_a_checkpoint_gets_the_names_inside(tmp_path: Path) -> None:
    trainer.save(tmp_path / "out", 10)
    trainer.save(tmp_path / "out", 20)
    with pytest.raises(CheckpointNotFound, match="is not a checkpoint") as caught:
        pin_folder(tmp_path / "out", run_id="run", pins_dir=tmp_path / "pins")
    assert "checkpoint-10, checkpoint-20" in caught.value.hint


def test_a_place_for_pins_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    folder = trainer.save(tmp_path / "out", 10)
    (tmp_path / "pins").write_text("a file")
    with pytest.raises(StoreError, match="cannot pin"):
        pin_folder(folder, run_id="run", pins_dir=tmp_path / "pins")
