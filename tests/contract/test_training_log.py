"""The rules of `tracker.ports.TrainingLog`, for the fake and for files."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.training_log import FakeTrainingLog
from tracker.adapters.trainer_files.log_folder import SCAN_S, LogFolder
from tracker.adapters.trainer_files.search import LogPlaces
from tracker.domain.health.logs.cursor import Cursor, LogPiece
from tracker.ports import TrainingLog


@dataclass
class Trained:
    """A training that writes one log, and its followers."""

    write: Callable[[str], None]
    elsewhere: str
    """Path of a log that nothing names, and how to write to it."""
    write_elsewhere: Callable[[str], None]
    open_log: Callable[[dict[str, Cursor], bool], TrainingLog]
    clock: FakeClock
    cursors: dict[str, Cursor] = field(default_factory=dict)

    def follow(self, *, is_first: bool = False) -> TrainingLog:
        return self.open_log(dict(self.cursors), is_first)

    def read(self, log: TrainingLog, *, after_s: float = SCAN_S) -> list[LogPiece]:
        self.clock.advance(after_s)
        pieces = list(log.read())
        self.cursors |= {piece.path: piece.cursor for piece in pieces}
        return pieces

    def lines(self, log: TrainingLog) -> list[str]:
        return [line.text for piece in self.read(log) for line in piece.lines]


@pytest.fixture(params=["fake", "files"])
def trained(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Trained]:
    if request.param == "fake":
        yield _in_memory()
        return
    opened: list[TrainingLog] = []
    yield _on_disk(tmp_path, opened)
    for log in opened:
        log.close()


def _in_memory() -> Trained:
    clock, logs, elsewhere = FakeClock(), {"train.log": b""}, {"/job.out": b""}

    def write(text: str) -> None:
        logs["train.log"] += text.encode()

    def write_elsewhere(text: str) -> None:
        elsewhere["/job.out"] += text.encode()

    def open_log(cursors: dict[str, Cursor], is_first: bool) -> TrainingLog:  # noqa: FBT001
        return FakeTrainingLog(logs, clock, cursors, is_first=is_first, elsewhere=elsewhere)

    return Trained(write, "/job.out", write_elsewhere, open_log, clock)


def _on_disk(folder: Path, opened: list[TrainingLog]) -> Trained:
    clock, places, elsewhere = FakeClock(), LogPlaces(run="run", output_dir=folder / "out"), folder / "job.out"
    (folder / "out").mkdir()

    def write(text: str) -> None:
        with (folder / "out" / "train.log").open("ab") as file:
            file.write(text.encode())

    def write_elsewhere(text: str) -> None:
        with elsewhere.open("ab") as file:
            file.write(text.encode())

    def open_log(cursors: dict[str, Cursor], is_first: bool) -> TrainingLog:  # noqa: FBT001
        opened.append(LogFolder(places=places, clock=clock, cursors=cursors, is_first=is_first))
        return opened[-1]

    return Trained(write, str(elsewhere), write_elsewhere, open_log, clock)


def test_each_line_is_returned_once_when_it_has_its_end(trained: Trained) -> None:
    log = trained.follow()
    assert trained.lines(log) == []
    trained.write("step 1\nstep 2\nste")
    assert trained.lines(log) == ["step 1", "step 2"]
    trained.write("p 3\n")
    assert trained.lines(log) == ["step 3"]
    assert trained.lines(log) == []


def test_another_process_continues_where_one_stopped(trained: Trained) -> None:
    trained.write("a\nb\nc")
    first = trained.follow()
    assert trained.lines(first) == ["a", "b"]
    first.close()
    trained.write("d\ne\n")
    second = trained.follow()
    pieces = trained.read(second)
    assert [(line.number, line.text) for piece in pieces for line in piece.lines] == [(3, "cd"), (4, "e")]


def test_what_was_there_at_the_first_start_is_history(trained: Trained) -> None:
    trained.write("old\n")
    log = trained.follow(is_first=True)
    old = trained.read(log)
    trained.write("new\n")
    assert [piece.stream.is_history for piece in (*old, *trained.read(log))] == [True, False]


def test_a_file_that_a_process_prints_to_is_followed_meanwhile_and_what_it_had_is_history(trained: Trained) -> None:
    trained.write_elsewhere("old\n")
    log = trained.follow()
    assert trained.read(log) == []
    log.follow_outputs([trained.elsewhere])
    old = trained.read(log)
    trained.write_elsewhere("new\n")
    found = [(line.text, piece.stream.is_history) for piece in (*old, *trained.read(log)) for line in piece.lines]
    assert found == [("old", True), ("new", False)]
    log.follow_outputs([])
    assert trained.read(log) == []
    trained.write_elsewhere("of another training\n")
    assert trained.read(log) == []
    log.close()
    another = trained.follow()
    another.follow_outputs([trained.elsewhere])
    assert len(trained.read(another)) == 1


def test_a_last_line_without_an_end_is_returned_once_after_a_while_and_known_when_it_ends(trained: Trained) -> None:
    log = trained.follow()
    trained.write("step 1\nCUDA out of")
    first = trained.read(log)
    rests = [piece.rest for _ in range(4) for piece in trained.read(log, after_s=3)]
    assert ([piece.rest for piece in first], rests) == ([""], ["CUDA out of"])
    trained.cursors[first[0].path] = log.count_rest(first[0].path) or first[0].cursor
    log.close()
    trained.write(" memory\nstep 2\n")
    pieces = trained.read(trained.follow())
    lines = [(line.text, line.is_known) for piece in pieces for line in piece.lines]
    assert lines == [("CUDA out of memory", True), ("step 2", False)]


def test_a_progress_bar_is_a_line_for_each_of_its_states(trained: Trained) -> None:
    log = trained.follow()
    trained.write("10%\r20%\r30%\r\ndone\n")
    pieces = trained.read(log)
    lines = [(line.number, line.text) for piece in pieces for line in piece.lines if line.text]
    assert lines == [(1, "10%"), (1, "20%"), (1, "30%"), (2, "done")]


def test_closing_twice_is_harmless(trained: Trained) -> None:
    trained.write("x\n")
    log = trained.follow()
    assert trained.lines(log) == ["x"]
    log.close()
    log.close()


def test_a_link_to_itself_and_a_file_that_cannot_be_asked_for_stop_nothing(tmp_path: Path) -> None:
    (tmp_path / "loop.log").symlink_to("loop.log")
    (tmp_path / "train.log").write_text("a\n")
    clock = FakeClock()
    log = LogFolder(places=LogPlaces(run="run", output_dir=tmp_path), clock=clock, cursors={}, is_first=False)
    assert [line.text for piece in log.read() for line in piece.lines] == ["a"]
    (tmp_path / "train.log").rename(tmp_path / "kept")
    (tmp_path / "train.log").symlink_to("train.log")
    clock.advance(SCAN_S)
    assert [line.text for piece in log.read() for line in piece.lines] == []
    log.close()


class _RunningClock(FakeClock):
    def now(self) -> datetime:
        self.jump(0.01)
        return super().now()


def test_what_one_reading_finds_in_all_logs_is_of_one_moment(tmp_path: Path) -> None:
    for name in ("a.log", "b.log", "c.jsonl"):
        (tmp_path / name).write_text("a\n")
    places = LogPlaces(run="run", output_dir=tmp_path)
    log = LogFolder(places=places, clock=_RunningClock(), cursors={}, is_first=False)
    assert len({piece.stream.read_at for piece in log.read()}) == 1
    log.close()
