"""How long to wait before something that failed is tried again. Pure; the caller waits."""

import math
import re
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime

_SECONDS = re.compile(r"[0-9]+(\.[0-9]*)?")
_MAX_EXPONENT = 64
"""Beyond it every limit is reached, and a float would overflow."""


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Exponential waiting: `first_s`, then each time `factor` as long, never longer than `longest_s`."""

    first_s: float
    factor: float = 2.0
    longest_s: float = math.inf

    def wait_s(self, failures: int, retry_after_s: float | None = None) -> float:
        """Return the seconds to wait after so many failures in a row, and no less than the service asked for.

        Args:
            failures: 1 or more.
            retry_after_s: what the service asked for, if it did.
        """
        grown_s = self.first_s * self.factor ** min(failures - 1, _MAX_EXPONENT)
        return max(min(grown_s, self.longest_s), retry_after_s or 0.0)


def retry_after_s(header: str, now: datetime, *, longest_s: float) -> float | None:
    """Return what an HTTP header Retry-After asks for, in seconds from `now`; None where it says nothing sensible.

    Args:
        header: a number of seconds, with decimals where a server sends them, or a date.
        now: with a time zone.
        longest_s: what is obeyed at most.
    """
    text = header.strip()
    if _SECONDS.fullmatch(text):
        return min(float(text), longest_s)
    try:
        seconds = (parsedate_to_datetime(text) - now).total_seconds()
    except (TypeError, ValueError):
        return None
    return min(max(seconds, 0.0), longest_s)
