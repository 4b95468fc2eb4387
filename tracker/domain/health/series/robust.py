"""Medians and trends that single outliers do not move. Pure; all state is numbers and lists, for JSON."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import median

MAD_TO_SD = 1.4826
"""Standard deviations in a median absolute deviation of normal noise."""


@dataclass(kw_only=True)
class RollingMedian:
    """Median of the newest values."""

    size: int
    newest: list[float] = field(default_factory=list)
    ordered: list[float] = field(default_factory=list)
    """The same values, ascending."""

    def add(self, value: float) -> None:
        """Take a value; beyond `size`, the oldest one goes."""
        newest, ordered = self.newest, self.ordered
        if len(newest) >= self.size:
            del ordered[bisect_left(ordered, newest.pop(0))]
        newest.append(value)
        insort(ordered, value)

    @property
    def middle(self) -> float:
        """The median; 0.0 without a value."""
        ordered = self.ordered
        half, is_odd = divmod(len(ordered), 2)
        if is_odd:
            return ordered[half]
        return (ordered[half - 1] + ordered[half]) / 2 if ordered else 0.0


def trend(values: Sequence[float]) -> tuple[float, float]:
    """Return the slope (Theil and Sen) and its significance in standard deviations of chance (Mann and Kendall)."""
    slopes: list[float] = []
    for distance in range(1, len(values)):
        slopes += [(later - earlier) / distance for earlier, later in zip(values, values[distance:], strict=False)]
    slopes.sort()
    rises = len(slopes) - bisect_right(slopes, 0.0) - bisect_left(slopes, 0.0)
    count = len(values)
    return median(slopes), rises / sqrt(count * (count - 1) * (2 * count + 5) / 18)
