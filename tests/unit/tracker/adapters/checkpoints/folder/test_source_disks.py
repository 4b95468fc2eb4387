"""Disks that are full, read-only, forbidden or broken: what lives is taken later, what dies is a gap that says why."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import trainer
from tests.watched import RESCAN_S, SETTLE_S, Watched, watching
from tracker.adapters.checkpoints.files.safetensors_file import read_weights
from tracker.adapters.checkpoints.pins.manifest import write_manifest

PINS = "tracker.adapters.checkpoints.pins.hold"


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    with watching(tmp_path) as world:
        yield world


def failing(code: int, real: Callable[..., object], name: str = "") -> Callable[..., object]:
    """Return what the operating system does when it refuses with `code`; only for files called `name`, if given."""

    def refuse(*arguments: object, **settings: object) -> object:
        if not name or any(str(argument).endswith(name) for argument in arguments):
            raise OSError(code, os.strerror(code))
        return real(*arguments, **settings)

    return refuse


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO])
def test_a_disk_that_refuses_for_a_while_loses_nothing(
    code: int, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer.save(watched.out, 10)
    with monkeypatch.context() as broken:
        broken.setattr(shutil, "copyfile", failing(code, shutil.copyfile))
        assert watched.steps() == []
        assert watched.source.gaps() == ()
    assert not list(watched.pins.rglob("*.json"))
    assert watched.steps() == [10]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_checkpoint_that_vanishes_during_a_disk_error_is_a_gap_with_that_reason(
    code: int, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = trainer.save(watched.out, 10)
    with monkeypatch.context() as broken:
        broken.setattr(shutil, "copyfile", failing(code, shutil.copyfile))
        watched.look()
        shutil.rmtree(folder)
        watched.look()
    (gap,) = watched.source.gaps()
    assert gap.code == "E-CKPT-VANISHED"
    assert os.strerror(code) in gap.message
    assert watched.steps() == []


def test_a_disk_that_is_full_when_a_hold_is_published_keeps_the_hold(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = trainer.save(watched.out, 10)
    watched.look()
    shutil.rmtree(folder)
    with monkeypatch.context() as broken:
        broken.setattr(f"{PINS}.write_manifest", failing(errno.ENOSPC, write_manifest))
        assert watched.look(SETTLE_S) == ()
        assert watched.look(RESCAN_S) == ()
    assert [c.step for c in watched.look(RESCAN_S)] == [10]
    assert watched.source.gaps() == ()


def test_weights_that_cannot_be_read_from_the_disk_are_tried_again(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer.save(watched.out, 10)
    with monkeypatch.context() as broken:
        broken.setattr(f"{PINS}.read_weights", failing(errno.EIO, read_weights))
        assert watched.steps() == []
    assert watched.source.gaps() == ()
    assert watched.look(RESCAN_S)[0].step == 10


def test_an_unreadable_file_is_a_gap_and_the_next_checkpoint_is_evaluated(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer.save(watched.out, 10)
    forbidden = str(Path("checkpoint-10") / "tokenizer.json")
    with monkeypatch.context() as broken:
        broken.setattr(shutil, "copyfile", failing(errno.EACCES, shutil.copyfile, forbidden))
        trainer.save(watched.out, 20)
        assert watched.steps() == [20]
        watched.source.give_up(watched.clock.now())
        (gap,) = watched.source.gaps()
        assert gap.step == 10
        assert "Permission denied" in gap.message
    assert watched.steps() == [10]
    assert watched.source.gaps() == ()


def test_a_trainers_folder_in_which_nothing_may_be_written_is_watched_like_any_other(watched: Watched) -> None:
    folder = trainer.save(watched.out, 10)
    for path in (*folder.iterdir(), folder, watched.out):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert watched.steps() == [10]
    finally:
        for path in (watched.out, folder):
            path.chmod(0o755)
