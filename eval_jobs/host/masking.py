"""Formats log lines of a worker without its secrets and without control characters."""

import logging
import os
import re

from eval_jobs.host.secrets import held_secrets, masked

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
REPLACEMENT = "\ufffd"


class MaskingFormatter(logging.Formatter):
    """A formatter that replaces every secret of this process with `***`: an error may repeat a key that was sent.

    Control characters become U+FFFD, because logs are read in terminals.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with its traceback if there is one."""
        return _CONTROLS.sub(REPLACEMENT, masked(super().format(record), held_secrets(os.environ)))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as in the base class
        """Return the message as one line: it must not look like two entries."""
        return " ".join(super().formatMessage(record).splitlines())
