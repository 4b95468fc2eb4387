"""Logs on a file server that hangs: no caller waits for them, and no line is lost or returned twice."""

import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.clock import FakeClock
from tracker.adapters.trainer_files.log_folder import SCAN_S, LogFolder
from tracker.adapters.trainer_files.read_ahead import REPORT_S, ReadAhead
from tracker.adapters.trainer_files.search import LogPlaces
from tracker.domain.health.logs.cursor import LogPiece


class SlowFolder(LogFolder):
    """Logs whose reading hangs while `answers` is not set."""

    answers = threading.Event()

    def read(self) -> Iterator[LogPiece]:
        self.answers.wait()
        yield from super().read()


class FailingFolder(LogFolder):
    """Logs on a file server that fails in the middle of the first reading, as a network file system does."""

    has_failed = False

    def read(self) -> Iterator[LogPiece]:
        yield from super().read()
        if not self.has_failed:
            self.has_failed = True
            raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")


def ahead_of(kind: type[LogFolder], folder: Path, *, patience_s: float) -> ReadAhead:
    """Return the reader of a folder in which the log has one line."""
    (folder / "train.log").write_text("step 1\n")
    clock = FakeClock()
    logs = kind(places=LogPlaces(run="run", output_dir=folder), clock=clock, cursors={}, is_first=False)
    return ReadAhead(folder=logs, clock=clock, patience_s=patience_s)


def lines_of(log: ReadAhead) -> list[str]:
    return [line.text for piece in log.read() for line in piece.lines]


def test_an_error_of_the_file_system_loses_no_line_and_the_next_reading_tries_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = ahead_of(FailingFolder, tmp_path, patience_s=60.0)
    assert lines_of(log) == ["step 1"]
    assert caplog.messages == ["the logs of the training cannot be read: Connection timed out"]
    with (tmp_path / "train.log").open("a") as file:
        file.write("step 2\n")
    assert lines_of(log) == ["step 2"]
    assert not log.is_waiting()
    log.close()


def test_without_another_thread_nothing_is_read_and_nothing_is_raised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    log = ahead_of(LogFolder, tmp_path, patience_s=60.0)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert list(log.read()) == []
    assert caplog.messages == ["the logs of the training cannot be read: can't start new thread"]


def test_lines_arrive_when_the_file_server_answers_and_until_then_nothing_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = ahead_of(SlowFolder, tmp_path, patience_s=0.01)
    folder, clock = log.folder, log.clock
    assert isinstance(folder, SlowFolder)
    for _ in range(3):
        assert list(log.read()) == []
        assert log.is_waiting()
        clock.sleep(REPORT_S)
    assert caplog.messages == ["the logs of the training cannot be read: their file system does not respond"]
    log.close()  # returns although the reading hangs
    folder.answers.set()
    lines: list[str] = []
    while not lines:
        lines += lines_of(log)
    assert (lines, log.is_waiting(), log.recent_logs()) == (["step 1"], False, folder.recent_logs())
    (tmp_path / "train.log").write_text("step 1\nstep 2\n")
    while len(lines) < 2:
        clock.sleep(SCAN_S)
        lines += lines_of(log)
    assert lines == ["step 1", "step 2"]
    log.close()
