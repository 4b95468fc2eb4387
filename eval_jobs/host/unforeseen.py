"""What is said of an error that nobody foresaw: the one sentence, at each of the few edges that must go on."""

import logging


def error_text(error: BaseException) -> str:
    """Return the kind and the text of an error."""
    return f"{type(error).__name__}: {error}"


def report_unforeseen(log: logging.Logger, what: str, error: BaseException, *, then: str) -> None:
    """Log what broke, what happens `then`, and the wish for a report; with the traceback where debugging is on."""
    traceback = error if log.isEnabledFor(logging.DEBUG) else None
    log.error("%s: %s (%s); please report this bug", what, error_text(error), then, exc_info=traceback)
