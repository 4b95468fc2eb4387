"""The rules of `ports.Pins`, on pins that a real source published."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from eval_jobs.types import Checkpoint
from tests import trainer
from tests.fakes.clock import FakeClock
from tracker.adapters.checkpoints.folder.once import pin_folder
from tracker.adapters.checkpoints.folder.source import FilesystemSource
from tracker.adapters.checkpoints.pins.manifest import MANIFEST
from tracker.adapters.checkpoints.pins.store import FolderOfPins
from tracker.domain.checkpoints.watching import WatchOptions

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def pins(tmp_path: Path) -> FolderOfPins:
    return FolderOfPins(tmp_path / "pins")


def pinned(tmp_path: Path, step: int = 10, *, seed: int = 1) -> Checkpoint:
    return pin_folder(trainer.save(tmp_path / "out", step, seed=seed), run_id="run", pins_dir=tmp_path / "pins")


def found_after_a_restart(tmp_path: Path) -> list[int]:
    source = FilesystemSource("run", tmp_path / "out", tmp_path / "pins", WatchOptions(settle_s=0.01), FakeClock(NOW))
    try:
        return [checkpoint.step for checkpoint in source.ready(NOW)]
    finally:
        source.close()


def test_nothing_is_held_where_nothing_was_pinned(pins: FolderOfPins) -> None:
    assert pins.held() == ()


def test_pins_are_listed_by_step_with_what_they_cost(tmp_path: Path, pins: FolderOfPins) -> None:
    twenty, ten = pinned(tmp_path, 20), pinned(tmp_path, 10)
    assert [pin.checkpoint for pin in pins.held()] == [ten, twenty]
    shared = pins.held()[0].own_bytes
    shutil.rmtree(tmp_path / "out")
    weights = (Path(ten.uri) / "model.safetensors").stat().st_size
    assert pins.held()[0].own_bytes == shared + weights


def test_a_released_pin_holds_nothing_and_is_not_listed(tmp_path: Path, pins: FolderOfPins) -> None:
    checkpoint = pinned(tmp_path)
    assert pins.release(pins.held()[0])
    assert pins.held() == ()
    assert [path.name for path in Path(checkpoint.uri).iterdir()] == [MANIFEST]


def test_what_was_given_up_is_known_until_it_is_pinned_again(tmp_path: Path, pins: FolderOfPins) -> None:
    ten = pinned(tmp_path, 10)
    pinned(tmp_path, 20, seed=2)
    assert pins.given_up() == frozenset()
    pins.release(pins.held()[0])
    assert pins.given_up() == {ten.uri}
    pinned(tmp_path, 10)
    assert pins.given_up() == frozenset()


def test_the_trainers_files_stay_as_they_were(tmp_path: Path, pins: FolderOfPins) -> None:
    pinned(tmp_path)
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in _files(tmp_path / "out")}
    folder_ns = (tmp_path / "out" / "checkpoint-10").stat().st_mtime_ns
    pins.release(pins.held()[0])
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in _files(tmp_path / "out")} == before
    assert (tmp_path / "out" / "checkpoint-10").stat().st_mtime_ns == folder_ns


def test_a_released_checkpoint_is_neither_pinned_nor_returned_again(tmp_path: Path, pins: FolderOfPins) -> None:
    pinned(tmp_path)
    assert found_after_a_restart(tmp_path) == [10]
    pins.release(pins.held()[0])
    assert found_after_a_restart(tmp_path) == []
    assert pins.held() == ()


def test_a_released_checkpoint_can_be_pinned_by_name(tmp_path: Path, pins: FolderOfPins) -> None:
    first = pinned(tmp_path)
    pins.release(pins.held()[0])
    again = pin_folder(tmp_path / "out" / "checkpoint-10", run_id="run", pins_dir=tmp_path / "pins")
    assert again == first
    assert [pin.checkpoint for pin in pins.held()] == [again]


def test_a_pin_in_use_is_not_released(tmp_path: Path, pins: FolderOfPins) -> None:
    checkpoint = pinned(tmp_path)
    other = FolderOfPins(tmp_path / "pins")
    with other.in_use(checkpoint), other.in_use(checkpoint):
        assert not pins.release(pins.held()[0])
    assert pins.release(pins.held()[0])


def test_a_pin_that_is_gone_is_not_released(tmp_path: Path, pins: FolderOfPins) -> None:
    pinned(tmp_path)
    (pin,) = pins.held()
    shutil.rmtree(pin.checkpoint.uri)
    assert not pins.release(pin)


def test_what_a_killed_process_had_begun_to_release_is_released_by_the_next(
    tmp_path: Path, pins: FolderOfPins, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(_: Path) -> None:
        raise Killed

    pinned(tmp_path)
    (pin,) = pins.held()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", kill)
        with pytest.raises(Killed):
            pins.release(pin)
    assert found_after_a_restart(tmp_path) == []
    assert pins.release(pins.held()[0])
    assert pins.held() == ()


def test_a_file_of_somebody_else_among_the_pins_is_left_alone(tmp_path: Path, pins: FolderOfPins) -> None:
    pinned(tmp_path)
    stray = tmp_path / "pins" / "run" / "notes" / MANIFEST
    stray.parent.mkdir()
    stray.write_text("mine")
    assert len(pins.held()) == 1
    assert stray.exists()


# --- private


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
