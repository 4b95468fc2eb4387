"""What is shown on a terminal: text of a model, a file name or a server is data, and no key is shown."""

import logging
import os
import sys
import traceback
from types import TracebackType

from eval_jobs.host.secrets import held_secrets, masked
from tracker.domain.records.display import clean, one_line


class CleanFormatter(logging.Formatter):
    """A formatter that shows control characters instead of obeying them, and no key."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the whole line, with its traceback where there is one."""
        return printable(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as in the base class
        """Return the line itself as one line: a text must not look like two."""
        return one_line(super().formatMessage(record))


def printable(text: str) -> str:
    """Return `text` as it may be shown: without control characters, without the keys of this process."""
    return clean(masked(text, held_secrets(os.environ)))


def show_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Write a traceback, as `sys.excepthook`: a foreign error may repeat what it was sent."""
    sys.stderr.write(printable("".join(traceback.format_exception(kind, error, trace))))


def log_with(handler: logging.Handler, pattern: str) -> None:
    """Make `handler` the only one, with lines after `pattern`."""
    handler.setFormatter(CleanFormatter(pattern))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
