"""Texts for an unexpected error where the program must continue, and the end of a process."""

import logging
import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from eval_jobs.errors import CheckpointError, CheckpointUnreadable, TrackerError
from eval_jobs.limits import cut

Result = TypeVar("Result")
Other = TypeVar("Other")

MAX_SKIPPED = 512
"""Calls between two attempts of what is set aside: about one call a second."""
MAX_SAID = 10
"""Newest errors of an edge that are not logged again."""


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


class Edge:
    """Work that is done again and again and must go on after an unexpected error. Not thread-safe."""

    def __init__(self, log: logging.Logger, what: str, *, then: str) -> None:
        """Log errors as `report_unforeseen` does, but equal ones once."""
        self._log = log
        self._what = what
        self._then = then
        self._said: deque[str] = deque(maxlen=MAX_SAID)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Log an unexpected error and end the context."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - an edge that must go on
            if error_text(error) not in self._said:
                report_unforeseen(self._log, self._what, error, then=self._then)
                self._said.append(error_text(error))


def bug_of(text: str) -> CheckpointError:
    """Return the error of a checkpoint over which the tracker fails because of a bug."""
    return CheckpointUnreadable(f"unexpected error: {text}", hint="report this bug, with its traceback in the log")


class SetAside:
    """What failed because of a bug: the rest continues, and it is tried again ever more rarely.

    Each has a key. Not thread-safe.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._times: dict[str, int] = {}
        """By key, how many calls were skipped before the last attempt."""
        self._skip: dict[str, int] = {}
        """By key, for how many calls it is not attempted."""
        self.found: dict[str, str] = {}
        """By key, what is set aside and why."""

    def attempt(self, key: str, what: str, action: Callable[[], Result], otherwise: Other) -> Result | Other:
        """Return the result of an action, or `otherwise` if it fails unexpectedly; its first failure is logged.

        Raises:
            TrackerError: a known error, such as an unreachable store, which concerns everything.
        """
        with self.around(key, what) as is_due:
            if is_due:
                return action()
        return otherwise

    @contextmanager
    def around(self, key: str, what: str) -> Iterator[bool]:
        """Yield whether to attempt it now; an unexpected error is logged and ends the context.

        Raises:
            TrackerError: a known error, such as an unreachable store, which concerns everything.
        """
        if self._skip.get(key):
            self._skip[key] -= 1
            yield False
            return
        try:
            yield True
        except TrackerError:
            raise
        except Exception as error:  # noqa: BLE001 - an edge that must not fail
            self._fail(key, f"{what}: {cut(error_text(error))}")
        else:
            self._times.pop(key, None)
            self.found.pop(key, None)

    def _fail(self, key: str, text: str) -> None:
        self._skip[key] = self._times[key] = min(2 * self._times.get(key, 2), MAX_SKIPPED)
        if key not in self.found:
            self._log.exception("%s (it is set aside and tried again later); please report this bug", text)
        self.found[key] = text
