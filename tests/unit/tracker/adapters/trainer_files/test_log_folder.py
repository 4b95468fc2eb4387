"""Which files of a training are followed, and what is said of the others."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eval_jobs.errors import ConfigError
from tests.fakes.clock import FakeClock
from tracker.adapters.trainer_files import event_files, log_folder
from tracker.adapters.trainer_files.log_folder import SCAN_S, LogFolder, LogPlaces
from tracker.domain.health.logs.step_lines import StepRow


@contextmanager
def following(out: Path, *patterns: str, clock: FakeClock | None = None) -> Iterator[LogFolder]:
    places = LogPlaces(run="run", output_dir=out, patterns=patterns)
    log = LogFolder(places=places, clock=clock or FakeClock(), cursors={}, is_first=False)
    yield log
    log.close()


def lines(log: LogFolder) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for piece in log.read():
        found.setdefault(piece.stream.name, []).extend(line.text for line in piece.lines)
    return found


def write(path: Path, text: str = "x\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_logs_are_found_in_and_one_level_below_the_folder_but_not_in_checkpoints(tmp_path: Path) -> None:
    out = tmp_path / "out"
    followed = ("train.log", "a.out", "b.err", "notes.txt", "logging.jsonl", "logs/rank_3.log", "metrics.csv")
    others = ("model.bin", "questions.jsonl", "requirements.txt", "checkpoint-10/train.log", "logs/deeper/x.log")
    for name in (*followed, *others):
        write(out / name)
    elsewhere = write(tmp_path / "slurm-12.out")
    with following(out, str(tmp_path / "slurm-*.out"), str(tmp_path / "none-*.log")) as log:
        assert lines(log) == {name: ["x"] for name in (*followed, str(elsewhere))}
        write(out / "later.log", "y\n")
        assert lines(log) == {}
        log.clock.sleep(SCAN_S)
        assert lines(log) == {"later.log": ["y"]}


def test_the_rank_is_that_of_the_path_and_a_folder_with_checkpoints_is_a_run_of_its_own(tmp_path: Path) -> None:
    for name in ("rank_7.log", "v0-20260101-000000/logging.jsonl", "sft/train.log", "logs/rank-2.err"):
        write(tmp_path / name)
    (tmp_path / "sft" / "checkpoint-5").mkdir()
    torchrun = tmp_path / "elsewhere" / "attempt_0" / "3" / "stderr.log"
    write(torchrun)
    with following(tmp_path, str(torchrun)) as log:
        found = {piece.stream.name: (piece.run_id, piece.stream.rank) for piece in log.read()}
    assert found == {
        "rank_7.log": ("run", 7),
        "v0-20260101-000000/logging.jsonl": ("run/v0-20260101-000000", None),
        "sft/train.log": ("run/sft", None),
        "logs/rank-2.err": ("run", 2),
        "elsewhere/attempt_0/3/stderr.log": ("run", 3),
    }


def test_event_files_are_followed_also_in_the_folders_that_trainers_make_for_each_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "runs" / "Nov22_host" / "events.out.tfevents.1.host", "")
    row = StepRow(step=10, values={"train/loss": 2.5})
    monkeypatch.setattr(event_files, "read_events", lambda _, offset: ([row], offset + 4))
    with following(tmp_path) as log:
        assert list(log.read()) == []
        path.write_bytes(b"abcd")
        (piece,) = log.read()
        assert (piece.rows, piece.stream.name) == ((row,), "runs/Nov22_host/events.out.tfevents.1.host")
        assert list(log.read()) == []

    def missing(*_: object) -> None:
        raise ConfigError("no tensorboard", hint="install it")

    monkeypatch.setattr(event_files, "read_events", missing)
    with following(tmp_path) as log:
        for _ in range(3):
            assert list(log.read()) == []
    assert caplog.messages == ["not followed: tensorboard: no tensorboard; hint: install it"]


def test_exact_numbers_are_read_before_those_that_are_rounded(tmp_path: Path) -> None:
    for name in ("a.log", "b.jsonl.log", "logging.jsonl", "z.log"):
        write(tmp_path / name)
    with following(tmp_path) as log:
        assert next(iter(lines(log))) == "logging.jsonl"


def test_what_cannot_be_followed_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    write(out / "good.log")
    os.mkfifo(out / "pipe.log")
    (out / "away.log").symlink_to(write(tmp_path / "away.log"))
    (out / "inside.log").symlink_to(out / "good.log")
    (out / "gone.log").symlink_to(tmp_path / "nothing.log")
    with following(out) as log:
        for _ in range(3):
            assert set(lines(log)) <= {"good.log", "inside.log"}
            log.clock.sleep(SCAN_S)
    assert sorted(message.partition(": ")[2] for message in caplog.messages) == [
        f"{out / 'away.log'}: it is a link out of the folder: name it in [health] logs to follow it",
        f"{out / 'gone.log'}: it is a link out of the folder: name it in [health] logs to follow it",
        f"{out / 'pipe.log'}: it is no regular file",
    ]
    caplog.clear()
    monkeypatch.setattr(log_folder, "MAX_FILES", 2)
    for number in range(5):
        os.utime(write(out / f"{number}.log"), (number, number))
    with following(out) as log:
        assert len(lines(log)) == 2
    assert any("it has 6 logs; the newest 2 are followed" in message for message in caplog.messages)


def test_an_error_of_one_log_is_logged_once_and_the_others_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "good.log")
    bad = write(tmp_path / "bad.log")
    with following(tmp_path) as log:
        assert lines(log) == {"bad.log": ["x"], "good.log": ["x"]}
        log.close()
        bad.unlink()
        bad.mkdir()
        for text in ("y\n", "z\n"):
            with (tmp_path / "good.log").open("a") as file:
                file.write(text)
            assert lines(log) == {"good.log": [text.strip()]}
    assert caplog.messages == [f"cannot read {bad}: Is a directory"]


def test_whether_a_log_was_written_within_the_hour_is_known(tmp_path: Path) -> None:
    clock = FakeClock()
    path = write(tmp_path / "train.log")
    for age_s, is_recent in ((60, True), (7200, False), (-60, True)):
        at = clock.now().timestamp() - age_s
        os.utime(path, (at, at))
        with following(tmp_path, clock=clock) as log:
            list(log.read())
            assert log.is_recent() is is_recent
