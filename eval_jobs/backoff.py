"""Delays between retries. Pure: the caller waits."""

import math
import re
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime

_SECONDS = re.compile(r"[0-9]+(\.[0-9]*)?")
_MAX_EXPONENT = 64
"""Above it, any limit is reached, and a float could overflow."""


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Exponential backoff: `first_s`, multiplied by `factor` after each failure, at most `longest_s`."""

    first_s: float
    factor: float = 2.0
    longest_s: float = math.inf

    def wait_s(self, failures: int, retry_after_s: float | None = None) -> float:
        """Return the seconds to wait after consecutive failures, at least `retry_after_s`.

        Args:
            failures: number of consecutive failures, 1 or more.
            retry_after_s: delay that the service requested, if any.
        """
        grown_s = self.first_s * self.factor ** min(failures - 1, _MAX_EXPONENT)
        return max(min(grown_s, self.longest_s), retry_after_s or 0.0)


def retry_after_s(header: str, now: datetime, *, longest_s: float) -> float | None:
    """Return the delay that an HTTP header Retry-After requests, in seconds from `now`; None if it is invalid.

    Args:
        header: a number of seconds, possibly with decimals, or a date.
        now: timezone-aware.
        longest_s: upper limit of the result.
    """
    text = header.strip()
    if _SECONDS.fullmatch(text):
        return min(float(text), longest_s)
    try:
        seconds = (parsedate_to_datetime(text) - now).total_seconds()
    except (TypeError, ValueError):
        return None
    return min(max(seconds, 0.0), longest_s)
