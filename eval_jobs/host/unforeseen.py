"""The message for an unexpected error, at each of the few places where the program must continue."""

import logging


def error_text(error: BaseException) -> str:
    """Return the type and the text of an error."""
    return f"{type(error).__name__}: {error}"


def report_unforeseen(log: logging.Logger, what: str, error: BaseException, *, then: str) -> None:
    """Log what failed, what happens `then`, and a request to report it; with the traceback if debugging is on."""
    traceback = error if log.isEnabledFor(logging.DEBUG) else None
    log.error("%s: %s (%s); please report this bug", what, error_text(error), then, exc_info=traceback)
