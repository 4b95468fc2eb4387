"""Text for a terminal: control characters from models, file names and servers are replaced, and secrets are masked."""

import logging
import os
import re
import sys
import traceback
from datetime import UTC, datetime
from io import TextIOWrapper
from types import TracebackType

import click

from eval_jobs.errors import TrackerError
from eval_jobs.host.secrets import held_secrets, masked
from tracker.domain.records.display import clean, one_line

_LINE = re.compile(r"^(?=[^\n])", re.MULTILINE)


class CleanFormatter(logging.Formatter):
    """A formatter that replaces control characters and masks secrets."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the whole record, with its traceback if it has one."""
        return printable(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as in the base class
        """Return the message on one line: one message must not look like two."""
        return one_line(super().formatMessage(record))


class RepeatFilter(logging.Filter):
    """Drops a message that equals the one before it; the 10th, 100th and so on are logged with their number.

    One with `ONCE` is logged once, whatever is logged in between.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last, self._count = "", 0
        self._said: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log the record."""
        message = record.getMessage()
        if getattr(record, "is_once", False):
            is_new = message not in self._said
            self._said.add(message)
            return is_new
        self._count = self._count + 1 if message == self._last else 1
        self._last = message
        is_logged = str(self._count).rstrip("0") == "1"
        if is_logged and self._count > 1:
            record.msg, record.args = f"{message} ({self._count:,} times)", ()
        return is_logged


class TimedLines(TextIOWrapper):
    """A text stream that begins every line with the time in UTC."""

    def __init__(self, stream: TextIOWrapper) -> None:
        super().__init__(stream.buffer, stream.encoding, stream.errors, line_buffering=True)
        self._stream = stream  # which closes its buffer when nothing refers to it
        self._is_at_start = True

    def write(self, text: str) -> int:
        """Write text; its lines have the time of this call."""
        start = 0 if self._is_at_start else text.find("\n") + 1 or len(text)
        if text:
            self._is_at_start = text.endswith("\n")
        return super().write(text[:start] + _LINE.sub(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} ", text[start:]))


def printable(text: str) -> str:
    """Return `text` with control characters replaced and the secrets of this process masked."""
    return clean(masked(text, held_secrets(os.environ)))


def show_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Write a traceback, as `sys.excepthook`; masked, because a third-party error may contain what it was sent."""
    sys.stderr.write(printable("".join(traceback.format_exception(kind, error, trace))))


def show_error(error: TrackerError) -> None:
    """Write what failed and what to do."""
    if "--debug" in sys.argv:
        show_traceback(type(error), error, error.__traceback__)
        return
    # The message may contain engine output, a server's response or a file name. As in logs, it must stay on one line.
    click.echo(f"{click.style('error', fg='red')} {error.code}: {one_line(printable(error.message))}", err=True)
    click.echo(f"  {click.style('hint', bold=True)}: {one_line(printable(error.hint))}", err=True)


def log_with(handler: logging.Handler, pattern: str) -> None:
    """Make `handler` the only log handler, with the format `pattern`."""
    handler.setFormatter(CleanFormatter(pattern))
    handler.addFilter(RepeatFilter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
