"""Summaries of imported results. A part of `types`."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """Summary of a benchmark whose samples were not kept."""

    mean: float
    """In the metric's own direction, 0 to 1."""
    stderr: float | None
    """Standard error of the mean over its samples, or an upper bound. None: neither is known."""
    samples: int | None
    """Number of samples. None: unknown."""
