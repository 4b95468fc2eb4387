"""What is known of results that others measured. A part of `types`."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """All that is left of a benchmark whose samples were not kept."""

    mean: float
    """In the metric's own direction, from 0 to 1."""
    stderr: float | None
    """Standard error of the mean over its samples, or an upper bound of it; None: neither is known."""
    samples: int | None
    """None: not known."""
