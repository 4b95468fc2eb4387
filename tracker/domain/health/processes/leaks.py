"""Whether what a training uses grows to its limit. Pure.

    trend = Trend()
    trend.take(at_s, rss_bytes)          # once a minute
    trend.hours_to(limit_bytes)          # 7.5; None: it does not grow, or not for long enough

The slope is that of Theil and Sen, the median of the slopes between all pairs of points: a third of the points may be
wild. Growth counts if it lasts: the newest half must grow at least half as fast as the whole.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import median

POINTS = 60
"""Maximum number of points, one a minute."""
REPORT_H = 24.0
SHOW_H = 7 * 24.0
LEAST_SHARE = 0.02
"""Share of the limit; smaller growth within the points is noise."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What the processes of a training use on this machine; None: not readable."""

    memory_bytes: int | None = None
    """Their own memory, without page cache that can be dropped."""
    memory_limit_bytes: int | None = None
    """The lowest limit among the machine and the cgroups."""
    descriptors: int | None = None
    """Open files of the process that is nearest to its limit."""
    descriptor_limit: int | None = None
    shared_bytes: int | None = None
    """In /dev/shm, of all processes."""
    shared_limit_bytes: int | None = None


@dataclass(kw_only=True)
class Trend:
    """The newest points of one number."""

    points: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=POINTS))
    left_out: int = 0

    def take(self, at_s: float, value: float) -> None:
        """Add a point; those of the first hour are left out, in which caches fill."""
        if self.left_out < POINTS:
            self.left_out += 1
            return
        self.points.append((at_s, value))

    @property
    def is_known(self) -> bool:
        """Whether there are enough points to know whether it grows."""
        return len(self.points) == POINTS

    def hours_to(self, limit: float) -> float | None:
        """Return in how many hours the limit is reached; None: never, or unknown."""
        if not self.is_known:
            return None
        points = tuple(self.points)
        whole, newest = slope(points), slope(points[POINTS // 2 :])
        hours = (points[-1][0] - points[0][0]) / 3600
        if whole <= 0 or newest < whole / 2 or whole * hours < LEAST_SHARE * limit:
            return None
        return max(0.0, limit - points[-1][1]) / whole


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the median slope between all pairs of points, in units an hour."""
    slopes = [(later[1] - before[1]) / (later[0] - before[0]) for before, later in combinations(points, 2)]
    return median(slopes) * 3600
