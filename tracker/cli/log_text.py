"""Log lines as text for a terminal: what a model, a file name or a server put into them is data."""

from __future__ import annotations

import logging

from tracker.domain.display import clean


class CleanFormatter(logging.Formatter):
    """A formatter that shows control characters instead of obeying them."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the whole line, with its traceback where there is one."""
        return clean(super().format(record))


def log_with(handler: logging.Handler, pattern: str) -> None:
    """Make `handler` the only one, with lines after `pattern`."""
    handler.setFormatter(CleanFormatter(pattern))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
