"""Who is to blame for a failed request, how it reads, and how long to wait before the next try."""

from __future__ import annotations

import email.utils
import math
import time
from enum import Enum, auto

import openai

from eval_jobs.evaluate.common.pauses import Pauses

MAX_RETRY_AFTER_S = 60.0


class Blame(Enum):
    """What a failed request says."""

    SAMPLE = auto()
    """This request was refused."""
    KEY = auto()
    """The server does not let us in."""
    SERVER = auto()
    """No request of this kind will be answered."""
    BUSY = auto()
    """Try again later."""
    BROKEN = auto()
    """The connection or the answer broke; try again soon."""
    SLOW = auto()
    """No answer in time; asking again at once would cost as much."""


def blame(error: Exception) -> Blame:
    """Sort a failed request."""
    if isinstance(error, openai.APITimeoutError):
        return Blame.SLOW
    if not isinstance(error, openai.APIStatusError):
        return Blame.BROKEN
    if error.status_code in (400, 413, 422):
        return Blame.SAMPLE
    if error.status_code in (401, 403):
        return Blame.KEY
    if error.status_code in (429, 503, 529):
        return Blame.BUSY
    return Blame.BROKEN if error.status_code >= 500 or error.status_code in (408, 409, 425) else Blame.SERVER


def describe(error: Exception) -> str:
    """Return one line for a person: the server's own words where there are any."""
    if isinstance(error, openai.APIStatusError):
        body = error.body if isinstance(error.body, dict) else {}
        return f"HTTP {error.status_code}: {body.get('message') or error.message}"
    cause = error.__cause__
    text = f"{type(error).__name__}: {error}"
    return f"{text} ({cause})" if cause is not None and str(cause) not in text else text


def pause_s(error: Exception, attempt: int, pauses: Pauses) -> float | None:
    """Return how long to wait after failed try number `attempt`, from 0; None when there is no next one.

    A server may ask for more by Retry-After, and gets it up to `MAX_RETRY_AFTER_S`.
    """
    of_its_kind = {Blame.BUSY: pauses.busy_s, Blame.BROKEN: pauses.broken_s}.get(blame(error), ())
    if attempt >= len(of_its_kind):
        return None
    return max(of_its_kind[attempt], retry_after_s(error))


def retry_after_s(error: Exception) -> float:
    """Return what the server asks for, in seconds or as a date, between 0 and `MAX_RETRY_AFTER_S`."""
    if not isinstance(error, openai.APIStatusError):
        return 0.0
    text = error.response.headers.get("retry-after", "")
    try:
        seconds = float(text)
    except ValueError:
        seconds = _until(text)
    return max(0.0, min(seconds, MAX_RETRY_AFTER_S)) if not math.isnan(seconds) else 0.0


# --- private


def _until(date: str) -> float:
    try:
        return email.utils.parsedate_to_datetime(date).timestamp() - time.time()
    except ValueError:
        return 0.0
