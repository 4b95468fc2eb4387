"""Log lines of a worker, without the keys that it holds and without what would control a terminal."""

import logging
import os
import re

from eval_jobs.host.secrets import held_secrets, masked

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
REPLACEMENT = "\ufffd"


class MaskingFormatter(logging.Formatter):
    """A formatter that writes `***` for every key of this process: a foreign error may repeat what it was sent.

    And U+FFFD for control characters: logs are read in terminals.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with its traceback where there is one."""
        return _CONTROLS.sub(REPLACEMENT, masked(super().format(record), held_secrets(os.environ)))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as in the base class
        """Return the line itself as one line: a text must not look like two."""
        return " ".join(super().formatMessage(record).splitlines())
