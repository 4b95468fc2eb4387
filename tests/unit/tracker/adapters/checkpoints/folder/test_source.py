"""Which checkpoints are found, when, and what a pin holds."""

import logging
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eval_jobs.types import Checkpoint, CheckpointFormat
from tests import trainer
from tests.tiny_model import write_checkpoint, write_lora, write_sharded_checkpoint
from tests.watched import RESCAN_S, SETTLE_S, Watched, watching
from tracker.adapters.checkpoints.folder import source, sweep
from tracker.adapters.checkpoints.pins.manifest import MANIFEST, read_pin


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    with watching(tmp_path) as world:
        yield world


def test_a_finished_checkpoint_is_held_at_once_and_returned_when_it_has_settled(watched: Watched) -> None:
    trainer.save(watched.out, 10)
    assert watched.look() == ()
    assert watched.look(SETTLE_S - 0.5) == ()
    (checkpoint,) = watched.look(1.0)
    assert (checkpoint.run_id, checkpoint.step) == ("run", 10)
    assert checkpoint.source_uri == str(watched.out / "checkpoint-10")
    assert watched.look(RESCAN_S) == ()


def test_the_trainers_folder_is_never_touched(watched: Watched) -> None:
    trainer.save(watched.out, 10)
    trainer.save_model(watched.out / "checkpoint-20", seed=2)
    (watched.out / "checkpoint-30").mkdir()
    before = trainer.everything_below(watched.out)
    assert watched.steps() == [10]
    assert trainer.everything_below(watched.out) == before


def test_a_look_after_every_single_write_gives_the_checkpoint_once_and_whole(watched: Watched) -> None:
    found: list[Checkpoint] = []
    for step in (10, 20):
        for change in trainer.writes(watched.out / f"checkpoint-{step}", step, seed=step):
            seen = watched.look(SETTLE_S / 4)
            is_last = change == "trainer_state.json"
            assert is_last or step not in {c.step for c in seen}, f"returned after {change} was written"
            found += seen
    found += watched.settle()
    assert [c.step for c in found] == [10, 20]
    assert all((Path(c.uri) / "tokenizer.json").exists() for c in found)
    assert all((Path(c.uri) / "trainer_state.json").exists() for c in found)
    assert watched.source.gaps() == ()


def test_weights_are_linked_and_small_files_are_copies(watched: Watched) -> None:
    folder = trainer.save(watched.out, 10)
    (checkpoint,) = watched.settle()
    pin = Path(checkpoint.uri)
    assert (pin / "model.safetensors").samefile(folder / "model.safetensors")
    assert not (pin / "config.json").samefile(folder / "config.json")
    held = {
        "model.safetensors",
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "trainer_state.json",
        MANIFEST,
    }
    assert {path.name for path in pin.iterdir()} == held
    (folder / "config.json").write_text("{}")
    assert "LlamaForCausalLM" in (pin / "config.json").read_text()


def test_files_with_the_names_of_ours_are_no_part_of_a_checkpoint(watched: Watched) -> None:
    folder = trainer.save(watched.out, 10)
    for name in (MANIFEST, f"{MANIFEST}.tmp", ".fetch.json"):
        (folder / name).write_text("{}")
    (folder / ".tracker").mkdir()
    (checkpoint,) = watched.settle()
    assert read_pin(Path(checkpoint.uri)) is not None
    copy = watched.out / "checkpoint-20"
    shutil.copytree(checkpoint.uri, copy)
    trainer.write_json(copy / "trainer_state.json", trainer.trainer_state(20))
    assert watched.steps() == [20]
    assert watched.source.gaps() == ()


def test_many_checkpoints_at_once_are_held_and_returned_in_portions(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "PORTION_S", 0.0)
    monkeypatch.setattr(source, "PUBLISHED_S", 0.0)
    steps = list(range(10, 130, 10))
    for step in steps:
        trainer.save(watched.out, step)
    looks: list[list[int]] = []
    until_s = time.monotonic() + 60.0
    while time.monotonic() < until_s:
        looks.append([checkpoint.step for checkpoint in watched.look(SETTLE_S)])
        if sum(map(len, looks)) == len(steps):
            break
        assert watched.source.is_behind(), "watching must not end before all are returned"
        watched.source.wait(0.05)
    assert sorted(step for found in looks for step in found) == steps
    assert max(map(len, looks)) == 1


def test_a_checkpoint_deleted_right_after_it_was_held_is_not_lost(watched: Watched) -> None:
    trainer.save(watched.out, 10)
    watched.look()
    shutil.rmtree(watched.out / "checkpoint-10")
    (checkpoint,) = watched.look()
    assert (Path(checkpoint.uri) / "model.safetensors").read_bytes() == trainer.weights(10)
    assert watched.source.gaps() == ()


def test_an_overwritten_step_is_a_new_checkpoint_with_another_digest(watched: Watched) -> None:
    trainer.save(watched.out, 10, seed=1)
    (first,) = watched.settle()
    trainer.save(watched.out, 10, seed=2)
    (second,) = watched.settle()
    assert first.step == second.step
    assert first.digest != second.digest
    assert (Path(first.uri) / "model.safetensors").read_bytes() == trainer.weights(1)
    assert (Path(second.uri) / "model.safetensors").read_bytes() == trainer.weights(2)


def test_a_step_saved_again_with_equal_weights_is_no_news(watched: Watched) -> None:
    trainer.save(watched.out, 10, seed=1)
    assert watched.steps() == [10]
    shutil.rmtree(watched.out / "checkpoint-10")
    watched.look()
    trainer.save(watched.out, 10, seed=1)
    assert watched.steps() == []


def test_weights_overwritten_in_place_get_a_pin_of_their_own(watched: Watched) -> None:
    folder = trainer.save(watched.out, 10, seed=1)
    watched.settle()
    (folder / "model.safetensors").write_bytes(trainer.weights(2))
    (second,) = watched.settle()
    pinned = Path(second.uri) / "model.safetensors"
    assert not pinned.samefile(folder / "model.safetensors")
    (folder / "model.safetensors").write_bytes(trainer.weights(3))
    (third,) = watched.settle()
    assert pinned.read_bytes() == trainer.weights(2)
    assert (Path(third.uri) / "model.safetensors").read_bytes() == trainer.weights(3)


def test_a_rewound_run_gives_its_new_branch(watched: Watched) -> None:
    for step in (10, 20, 30):
        trainer.save(watched.out, step, seed=step)
    old = watched.settle()
    for step in (20, 30):
        shutil.rmtree(watched.out / f"checkpoint-{step}")
        trainer.save(watched.out, step, seed=step + 1)
    new = watched.settle()
    assert [c.step for c in old] == [10, 20, 30]
    assert [c.step for c in new] == [20, 30]
    assert not {c.digest for c in old} & {c.digest for c in new}
    assert watched.source.gaps() == ()


def test_shards_and_adapters_are_watched_too(watched: Watched) -> None:
    write_sharded_checkpoint(watched.out / "checkpoint-10", shards=2)
    base = write_checkpoint(watched.out.parent / "base")
    write_lora(base, watched.out / "checkpoint-20", rank=2)
    sharded, adapter = watched.settle()
    assert len(list(Path(sharded.uri).glob("*.safetensors"))) == 2
    assert (adapter.format, adapter.base_model) == (CheckpointFormat.LORA, str(base))


def test_a_shard_that_is_still_missing_is_waited_for(watched: Watched) -> None:
    folder = write_sharded_checkpoint(watched.out / "checkpoint-10", shards=2)
    shard = folder / "model-00002-of-00002.safetensors"
    content = shard.read_bytes()
    shard.write_bytes(content[: len(content) // 2])
    assert watched.steps() == []
    shard.write_bytes(content)
    assert watched.steps() == [10]


def test_a_tokenizer_that_comes_after_the_weights_is_in_the_pin(watched: Watched) -> None:
    folder = trainer.save_model(watched.out / "checkpoint-10", seed=1)
    watched.look()
    (folder / "tokenizer_config.json").write_text("{}")
    assert watched.look(SETTLE_S - 1) == ()
    (checkpoint,) = watched.look(RESCAN_S)
    assert (Path(checkpoint.uri) / "tokenizer_config.json").exists()


def test_runs_in_sub_folders_and_symbolic_links(watched: Watched) -> None:
    run = watched.out / "v0-20260101-000000"
    trainer.save(run, 10)
    trainer.save(run, 20)
    (run / "last-checkpoint").symlink_to(run / "checkpoint-20")
    (run / "checkpoint-99").symlink_to(run / "checkpoint-20")
    (watched.out / "latest").symlink_to(run)
    (run / "loop").symlink_to(run)
    found = watched.settle()
    assert [(c.run_id, c.step) for c in found] == [("run/v0-20260101-000000", 10), ("run/v0-20260101-000000", 20)]


def test_names_with_spaces_and_letters_of_any_script(tmp_path: Path) -> None:
    with watching(tmp_path, "шаг *") as watched:
        trainer.save(watched.out, 10).rename(watched.out / "шаг 10")
        trainer.save(watched.out / "запуск № 1", 10).rename(watched.out / "запуск № 1" / "шаг 10")
        found = watched.settle()
        assert [c.run_id for c in found] == ["run", "run/запуск № 1"]
        assert all((Path(c.uri) / "config.json").exists() for c in found)


def test_what_is_no_checkpoint_is_left_alone(watched: Watched) -> None:
    watched.out.mkdir()
    (watched.out / "checkpoint-10").write_text("a file")
    (watched.out / "checkpoint-20").symlink_to(watched.out / "checkpoint-20")
    (watched.out / "checkpoint-best").mkdir()
    (watched.out / ".hidden").mkdir()
    os.mkdir(os.fsencode(watched.out) + b"/\xff\xfe")  # noqa: PTH102 - a name that is no text
    assert watched.steps() == []
    assert watched.source.gaps() == ()


def test_an_output_folder_that_does_not_exist_yet_is_waited_for(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert watched.steps() == []
        assert watched.steps() == []
    assert [r.message for r in caplog.records] == [
        f"{watched.out} does not exist yet; waiting for the trainer to create it"
    ]
    trainer.save(watched.out, 10)
    assert watched.steps() == [10]


def test_an_output_folder_that_is_a_file_is_no_reason_to_die(watched: Watched) -> None:
    watched.out.write_text("a file")
    assert watched.steps() == []
    watched.out.unlink()
    trainer.save(watched.out, 10)
    assert watched.steps() == [10]


def test_the_same_folder_by_another_path_brings_no_checkpoint_twice(tmp_path: Path) -> None:
    with watching(tmp_path) as watched:
        trainer.save(watched.out, 10)
        (before,) = watched.settle()
    (tmp_path / "moved").mkdir()
    (tmp_path / "out").rename(tmp_path / "moved" / "out")
    (tmp_path / "out").symlink_to("moved/out")
    with watching(tmp_path) as watched:
        assert watched.settle() == (before,)
        shutil.rmtree(watched.out / "checkpoint-10")
        trainer.save(watched.out, 20)
        assert watched.steps() == [20]
        assert watched.reasons() == []
        assert len(list(watched.pins.glob("*/step-*"))) == 2


def test_whole_weights_beside_an_adapter_without_a_base_are_the_model(watched: Watched) -> None:
    folder = write_sharded_checkpoint(watched.out / "epoch_0", shards=1)
    (folder / "adapter_config.json").write_text('{"r": 8, "peft_type": "LORA"}')
    shutil.copy(next(folder.glob("*.safetensors")), folder / "adapter_model.safetensors")
    (checkpoint,) = watched.settle()
    assert (checkpoint.format, checkpoint.base_model, checkpoint.step) == (CheckpointFormat.FULL, None, 0)


def test_a_name_that_counts_epochs_gets_the_step_of_its_trainer_state(watched: Watched) -> None:
    for epoch, step in ((1, 250), (2, 500)):
        trainer.save(watched.out, step).rename(watched.out / f"epoch_{epoch}")
    assert watched.steps() == [250, 500]


def test_files_of_other_ranks_are_waited_for(watched: Watched) -> None:
    folder = trainer.save(watched.out, 10)
    (folder / "rng_state.pth").rename(folder / "rng_state_1.pth")
    assert watched.steps() == []
    (folder / "rng_state_0.pth").write_bytes(b"\0")
    assert watched.steps() == [10]


def test_the_output_folder_may_be_deleted_and_made_again(watched: Watched) -> None:
    trainer.save(watched.out, 10, seed=1)
    assert watched.steps() == [10]
    shutil.rmtree(watched.out)
    assert watched.steps() == []
    trainer.save(watched.out, 10, seed=2)
    assert watched.steps() == [10]


def test_waiting_ends_when_a_hold_has_settled(tmp_path: Path) -> None:
    with watching(tmp_path) as watched:
        trainer.save(watched.out, 10)
        watched.look()
        watched.clock.advance(SETTLE_S)
        watched.source.wait(3600.0)
        assert [c.step for c in watched.look()] == [10]
