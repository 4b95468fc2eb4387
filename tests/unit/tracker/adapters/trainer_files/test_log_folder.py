"""Which files of a training are followed, and the warnings about the others."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from eval_jobs.errors import ConfigError
from tests.fakes.clock import FakeClock
from tracker.adapters.trainer_files import event_files, log_folder, search
from tracker.adapters.trainer_files.log_folder import READING_CHARS, SCAN_S, UNREADABLE_HINT, LogFolder
from tracker.adapters.trainer_files.search import NO_FILE_HINT, LogPlaces
from tracker.domain.health.logs.cursor import Cursor
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


def test_logs_of_lightning_are_beside_its_folder_of_checkpoints(tmp_path: Path) -> None:
    out = tmp_path / "version_0" / "checkpoints"
    write(out / "epoch=0-step=40.ckpt")
    metrics, log_of_run = write(out.parent / "metrics.csv"), write(out.parent / "train.log")
    write(out.parent / "other" / "train.log")
    with following(out) as log:
        assert lines(log) == {str(metrics): ["x"], str(log_of_run): ["x"]}


def test_what_a_process_prints_belongs_to_the_newest_run_below_the_run(tmp_path: Path) -> None:
    out, printed = tmp_path / "out", write(tmp_path / "job.out")
    with following(out) as log:
        log.follow_outputs([str(printed)])
        assert [piece.run_id for piece in log.read()] == ["run"]
        (out / "checkpoint-10" / "global_step10").mkdir(parents=True)
        for age_s, name in ((20, "v0-20260101-000000"), (10, "v1-20260101-000100"), (0, "logs")):
            (out / name).mkdir(parents=True)
            os.utime(out / name, (1e9 - age_s, 1e9 - age_s))
        log.clock.sleep(SCAN_S)
        write(printed, "x\ny\n")
        assert [piece.run_id for piece in log.read()] == ["run/v1-20260101-000100"]


def test_json_lines_of_any_name_are_followed_if_the_first_one_is_of_a_step(tmp_path: Path) -> None:
    row = '{"step": 1, "loss": 2.5}\n'
    begins = {
        "a.jsonl": row,
        "data.jsonl": '{"question": "2+2", "step": 1}\n',
        "late.jsonl": row[:-1],
        "empty.jsonl": "",
    }
    for name, text in begins.items():
        write(tmp_path / name, text)
    os.mkfifo(tmp_path / "pipe.jsonl")
    with following(tmp_path) as log:
        assert lines(log) == {"a.jsonl": [row[:-1]]}
        for name in begins:
            with (tmp_path / name).open("a") as file:
                file.write("\n" if name == "late.jsonl" else row)
        log.clock.sleep(SCAN_S)
        assert lines(log) == {"a.jsonl": [row[:-1]], "late.jsonl": [row[:-1]], "empty.jsonl": [row[:-1]]}


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


def test_logs_of_torchrun_are_found_in_the_folders_that_it_makes_and_in_no_others(tmp_path: Path) -> None:
    run = "none_a1_b2c3d"
    followed = ("attempt_0/1/stdout.log", f"{run}/attempt_1/2/stderr.log", f"logs/{run}/attempt_0/3/stdout.log")
    others = (
        f"{run}/other/2/stderr.log",
        "attempt_0/1/deeper/x.log",
        "logs/data/attempt_0/3/x.log",
        "attempt_0/a/x.log",
    )
    for name in (*followed, *others):
        write(tmp_path / name)
    with following(tmp_path) as log:
        found = {piece.stream.name: (piece.run_id, piece.stream.rank) for piece in log.read()}
    assert found == dict(zip(followed, (("run", 1), ("run", 2), ("run", 3)), strict=True))


@pytest.mark.parametrize(
    ("pattern", "name", "rank"),
    [
        ("slurm-*-%t.out", "slurm-12-3.out", 3),
        ("logs/**/node[0-9]/%4t.log", "logs/a/b/node2/0012.log", 12),
        ("%t/lo?.log", "5/log.log", 5),
        ("slurm-*-%t.out", "slurm-12-all.out", None),
        ("slurm-*.out", "slurm-3.out", None),
    ],
)
def test_the_rank_is_where_a_pattern_has_its_place(tmp_path: Path, pattern: str, name: str, rank: int | None) -> None:
    write(tmp_path / "away" / name)
    with following(tmp_path / "out", str(tmp_path / "away" / pattern)) as log:
        assert [piece.stream.rank for piece in log.read()] == [rank]


def test_event_files_are_followed_also_in_the_folders_that_trainers_make_for_each_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "runs" / "Nov22_host" / "events.out.tfevents.1.host", "")
    row = StepRow(step=10, values={"train/loss": 2.5})
    monkeypatch.setattr(event_files, "read_step_rows", lambda _, offset: ([row], offset + 4))
    with following(tmp_path) as log:
        assert list(log.read()) == []
        path.write_bytes(b"abcd")
        (piece,) = log.read()
        assert (piece.rows, piece.stream.name) == ((row,), "runs/Nov22_host/events.out.tfevents.1.host")
        assert list(log.read()) == []

    def missing(*_: object) -> None:
        raise ConfigError("no tensorboard", hint="install it")

    monkeypatch.setattr(event_files, "read_step_rows", missing)
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
        f"{out / 'pipe.log'}: it is not a regular file; hint: {NO_FILE_HINT}",
    ]
    caplog.clear()
    for module in (log_folder, search):
        monkeypatch.setattr(module, "MAX_FILES", 2)
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
    assert caplog.messages == [f"cannot read {bad}: Is a directory; hint: {UNREADABLE_HINT}"]


def test_whether_a_log_was_written_within_the_hour_is_known(tmp_path: Path) -> None:
    clock = FakeClock()
    path = write(tmp_path / "train.log")
    for age_s, is_recent in ((60, True), (7200, False), (-60, True)):
        at = clock.now().timestamp() - age_s
        os.utime(path, (at, at))
        with following(tmp_path, clock=clock) as log:
            list(log.read())
            assert log.recent_logs() == ({"train.log"} if is_recent else set())


def test_a_log_that_was_renamed_is_not_read_again_by_its_new_name_also_by_another_process(tmp_path: Path) -> None:
    clock, stored = FakeClock(), dict[str, Cursor]()

    def read(log: LogFolder) -> list[str]:
        clock.advance(SCAN_S)
        pieces = list(log.read())
        stored.update({piece.path: piece.cursor for piece in pieces})
        return [line.text for piece in pieces for line in piece.lines]

    def follow() -> LogFolder:
        places = LogPlaces(run="run", output_dir=tmp_path)
        return LogFolder(places=places, clock=clock, cursors=dict(stored), is_first=False)

    def rotate(number: int) -> None:
        (tmp_path / "train.log").rename(tmp_path / f"train-{number}.log")
        write(tmp_path / "train.log", f"new {number}\n")

    write(tmp_path / "train.log", "a\nb\n")
    with closing(follow()) as log:
        assert read(log) == ["a", "b"]
        rotate(1)
        assert read(log) == ["new 1"]
        assert read(log) == []
        assert stored.keys() == {str(tmp_path / name) for name in ("train.log", "train-1.log")}
    rotate(2)
    with closing(follow()) as log:
        assert read(log) == ["new 2"]
        assert read(log) == []


def test_of_too_many_logs_the_newest_are_open_and_each_continues_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (log_folder, search):
        monkeypatch.setattr(module, "MAX_FILES", 3)
    clock = FakeClock()
    log = LogFolder(places=LogPlaces(run="run", output_dir=tmp_path), clock=clock, cursors={}, is_first=False)
    seen: list[str] = []
    with closing(log):
        for turn in range(6):
            for number in range(6):
                path = tmp_path / f"{number}.log"
                with path.open("a") as file:
                    file.write(f"{number} {turn}\n")
                is_newest = number // 3 == turn % 2
                os.utime(path, (1000 + turn, 1000 + turn + is_newest))
            clock.advance(SCAN_S)
            seen += [line.text for piece in log.read() for line in piece.lines]
            assert open_files(tmp_path) <= 3
    assert sorted(seen) == sorted(set(seen))
    assert len(seen) == 33


def open_files(folder: Path) -> int:
    """Return how many files below a folder this process has open."""
    return sum(one.resolve().is_relative_to(folder) for one in Path("/proc/self/fd").iterdir())


def test_a_folder_becomes_a_run_of_its_own_with_its_first_checkpoint(tmp_path: Path) -> None:
    clock = FakeClock()
    path = write(tmp_path / "exp1" / "t.log")
    log = LogFolder(places=LogPlaces(run="run", output_dir=tmp_path), clock=clock, cursors={}, is_first=False)
    with closing(log):
        assert [piece.run_id for piece in log.read()] == ["run"]
        (tmp_path / "exp1" / "checkpoint-10").mkdir()
        write(path, "x\ny\n")
        clock.advance(SCAN_S)
        assert [piece.run_id for piece in log.read()] == ["run/exp1"]


def test_one_reading_of_many_logs_is_bounded_and_each_of_them_has_its_turn(tmp_path: Path) -> None:
    own = [f"{number:099d}" for number in range(2_000)]
    for rank in range(30):
        write(tmp_path / f"rank_{rank}.log", "\n".join((*own, "")))
    read: dict[str, list[str]] = {}
    with following(tmp_path) as log:
        for count in range(80):
            pieces = list(log.read())
            assert sum(piece.chars for piece in pieces) <= 2 * READING_CHARS
            for piece in pieces:
                read.setdefault(piece.path, []).extend(line.text.rstrip() for line in piece.lines)
            if count == 30:
                assert len(read) == 30, "the first log was not read to its end before the others"
    assert list(read.values()) == [own] * 30
