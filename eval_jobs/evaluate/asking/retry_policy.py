"""Pauses of the evaluator before it retries."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Pauses in seconds before each retry, by kind of failure; after the last pause there is no retry."""

    broken_s: tuple[float, ...] = (0.5, 1.5)
    """After a broken connection or response."""
    busy_s: tuple[float, ...] = (1.0, 4.0, 16.0)
    """After a response that the server is busy."""
    lost_s: tuple[float, ...] = (5.0, 20.0)
    """Before each further pass over the samples without an answer, if the server responds."""
