"""Medians and trends that single outliers do not move. Pure; all state is numbers and lists, for JSON."""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
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
        if len(self.newest) >= self.size:
            oldest = self.newest.pop(0)
            del self.ordered[bisect_left(self.ordered, oldest)]
        self.newest.append(value)
        insort(self.ordered, value)

    @property
    def middle(self) -> float:
        """The median; 0.0 without a value."""
        ordered, half = self.ordered, len(self.ordered) // 2
        if not ordered:
            return 0.0
        if len(ordered) % 2:
            return ordered[half]
        return (ordered[half - 1] + ordered[half]) / 2


def trend(values: Sequence[float]) -> tuple[float, float]:
    """Return the slope (Theil and Sen) and its significance in standard deviations of chance (Mann and Kendall)."""
    pairs = combinations(enumerate(values), 2)
    slopes = [(second - first) / (later - earlier) for (earlier, first), (later, second) in pairs]
    rises = sum(slope > 0 for slope in slopes) - sum(slope < 0 for slope in slopes)
    count = len(values)
    return median(slopes), rises / sqrt(count * (count - 1) * (2 * count + 5) / 18)
