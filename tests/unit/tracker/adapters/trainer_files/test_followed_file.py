"""A growing log is read once, whatever is done to its file meanwhile."""

import gzip
import io
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from eval_jobs import limits
from tracker.adapters.trainer_files.followed_file import CHUNK_BYTES, FollowedFile
from tracker.domain.health.logs.cursor import HEAD_BYTES, Cursor
from tracker.domain.health.logs.text import MAX_LINE_BYTES


class Log:
    """A file with a writer and a reader."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cursor: Cursor | None = None
        self.file = FollowedFile(path)
        self.written: list[str] = []
        self.seen: list[str] = []
        self.number = 0
        self._writer = path.open("ab", buffering=0)

    def write(self, text: str | None = None, *, end: str = "\n") -> None:
        self.number += 1
        text = f"line {self.number} {'x' * (self.number % 300)}" if text is None else text
        self.written.append(text)
        self._writer.write(text.encode() + end.encode())

    def read(self) -> None:
        while (part := self.file.read()) is not None:
            self.seen += [line.text for line in part.lines]
            self.cursor = part.cursor

    def restart(self) -> None:
        self.file.close()
        self.file = FollowedFile(self.path, self.cursor)

    def rotate(self) -> None:
        """As logrotate does with `create`: the writer opens a new file."""
        for number in range(8, 0, -1):
            old = self.path.with_name(f"{self.path.name}.{number}")
            if old.exists():
                old.rename(self.path.with_name(f"{self.path.name}.{number + 1}"))
        self.path.rename(self.path.with_name(f"{self.path.name}.1"))
        self._writer.close()
        self._writer = self.path.open("ab", buffering=0)

    def copy(self) -> None:
        """As logrotate does with `copytruncate`."""
        shutil.copyfile(self.path, self.path.with_name(f"{self.path.name}-{self.number:06d}"))
        os.truncate(self.path, 0)

    def pack(self) -> None:
        """The same, packed at once."""
        with gzip.open(self.path.with_name(f"{self.path.name}-{self.number:06d}.gz"), "wb") as file:
            file.write(self.path.read_bytes())
        os.truncate(self.path, 0)

    def close(self) -> None:
        self.file.close()
        self._writer.close()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with closing(Log(tmp_path / "train.log")) as log:
        yield log


ACTIONS = ("write", "write", "write", "read", "read", "restart", "rotate", "copy", "pack")


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_to_the_file_nothing_is_lost_and_nothing_is_read_twice(log: Log, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - no secret
    is_rotated = False
    for _ in range(60):
        action = rng.choice(ACTIONS)
        if action == "write":
            for _ in range(rng.randint(1, 20)):
                log.write()
        elif action == "read":
            log.read()
            is_rotated = False
        elif action == "restart":
            log.restart()
        elif log.cursor is not None and not is_rotated:  # of two rotations unseen, one part has no known begin
            {"rotate": log.rotate, "copy": log.copy, "pack": log.pack}[action]()
            log.write()
            is_rotated = True
    log.read()
    assert log.seen == log.written


def test_a_deleted_file_is_read_to_its_end_and_a_new_one_from_its_begin(log: Log) -> None:
    log.write()
    log.read()
    log.path.unlink()
    log.write("last words", end="")
    log.read()
    log.path.write_text("new\n")
    log.read()
    assert log.seen == [*log.written, "new"]


def read(file: FollowedFile) -> list[str]:
    return [line.text for part in iter(file.read, None) for line in part.lines]


def test_a_writer_that_keeps_its_place_after_a_truncation_leaves_a_hole_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    with path.open("wb", buffering=0) as writer, closing(FollowedFile(path)) as file:
        writer.write(b"a\n")
        assert read(file) == ["a"]
        writer.truncate(0)
        writer.seek(1 << 40)  # a terabyte of nothing
        writer.write(b"b\n")
        assert read(file) == ["b"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-8"])
def test_encodings_are_known_by_their_mark(tmp_path: Path, encoding: str) -> None:
    mark = "\ufeff" if encoding in ("utf-16-le", "utf-16-be") else ""
    path, seen = tmp_path / "train.log", list[str]()
    content = f"{mark}étape 1 | loss: 2.5\r\n損失 2\n".encode(encoding)
    with closing(FollowedFile(path)) as file:
        for end in range(1, len(content) + 1):  # as if every byte came alone
            path.write_bytes(content[:end])
            seen += read(file)
    assert [text for text in seen if text] == ["étape 1 | loss: 2.5", "損失 2"]


def test_what_several_ranks_print_into_one_line_is_a_line_each(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text('  File "x", line 3[rank5]: a[rank12]:[E1 b\n{"text": "[rank0]: a[rank1]: b"}\n[rank0]: c\n')
    with closing(FollowedFile(path)) as file:
        part = file.read()
    assert part is not None
    assert [(line.number, line.text) for line in part.lines] == [
        *((1, '  File "x", line 3'), (1, "[rank5]: a"), (1, "[rank12]:[E1 b")),
        *((2, '{"text": "[rank0]: a[rank1]: b"}'), (3, "[rank0]: c")),
    ]


def test_of_a_line_that_is_too_long_the_begin_is_a_line(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(b"a\n" + b"tensor " * (3 * CHUNK_BYTES // 7) + b"\nb\n" + b"\0" * 10 + b"c\n")
    with closing(FollowedFile(path)) as file:
        lines = [line for part in iter(file.read, None) for line in part.lines]
    assert [(line.number, line.text[:6]) for line in lines] == [(1, "a"), (2, "tensor"), (3, "b"), (4, "c")]
    assert len(lines[1].text) <= MAX_LINE_BYTES


def test_of_a_huge_log_of_the_past_only_the_end_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "train.log"
    with path.open("wb") as writer:
        writer.write(b"first\n")
        writer.seek(200 << 30)
        writer.write(b"\nlast\n")
    with closing(FollowedFile(path, is_history=True)) as file:
        assert [text for text in read(file) if text] == ["last"]
    assert caplog.messages == [f"read only the last {limits.LOG.most >> 20} MB of {path}: it is too large"]


def test_a_pipe_is_an_error_without_waiting_for_its_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.log")
    with pytest.raises(OSError, match="not a regular file"):
        FollowedFile(tmp_path / "train.log").read()


def test_a_packed_part_with_a_hole_is_read_to_its_end_and_unpacked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "train.log"
    old = [f"line {number}" for number in range(60_000)]
    path.write_text("\n".join(old[:10]) + "\n")
    file = FollowedFile(path)
    assert read(file) == old[:10]
    whole = "\n".join(old[:10]) + "\n" + "\0" * 3 * CHUNK_BYTES + "\n".join(old[10:]) + "\n"
    packed = tmp_path / "train.log.1.gz"
    packed.write_bytes(gzip.compress(whole.encode()))
    path.write_text("new\n")
    monkeypatch.setattr(gzip, "GzipFile", ForwardOnly)
    assert read(file) == [*old[10:], "new"]
    file.close()


class ForwardOnly(gzip.GzipFile):
    """Goes back over the first bytes only, which it has in memory."""

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_SET:
            assert offset >= self.tell() - HEAD_BYTES, "it was unpacked from its begin"
        return super().seek(offset, whence)
