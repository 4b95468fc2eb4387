"""Users' rules for lines, with a limit of time: a pattern may need longer than the universe for one line."""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tracker.domain.health.rules.lines import LineRule, rule_fits

log = logging.getLogger(__name__)

LIMIT_S = 0.05
"""CPU time for one line."""


class TooSlow(BaseException):
    """Raised by the timer inside the search."""


class GuardedRules:
    """`line_rules.Fits` that disables a user's rule when one line takes too long. For the main thread."""

    def __init__(self) -> None:
        self._disabled: set[str] = set()

    def __call__(self, rule: LineRule, line: str) -> bool:
        """Return whether the rule fits the line; a disabled one never does."""
        if not rule.is_own or threading.current_thread() is not threading.main_thread():
            return rule_fits(rule, line)
        if rule.name in self._disabled:
            return False
        try:
            with limited_cpu(LIMIT_S):
                return rule_fits(rule, line)
        except TooSlow:
            self._disabled.add(rule.name)
            log.warning(
                "rule %s is disabled: its pattern took longer than %.0f ms for a line of %d characters; "
                "simplify nested repetitions such as (a+)+",
                rule.name,
                LIMIT_S * 1000,
                len(line),
            )
        return False


@contextmanager
def limited_cpu(seconds: float) -> Iterator[None]:
    """Raise TooSlow after that much CPU time. For the main thread; a search looks for signals now and then."""

    def stop(*_: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
