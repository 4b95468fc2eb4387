"""Files and JSON texts of others are read up to their limit."""

import os
from pathlib import Path

import pytest

from eval_jobs import limits
from eval_jobs.errors import TrackerError
from eval_jobs.host.bounded import files as bounded
from eval_jobs.host.bounded import json_text
from eval_jobs.limits import Limit

TEN = Limit(subject="test", most=10, beyond="")


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 10)
    assert bounded.read_bytes(file, TEN) == b"x" * 10
    os.truncate(file, 20 << 30)  # sparse
    with pytest.raises(json_text.TooLarge, match="is larger than 10 bytes"):
        bounded.read_bytes(file, TEN)


def test_a_file_without_a_size_is_read_up_to_its_limit() -> None:
    stat = Path("/proc/self/stat")  # like a file that grows while it is read
    assert bounded.read_bytes(stat, limits.DOCUMENT).endswith(b"\n")
    with pytest.raises(json_text.TooLarge):
        bounded.read_bytes(stat, TEN)


def test_a_pipe_or_a_device_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError, match=r"regular file|directory"):
            bounded.read_bytes(path, TEN)


def test_a_line_is_read_up_to_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_bytes(b"0123456\r\n89\nab")
    assert list(bounded.lines_of(file, TEN)) == [b"0123456", b"89", b"ab"]
    file.write_bytes(b"01\n" + b"x" * 11)
    with pytest.raises(json_text.TooLarge):
        list(bounded.lines_of(file, TEN))


IMPOSSIBLE: dict[str, str | bytes] = {
    "digits": '{"size": ' + "9" * 4000 + "}",
    "nested": "[" * 100_000,
    "deeply": "[" * (limits.DEPTH.most + 1) + "]" * (limits.DEPTH.most + 1),
    "codec": b"\xff\xff",
    "property": "{",
    "escape": '"\\ud8"',
}


@pytest.mark.parametrize("named", IMPOSSIBLE)
def test_an_impossible_json_text_is_a_value_error(named: str) -> None:
    with pytest.raises(ValueError, match=named):
        json_text.parse_json(IMPOSSIBLE[named])


def test_a_json_text_of_too_many_values_is_a_value_error() -> None:
    with pytest.raises(json_text.TooLarge, match="values"):
        json_text.parse_json("[" + "[]," * (limits.VALUES.most // 2) + "0]")


def test_json_may_be_nested_up_to_its_limit() -> None:
    text = '{"a":' * limits.DEPTH.most + "1" + "}" * limits.DEPTH.most
    assert "a" in json_text.parse_json(text)


def test_json_has_the_same_value_as_text_and_as_bytes() -> None:
    text = '{"a": [1, -2.5e3, "ü", null], "b": {"c": true}}'
    assert (
        json_text.parse_json(text)
        == json_text.parse_json(text.encode())
        == {"a": [1, -2500.0, "ü", None], "b": {"c": True}}
    )


def test_an_error_keeps_the_beginning_of_a_long_message() -> None:
    error = TrackerError("x" * 30_000_000, hint="shorten it")
    assert len(str(error)) < 2 * limits.MESSAGE_CHARS
    assert error.message.endswith("…")
