"""Files of the right size that are not what the trainer meant to write, found when they are pinned."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from eval_jobs.errors import CheckpointIncomplete
from tests import trainer
from tests.tiny_model import random_tensors, write_checkpoint, write_lora, write_sharded_checkpoint
from tests.watched import Watched, watching
from tracker.adapters.checkpoints.files.safetensors_file import read_tensors
from tracker.adapters.checkpoints.folder.once import pin_folder
from tracker.adapters.checkpoints.pins.manifest import MANIFEST
from tracker.domain.checkpoints.raw.tensors import BLOCK_BYTES

ROW_BYTES = 3_596
DOWN = "model.layers.1.mlp.down_proj.weight"


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    with watching(tmp_path) as world:
        yield world


def saved(out: Path, step: int, tensors: dict[str, NDArray[np.float32]] | None = None) -> Path:
    """Write a checkpoint of the tiny model, of other tensors if given, and its trainer_state.json last."""
    folder = write_checkpoint(out / f"checkpoint-{step}", seed=step)
    if tensors is not None:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    trainer.write_json(folder / "trainer_state.json", trainer.trainer_state(step))
    return folder


def lose_tail(file: Path, begin: int) -> None:
    """Leave the file as a crashed file system does: of its full size, with a hole at its end."""
    size = file.stat().st_size
    os.truncate(file, begin)
    os.truncate(file, size)


def rewrite_state(folder: Path, step: int) -> None:
    trainer.write_json(folder / "trainer_state.json", trainer.trainer_state(step))


def one_gap(watched: Watched) -> str:
    (gap,) = watched.source.gaps()
    assert gap.code == "E-CKPT-INCOMPLETE"
    return gap.message


def test_a_tail_of_zeros_is_a_gap_until_the_step_is_saved_again(watched: Watched) -> None:
    folder = saved(watched.out, 10)
    whole = (folder / "model.safetensors").read_bytes()
    lose_tail(folder / "model.safetensors", len(whole) // 2 // BLOCK_BYTES * BLOCK_BYTES)
    rewrite_state(folder, 10)
    assert watched.steps() == []
    message = one_gap(watched)
    assert "has only zeros from byte" in message
    assert "to the end of the file" in message
    assert str(folder) in message
    assert not list(watched.pins.rglob(".held-*"))
    (folder / "model.safetensors").write_bytes(whole)
    rewrite_state(folder, 10)
    assert watched.steps() == [10]
    assert watched.source.gaps() == ()


@pytest.mark.slow
def test_a_tail_lost_at_any_block_of_the_disk_is_found_unless_a_row_happens_to_end_there(tmp_path: Path) -> None:
    folder = saved(tmp_path, 10, wide_tensors())
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    blocks = range(BLOCK_BYTES, len(whole) - 256, BLOCK_BYTES)
    missed = []
    for begin in blocks:
        file.write_bytes(whole)
        lose_tail(file, begin)
        try:
            pin_folder(folder, run_id="run", pins_dir=tmp_path / "pins")
        except CheckpointIncomplete:
            continue
        missed.append(begin)
    assert len(blocks) > 60
    start = read_tensors([file])[0].begin
    assert missed == [begin for begin in blocks if -(begin - start) % ROW_BYTES <= 8]
    assert len(missed) <= 1


def wide_tensors() -> dict[str, NDArray[np.float32]]:
    """Return matrices whose rows are as long as those of real models, so that hardly a block ends where a row does."""
    generator = np.random.default_rng(3)
    shape = (40, ROW_BYTES // 4)
    return {name: generator.normal(size=shape).astype(np.float32) for name in ("a", "b.weight", "c.weight")}


def test_a_shard_with_a_lost_tail_is_found_and_named(watched: Watched) -> None:
    folder = write_sharded_checkpoint(watched.out / "checkpoint-10", shards=3)
    shard = folder / "model-00002-of-00003.safetensors"
    lose_tail(shard, 5 * BLOCK_BYTES)
    rewrite_state(folder, 10)
    assert watched.steps() == []
    assert "model-00002-of-00003.safetensors has only zeros" in one_gap(watched)


def test_a_hole_inside_a_file_is_found(tmp_path: Path) -> None:
    folder = saved(tmp_path, 10, wide_tensors())
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(10 * BLOCK_BYTES)
        file.write(bytes(2 * BLOCK_BYTES))
    with pytest.raises(CheckpointIncomplete, match="has only zeros from byte 409"):
        pin_folder(folder, run_id="run", pins_dir=tmp_path / "pins")


def test_zeros_that_a_training_makes_are_pinned(watched: Watched) -> None:
    """Rows of padding, a matrix and norms that begin at zero, biases: of a real file, at the first checkpoint."""
    tensors = random_tensors(1)
    tensors["lm_head.weight"][-40:] = 0
    tensors["model.embed_tokens.weight"][-40:] = 0
    tensors["model.layers.1.self_attn.o_proj.weight"][:] = 0
    for name in tensors:
        if "norm" in name:
            tensors[name][:] = 0
    saved(watched.out, 10, tensors)
    assert watched.steps() == [10]


def test_an_adapter_at_step_0_whose_b_is_zero_is_pinned_and_one_that_turns_zero_is_not(watched: Watched) -> None:
    base = write_checkpoint(watched.out.parent / "base")

    def adapter(step: int, *, is_zero: bool) -> Path:
        folder = write_lora(base, watched.out / f"checkpoint-{step}", seed=step)
        tensors = load_file(folder / "adapter_model.safetensors")
        changed = {k: np.zeros_like(v) if is_zero and "lora_B" in k else v for k, v in tensors.items()}
        save_file(changed, folder / "adapter_model.safetensors")
        rewrite_state(folder, step)
        return folder

    adapter(10, is_zero=True)
    adapter(20, is_zero=False)
    assert watched.steps() == [10, 20]
    adapter(30, is_zero=True)
    assert watched.steps() == []
    assert "all zeros, but not at step 20" in one_gap(watched)


def test_a_missing_tensor_is_a_gap_although_any_engine_would_serve_it(watched: Watched) -> None:
    saved(watched.out, 10)
    saved(watched.out, 20, {k: v for k, v in random_tensors(20).items() if k != DOWN})
    assert watched.steps() == [10]
    assert f"tensor {DOWN} is missing" in one_gap(watched)
    saved(watched.out, 20)
    assert watched.steps() == [20]
    assert watched.source.gaps() == ()


def test_a_tensor_missing_in_the_first_checkpoint_is_found_by_its_config(watched: Watched) -> None:
    saved(watched.out, 10, {k: v for k, v in random_tensors(20).items() if k != DOWN})
    assert watched.steps() == []
    assert "but implied by its config.json" in one_gap(watched)


def test_what_the_config_does_not_define_is_compared_with_the_run_after_a_restart_too(tmp_path: Path) -> None:
    extra = {"adapter.gate.weight": np.ones((4, 4), dtype=np.float32)}
    with watching(tmp_path) as first:
        saved(first.out, 10, random_tensors(1) | extra)
        assert first.steps() == [10]
    with watching(tmp_path) as second:
        saved(second.out, 20)
        assert second.steps() == [10]
        assert "adapter.gate.weight is missing, but present at step 10" in one_gap(second)


def test_one_checkpoint_named_by_a_person_is_compared_with_its_pinned_siblings(tmp_path: Path) -> None:
    extra = {"adapter.gate.weight": np.ones((4, 4), dtype=np.float32)}
    pin_folder(saved(tmp_path / "out", 10, random_tensors(1) | extra), run_id="run", pins_dir=tmp_path / "pins")
    second = saved(tmp_path / "out", 20)
    with pytest.raises(CheckpointIncomplete, match=r"adapter\.gate\.weight is missing") as caught:
        pin_folder(second, run_id="run", pins_dir=tmp_path / "pins")
    assert "new output folder" in caught.value.hint
    elsewhere = shutil.copytree(second, tmp_path / "elsewhere" / "checkpoint-20")
    assert pin_folder(elsewhere, run_id="run", pins_dir=tmp_path / "pins").step == 20


def test_a_folder_among_the_pins_whose_name_has_no_step_is_passed_over(tmp_path: Path) -> None:
    out, pins = tmp_path / "out", tmp_path / "pins"
    for step in (10, 20):
        for odd in ("step-²-1", "step-1e3-1"):
            (pins / "r" / odd).mkdir(parents=True, exist_ok=True)
        assert pin_folder(saved(out, step), run_id="r", pins_dir=pins).step == step


def test_another_model_in_the_same_folder_is_pinned_with_a_note(tmp_path: Path) -> None:
    pin_folder(saved(tmp_path / "out", 10), run_id="run", pins_dir=tmp_path / "pins")
    left = {k: v for k, v in random_tensors(20).items() if ".layers.1." not in k}
    smaller = saved(tmp_path / "out", 20, left)
    config = json.loads((smaller / "config.json").read_text())
    trainer.write_json(smaller / "config.json", {**config, "num_hidden_layers": 1})
    checkpoint = pin_folder(smaller, run_id="run", pins_dir=tmp_path / "pins")
    manifest = json.loads((Path(checkpoint.uri) / MANIFEST).read_text())
    assert "num_hidden_layers" in manifest["pin"]["notes"][0]


def test_a_changed_tokenizer_beside_the_same_weights_is_what_is_pinned(tmp_path: Path) -> None:
    folder = saved(tmp_path / "out", 10)
    first = pin_folder(folder, run_id="run", pins_dir=tmp_path / "pins")
    trainer.write_json(folder / "tokenizer_config.json", {"chat_template": "new"})
    second = pin_folder(folder, run_id="run", pins_dir=tmp_path / "pins")
    assert (second.digest, second.step) == (first.digest, first.step)
    assert second.uri != first.uri
    assert "new" in (Path(second.uri) / "tokenizer_config.json").read_text()
    assert "new" not in (Path(first.uri) / "tokenizer_config.json").read_text()
    assert first.digest == second.digest
    assert first.files_digest != second.files_digest


def test_what_the_trainer_notes_for_itself_makes_no_other_checkpoint(tmp_path: Path) -> None:
    folder = trainer.save(tmp_path, 10)
    first = pin_folder(folder, run_id="run", pins_dir=tmp_path / "pins")
    trainer.write_json(folder / "trainer_state.json", {**trainer.trainer_state(10), "total_flos": 7})
    second = pin_folder(folder, run_id="run", pins_dir=tmp_path / "pins")
    assert (first.digest, first.files_digest) == (second.digest, second.files_digest)
    assert pin_folder(folder, run_id="run", pins_dir=tmp_path / "pins") == second
    assert len(list((tmp_path / "pins" / "run").iterdir())) == 2


def test_the_header_of_every_pin_lists_its_tensors(tmp_path: Path) -> None:
    checkpoint = pin_folder(saved(tmp_path / "out", 10), run_id="run", pins_dir=tmp_path / "pins")
    tensors = read_tensors([Path(checkpoint.uri) / "model.safetensors"])
    shapes = {t.name: t.shape for t in tensors}
    assert shapes == {name: tensor.shape for name, tensor in random_tensors(10).items()}
