"""Log lines of a worker, without the keys that it holds."""

from __future__ import annotations

import logging
import os

from eval_jobs.secrets import held_secrets, masked


class MaskingFormatter(logging.Formatter):
    """A formatter that writes `***` for every key of this process: a foreign error may repeat what it was sent."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with its traceback where there is one."""
        return masked(super().format(record), held_secrets(os.environ))
