"""Texts for an unexpected error where the program must continue, and the end of a process."""

import logging
import signal


def error_text(error: BaseException) -> str:
    """Return the type and the text of an error."""
    return f"{type(error).__name__}: {error}"


def exit_words(code: int) -> str:
    """Return an exit code in words; negative: the number of the signal that ended the process."""
    if code >= 0:
        return f"exit code {code}"
    known = {number.value: number.name for number in signal.Signals}
    return f"killed by {known.get(-code, f'signal {-code}')}"


def report_unforeseen(log: logging.Logger, what: str, error: BaseException, *, then: str) -> None:
    """Log what failed, what happens `then`, and a request to report it; with the traceback if debugging is on."""
    traceback = error if log.isEnabledFor(logging.DEBUG) else None
    log.error("%s: %s (%s); please report this bug", what, error_text(error), then, exc_info=traceback)
