"""Folders on a file server: no events, sizes that lag behind, a server or a mount that is away, another clock."""

import errno
import logging
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests import trainer
from tests.requires import small_disk
from tests.watched import RESCAN_S, SETTLE_S, Watched, watching
from tracker.adapters.checkpoints.files.listing import facts_of_folder


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    with watching(tmp_path) as world:
        yield world


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own, mounted on `out`."""
    out = tmp_path / "out"
    with small_disk(out, size="4m"):
        yield out


class Server:
    """Answers every system call on folders below `folder` with an error while `error` is set."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.error = 0
        self._scandir = os.scandir

    def scandir(self, path: Any = ".") -> Any:
        if self.error and os.fspath(path).startswith(self.folder):
            raise OSError(self.error, os.strerror(self.error), os.fspath(path))
        return self._scandir(path)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, watched: Watched) -> Server:
    server = Server(watched.out / "checkpoint-")
    monkeypatch.setattr(os, "scandir", server.scandir)
    return server


def inotify_descriptors() -> int:
    links = (str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink())
    return sum("inotify" in link for link in links)


def test_polling_asks_for_no_file_events(watched: Watched) -> None:
    trainer.save(watched.out, 10)
    before = inotify_descriptors()
    assert watched.steps() == [10]
    assert inotify_descriptors() == before


@pytest.mark.parametrize("error", [errno.ESTALE, errno.EIO, errno.ETIMEDOUT, errno.ENOTCONN])
def test_a_checkpoint_on_a_server_that_is_away_is_neither_lost_nor_a_gap(
    error: int, watched: Watched, server: Server
) -> None:
    (trainer.save(watched.out, 10) / "trainer_state.json").unlink()
    trainer.save(watched.out, 20)
    assert watched.look() == ()
    server.error = error
    trainer.save(watched.out, 30)
    for _ in range(3):
        watched.look(RESCAN_S)
    assert watched.source.is_behind()
    assert watched.reasons() == []
    server.error = 0
    assert 30 in watched.steps()
    assert watched.reasons() == [(10, "E-CKPT-INCOMPLETE")]
    assert not watched.source.is_behind()


def test_training_that_ends_while_the_server_is_away_makes_no_gap(watched: Watched, server: Server) -> None:
    trainer.save_model(watched.out / "checkpoint-10", seed=1)
    (watched.out / "checkpoint-10/model.safetensors").unlink()
    watched.look()
    server.error = errno.ESTALE
    watched.look(RESCAN_S)
    watched.source.give_up(watched.clock.now())
    assert watched.reasons() == []
    server.error = 0
    watched.look(RESCAN_S)
    watched.source.give_up(watched.clock.now())
    assert watched.reasons() == [(10, "E-CKPT-INCOMPLETE")]


def test_a_checkpoint_that_can_never_be_read_is_a_gap_in_the_end(watched: Watched, server: Server) -> None:
    trainer.save(watched.out, 10)
    server.error = errno.EIO
    watched.look()
    watched.look(700.0)
    assert watched.reasons() == [(10, "E-CKPT-INCOMPLETE")]
    assert "Input/output error" in watched.source.gaps()[0].message
    assert not watched.source.is_behind()


def test_an_empty_mount_point_is_not_taken_for_deleted_checkpoints(
    mounted: Path, watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    trainer.save(mounted, 10)
    (trainer.save(mounted, 20) / "trainer_state.json").unlink()
    kept = watched.pins.parent / "kept"
    shutil.copytree(mounted, kept)
    assert [c.step for c in watched.look() + watched.look(RESCAN_S)] == [10]
    subprocess.run(["umount", mounted], check=True)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert watched.look(RESCAN_S) == ()
    assert "is not mounted" in caplog.text
    assert caplog.text.count("is not mounted") == 1
    assert watched.reasons() == []
    assert watched.source.is_behind()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", mounted], check=True)
    shutil.copytree(kept, mounted, dirs_exist_ok=True)
    trainer.write_json(mounted / "checkpoint-20/trainer_state.json", trainer.trainer_state(20))
    assert [c.step for c in watched.settle() if c.step == 20] == [20]
    assert watched.reasons() == []


def test_a_folder_that_went_away_with_its_mount_is_waited_for(mounted: Path, tmp_path: Path) -> None:
    with watching(tmp_path, below="deep/run") as watched:
        (trainer.save(watched.out, 10) / "trainer_state.json").unlink()
        trainer.save(watched.out, 20)
        watched.look()
        assert watched.out.is_relative_to(mounted)
        subprocess.run(["umount", mounted], check=True)
        watched.look(RESCAN_S)
        assert watched.reasons() == []
        assert watched.source.is_behind()


def test_checkpoints_that_a_person_deleted_all_at_once_are_gaps(watched: Watched) -> None:
    (trainer.save(watched.out, 10) / "trainer_state.json").unlink()
    watched.look()
    shutil.rmtree(watched.out)
    watched.look(RESCAN_S)
    assert watched.reasons() == [(10, "E-CKPT-VANISHED")]
    assert not watched.source.is_behind()


class Lagging:
    """An entry whose size the client remembers from before."""

    def __init__(self, entry: os.DirEntry[str], size: int) -> None:
        self._entry, self._size = entry, size
        self.name, self.path = entry.name, entry.path

    def stat(self) -> os.stat_result:
        values = list(self._entry.stat())
        values[6] = self._size
        return os.stat_result(values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entry, name)


def test_sizes_that_lag_behind_only_delay_a_checkpoint(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    true_scandir: Callable[..., Any] = os.scandir

    class Listing:
        def __init__(self, path: Any) -> None:
            with true_scandir(path) as entries:
                self._entries = list(entries)

        def __enter__(self) -> Any:
            return iter(Lagging(e, 100) if e.name == "model.safetensors" else e for e in self._entries)

        def __exit__(self, *_: object) -> None: ...

    trainer.save(watched.out, 10)
    monkeypatch.setattr(os, "scandir", Listing)
    assert watched.settle() == ()
    assert watched.reasons() == []
    monkeypatch.setattr(os, "scandir", true_scandir)
    assert watched.steps() == [10]


@pytest.mark.parametrize("off", [timedelta(hours=-3), timedelta(hours=3)])
def test_file_times_of_another_clock_neither_hurry_nor_hinder(off: timedelta, watched: Watched) -> None:
    def shift(folder: Path) -> None:
        for path in (*folder.iterdir(), folder):
            moved = path.stat().st_mtime + off.total_seconds()
            os.utime(path, (moved, moved))

    half = watched.out / "checkpoint-10"
    for change in trainer.writes(half, 10, seed=1):
        shift(half)
        if change == "optimizer.pt":
            break
    assert watched.look() == ()
    assert watched.look(SETTLE_S) == ()
    folder = trainer.save(watched.out, 10)
    shift(folder)
    assert watched.steps() == [10]
    assert facts_of_folder(folder) is not None
    assert watched.reasons() == []
