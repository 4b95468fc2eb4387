"""Log lines and errors never control the terminal that shows them."""

import io
import logging
import re
import sys
from collections.abc import Iterator

import click
import pytest
from rich.console import Console

from eval_jobs.errors import ServerDied
from tracker.cli import main as cli_main
from tracker.cli.log_text import CleanFormatter, TimedLines, log_with, show_traceback
from tracker.domain.records.display import ONCE, REPLACEMENT

HOSTILE = "\x1b]0;owned\x07\x1b[2Jstep\r\u202e"


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level


def test_control_characters_of_a_message_are_shown_and_not_obeyed() -> None:
    stream = io.StringIO()
    log_with(logging.StreamHandler(stream), "%(levelname)s: %(message)s")
    logging.getLogger("tests").warning("%s is complete", HOSTILE)
    shown = stream.getvalue()
    assert "step" in shown
    assert shown.startswith("WARNING: ")
    assert not {"\x1b", "\x07", "\r", "\u202e"} & set(shown)


def test_a_message_cannot_look_like_two_lines() -> None:
    stream = io.StringIO()
    log_with(logging.StreamHandler(stream), "%(levelname)s: %(message)s")
    logging.getLogger("tests").warning("%s is complete", "a\nERROR: all is lost")
    assert stream.getvalue() == "WARNING: a ERROR: all is lost is complete\n"


def test_a_traceback_is_cleaned_too() -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        record = logging.LogRecord("tests", logging.ERROR, "", 1, "failed", (), sys.exc_info())
    shown = CleanFormatter("%(message)s").format(record)
    assert "ValueError" in shown
    assert "\x1b" not in shown


def test_a_key_is_shown_neither_in_a_line_nor_in_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key = "canary" + "-4711"  # not as one word of a line that a traceback shows
    monkeypatch.setenv("GATEWAY_KEY", key)
    stream = io.StringIO()
    log_with(logging.StreamHandler(stream), "%(message)s")
    try:
        raise ValueError(f"refused: Bearer {key}")
    except ValueError as error:
        logging.getLogger("tests").exception("failed with %s", key)
        show_traceback(type(error), error, error.__traceback__)
    said = stream.getvalue() + capsys.readouterr().err
    assert said.count("ValueError: refused: Bearer ***") == 2
    assert key not in said


def test_an_error_that_quotes_an_engine_is_cleaned(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise ServerDied(f"the engine said {HOSTILE}", hint=f"read {HOSTILE}")

    monkeypatch.setattr(cli_main.cli, "main", fail)
    monkeypatch.setattr(sys, "argv", ["tracker", "run"])
    with pytest.raises(SystemExit) as ended:
        cli_main.main()
    said = capsys.readouterr().err
    assert ended.value.code == ServerDied.exit_code
    assert REPLACEMENT in said
    assert "\x1b]0;" not in said
    assert "\x07" not in said


def test_an_unexpected_error_does_not_exit_like_a_regression(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1 would: CI stops a merge for it, and says why."""

    def fail(**_: object) -> None:
        raise RuntimeError(f"broken {HOSTILE}")

    monkeypatch.setattr(cli_main.cli, "main", fail)
    monkeypatch.setattr(sys, "argv", ["tracker", "gate"])
    with pytest.raises(SystemExit) as ended:
        cli_main.main()
    said = capsys.readouterr().err
    assert ended.value.code == 4
    assert "RuntimeError: broken" in said
    assert "\x07" not in said


def test_a_repeated_message_is_logged_once_and_then_with_its_number() -> None:
    stream = io.StringIO()
    log_with(logging.StreamHandler(stream), "%(message)s")
    for text in ["store %s unreachable"] * 12 + ["store %s usable", "store %s unreachable"]:
        logging.getLogger("tests").warning(text, "a")
    assert stream.getvalue().splitlines() == [
        "store a unreachable",
        "store a unreachable (10 times)",
        "store a usable",
        "store a unreachable",
    ]


def test_a_warning_about_settings_is_logged_again_only_when_it_changes() -> None:
    stream = io.StringIO()
    log_with(logging.StreamHandler(stream), "%(message)s")
    for rows in (1, 1, 2):
        logging.getLogger("tests").warning("sums: %d rows repeat", rows, extra=ONCE)
        logging.getLogger("tests").warning("facts: 1 row repeats", extra=ONCE)
    assert stream.getvalue().splitlines() == ["sums: 1 rows repeat", "facts: 1 row repeats", "sums: 2 rows repeat"]


def test_lines_of_a_log_that_is_no_terminal_begin_with_the_time() -> None:
    written = io.BytesIO()
    timed = TimedLines(io.TextIOWrapper(written, "utf-8"))
    console = Console(file=timed)
    console.print("found", "step", end=" ")
    console.print("100\n\n  watching")
    log_with(logging.StreamHandler(timed), "%(levelname)s: %(message)s")
    logging.getLogger("tests").warning("unreachable")
    click.echo("error E-CONFIG", file=timed)
    timed.write("")
    times = re.compile(r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ ", re.MULTILINE)
    assert times.sub("+", written.getvalue().decode()) == (
        "+found step 100\n\n+  watching\n+WARNING: unreachable\n+error E-CONFIG\n"
    )
