"""What survives a kill at any line, and what a restart makes of it."""

import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from eval_jobs.errors import CheckpointIncomplete, StoreError
from tests import trainer
from tests.watchers import AT_ONCE, CLOCK, opened
from tracker.adapters.checkpoints.files.listing import CheckpointLocation, facts_of_folder, read_listing
from tracker.adapters.checkpoints.pins.hold import HELD, hold, owner_mark, publish
from tracker.adapters.checkpoints.pins.manifest import MANIFEST, read_pin
from tracker.adapters.checkpoints.pins.recovery import find_pins
from tracker.domain.checkpoints.completeness import Complete, assess
from tracker.domain.checkpoints.pin import Pin

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def held(tmp_path: Path, *, run_id: str = "run", seed: int = 1) -> Pin:
    folder = trainer.save(tmp_path / "out", 10, seed=seed)
    facts = facts_of_folder(folder)
    assert facts is not None
    complete = assess(read_listing(facts, 10))
    assert isinstance(complete, Complete)
    pin = hold(CheckpointLocation(run_id=run_id, step=10, path=folder), facts, complete, tmp_path / "pins")
    assert pin is not None
    return pin


def of_a_dead_process(pin: Pin) -> Path:
    """Rename a hold as if a process that is gone had made it."""
    folder = Path(pin.folder)
    dead = folder.with_name(folder.name.replace(f"-{os.getpid()}-", "-4194305-"))
    return folder.rename(dead)


def found(tmp_path: Path, run_name: str = "run") -> tuple[Pin, ...]:
    return find_pins(tmp_path / "pins", run_name, tmp_path / "out", NOW)


def test_a_published_pin_is_found_again_with_its_checkpoint(tmp_path: Path) -> None:
    checkpoint = publish(held(tmp_path))
    shutil.rmtree(tmp_path / "out")
    (pin,) = found(tmp_path)
    assert pin.checkpoint == checkpoint
    assert Path(checkpoint.uri).name == f"step-00000010-{checkpoint.digest[:12]}"


def test_a_hold_of_a_killed_process_is_found_again_and_can_be_published(tmp_path: Path) -> None:
    of_a_dead_process(held(tmp_path))
    shutil.rmtree(tmp_path / "out")
    (pin,) = found(tmp_path)
    assert pin.checkpoint is None
    assert publish(pin).step == 10


def test_a_hold_that_a_killed_process_left_half_made_is_removed(tmp_path: Path) -> None:
    folder = of_a_dead_process(held(tmp_path))
    (folder / MANIFEST).unlink()
    assert found(tmp_path) == ()
    assert not folder.exists()


def test_a_kill_between_the_last_manifest_and_the_renaming_is_repaired(tmp_path: Path) -> None:
    checkpoint = publish(held(tmp_path))
    Path(checkpoint.uri).rename(of_a_dead_process_name(tmp_path))
    (restored,) = found(tmp_path)
    assert restored.checkpoint is None
    assert publish(restored) == checkpoint
    assert Path(checkpoint.uri).exists()


def of_a_dead_process_name(tmp_path: Path) -> Path:
    mark = owner_mark(os.getpid()).replace(f"-{os.getpid()}-", "-4194305-")
    return tmp_path / "pins" / "run" / f"{HELD}{mark}-12345678"


def test_holds_of_living_processes_are_left_alone(tmp_path: Path) -> None:
    pin = held(tmp_path)
    assert found(tmp_path) == ()
    assert Path(pin.folder).exists()


def test_holds_of_other_machines_are_left_alone_for_a_day(tmp_path: Path) -> None:
    pin = held(tmp_path)
    other = Path(pin.folder).rename(tmp_path / "pins" / "run" / f"{HELD}elsewhere-1-1-12345678")
    old = NOW.timestamp()
    os.utime(other, (old - 80_000, old - 80_000))
    assert found(tmp_path) == ()
    os.utime(other, (old - 90_000, old - 90_000))
    assert len(found(tmp_path)) == 1


def test_a_process_that_took_the_number_of_a_dead_one_is_another() -> None:
    assert owner_mark(os.getpid()) == owner_mark(os.getpid()) != ""
    assert owner_mark(os.getpid()) != owner_mark(os.getppid())
    assert owner_mark(4_194_305) == ""


def test_publishing_again_after_a_kill_gives_the_same_checkpoint(tmp_path: Path) -> None:
    first = publish(held(tmp_path))
    assert publish(held(tmp_path)) == first
    assert len(list((tmp_path / "pins" / "run").iterdir())) == 1


def test_a_damaged_published_pin_is_replaced(tmp_path: Path) -> None:
    first = publish(held(tmp_path))
    (Path(first.uri) / "config.json").unlink()
    (Path(first.uri) / MANIFEST).write_text("{")
    second = publish(held(tmp_path))
    assert (Path(second.uri) / "config.json").exists()


def test_a_pin_whose_weights_were_overwritten_is_not_found_again(tmp_path: Path) -> None:
    checkpoint = publish(held(tmp_path))
    (tmp_path / "out" / "checkpoint-10" / "model.safetensors").write_bytes(trainer.weights(2))
    assert found(tmp_path) == ()
    assert not Path(checkpoint.uri).exists()


def test_pins_that_were_moved_are_known_by_their_content(tmp_path: Path) -> None:
    publish(held(tmp_path))
    shutil.copytree(tmp_path / "pins", tmp_path / "copy")
    shutil.rmtree(tmp_path / "pins")
    (tmp_path / "copy").rename(tmp_path / "pins")
    assert len(found(tmp_path)) == 1


def test_weights_overwritten_through_the_link_are_not_published(tmp_path: Path) -> None:
    pin = held(tmp_path)
    (tmp_path / "out" / "checkpoint-10" / "model.safetensors").write_bytes(trainer.weights(2))
    with pytest.raises(CheckpointIncomplete, match="overwritten in place"):
        publish(pin)


def test_a_pin_that_somebody_deleted_says_so(tmp_path: Path) -> None:
    pin = held(tmp_path)
    shutil.rmtree(pin.folder)
    with pytest.raises(StoreError, match="was deleted"):
        publish(pin)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"schema_version": 1}', '{"schema_version": 1, "pin": {}}', "\0"]
)
def test_a_broken_manifest_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(text)
    assert read_pin(tmp_path) is None


def test_what_somebody_put_among_the_pins_is_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / MANIFEST)  # reading it would wait for a writer
    assert read_pin(tmp_path) is None


def test_a_manifest_of_another_version_is_left_alone(tmp_path: Path) -> None:
    checkpoint = publish(held(tmp_path))
    manifest = Path(checkpoint.uri) / MANIFEST
    manifest.write_text(manifest.read_text().replace('"schema_version":1', '"schema_version":99'))
    assert found(tmp_path) == ()
    assert manifest.exists()


def test_pins_of_other_runs_and_folders_are_not_ours(tmp_path: Path) -> None:
    publish(held(tmp_path))
    assert found(tmp_path, "other") == ()
    assert find_pins(tmp_path / "pins", "run", tmp_path / "elsewhere", NOW) == ()


@pytest.mark.parametrize("run_id", ["run/v0 2026", "../../etc", "a" * 300, ".", "…/ü"])
def test_any_run_name_gives_a_folder_inside_the_pins(run_id: str, tmp_path: Path) -> None:
    pin = held(tmp_path, run_id=run_id)
    assert Path(pin.folder).resolve().parent.parent == (tmp_path / "pins").resolve()
    assert publish(pin).run_id == run_id


def test_a_source_that_changed_since_it_was_seen_is_not_held(tmp_path: Path) -> None:
    folder = trainer.save(tmp_path / "out", 10)
    facts = facts_of_folder(folder)
    assert facts is not None
    complete = assess(read_listing(facts, 10))
    assert isinstance(complete, Complete)
    place = CheckpointLocation(run_id="run", step=10, path=folder)
    trainer.save(tmp_path / "out", 10, seed=99)
    assert hold(place, facts, complete, tmp_path / "pins") is None
    shutil.rmtree(folder)
    assert hold(place, facts, complete, tmp_path / "pins") is None
    assert not list((tmp_path / "pins" / "run").iterdir())


def test_without_hard_links_weights_are_copied_and_checked(tmp_path: Path) -> None:
    memory = Path("/dev/shm")  # noqa: S108 - the other file system that every Linux has
    assert memory.stat().st_dev != tmp_path.stat().st_dev, "needs two file systems"
    folder = trainer.save(tmp_path / "out", 10)
    facts = facts_of_folder(folder)
    assert facts is not None
    complete = assess(read_listing(facts, 10))
    assert isinstance(complete, Complete)
    pins = memory / f"pins-{os.getpid()}"
    try:
        pin = hold(CheckpointLocation(run_id="run", step=10, path=folder), facts, complete, pins)
        assert pin is not None
        (folder / "model.safetensors").write_bytes(trainer.weights(2))
        checkpoint = publish(pin)
        assert (Path(checkpoint.uri) / "model.safetensors").read_bytes() == trainer.weights(10)
    finally:
        shutil.rmtree(pins, ignore_errors=True)


def test_the_record_says_when_the_trainer_finished(tmp_path: Path) -> None:
    pin = held(tmp_path)
    newest_ns = max(path.stat().st_mtime_ns for path in (tmp_path / "out" / "checkpoint-10").iterdir())
    assert publish(replace(pin)).ready_at == datetime.fromtimestamp(newest_ns / 1e9, UTC)


def test_a_step_that_was_saved_again_before_a_kill_gives_both_contents_and_leaves_no_hold(tmp_path: Path) -> None:
    for seed in (1, 2):
        of_a_dead_process(held(tmp_path, seed=seed))
    source = opened(tmp_path, AT_ONCE)
    try:
        found = source.ready(CLOCK.now())
    finally:
        source.close()
    contents = {(Path(checkpoint.uri) / "model.safetensors").read_bytes() for checkpoint in found}
    assert contents == {trainer.weights(1), trainer.weights(2)}
    assert sorted(path.name for path in (tmp_path / "pins" / "run").iterdir()) == [
        *sorted(Path(checkpoint.uri).name for checkpoint in found)
    ]
