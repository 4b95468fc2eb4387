"""Whether a number of a training leaves its own past. Pure.

Each judge takes a point of one number, in their order. It returns what was expected where the point is beyond its
limit, else None; with fewer than `HISTORY` points before it, always None.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median

from tracker.domain.health.series.findings import GRADIENT, LR, MEMORY, THROUGHPUT, SeriesRule
from tracker.domain.health.series.kinds import NumberKind
from tracker.domain.health.series.loss import DEVIATIONS, DISTANCES, HISTORY
from tracker.domain.health.series.robust import MAD_TO_SD, RollingMedian, trend

NEWEST = 100
GRADIENT_TIMES = 3.0
SLOW = 0.7
LR_TIMES = 2.0
LR_SHARE = 0.1
"""Smallest jump, as a share of the highest learning rate: the end of a schedule halves it, too."""
MEMORY_GROWTH = 0.2
MEMORY_EVERY = 5
SIGNIFICANT = 4.0
"""Standard deviations of chance: memory that steps up once has at most 3.3."""
FLAT_POINTS = 200
FLAT_PARTS = 120
"""A run is kept in means of equal parts; at that number, two neighbours become one."""
FLAT_EVERY = 5
"""Parts after which a loss is judged again: a trend is expensive."""


@dataclass(kw_only=True)
class NumberSeries:
    """The newest healthy points of a number, and how far points were from the median of those before them."""

    points: RollingMedian = field(default_factory=lambda: RollingMedian(size=NEWEST))
    distances: RollingMedian = field(default_factory=lambda: RollingMedian(size=DISTANCES))
    highest: float = 0.0
    """Of all points."""


def _gradient(series: NumberSeries, value: float) -> float | None:
    expected = series.points.middle
    limit = max(expected + DEVIATIONS * MAD_TO_SD * series.distances.middle, GRADIENT_TIMES * expected)
    series.distances.add(abs(value - expected))  # outliers belong to the noise of the run
    return _kept_unless(value > limit, series, value)


def _rate(series: NumberSeries, value: float) -> float | None:
    return _kept_unless(value < SLOW * series.points.middle, series, value)


def _step_time(series: NumberSeries, value: float) -> float | None:
    return _kept_unless(SLOW * value > series.points.middle, series, value)


def _kept_unless(is_beyond: bool, series: NumberSeries, value: float) -> float | None:  # noqa: FBT001
    if is_beyond and len(series.points.newest) >= HISTORY:
        return series.points.middle
    series.points.add(value)
    return None


def _learning_rate(series: NumberSeries, value: float) -> float | None:
    newest = series.points.newest
    before, has_history = newest[-1] if newest else 0.0, len(newest) >= HISTORY
    series.points.add(value)
    series.highest = max(series.highest, value)
    smallest = LR_SHARE * series.highest
    is_jump = value > LR_TIMES * before or before > LR_TIMES * value
    return before if has_history and before > 0 and is_jump and abs(value - before) > smallest else None


def _memory(series: NumberSeries, value: float) -> float | None:
    series.points.add(value)
    newest = series.points.newest
    smallest = MEMORY_GROWTH * abs(newest[0])
    if len(newest) < NEWEST or value - newest[0] <= smallest:
        return None
    slope, significance = trend(newest[::MEMORY_EVERY])
    grows = significance > SIGNIFICANT and slope * NEWEST / MEMORY_EVERY > smallest
    return newest[0] if grows else None


Judge = Callable[[NumberSeries, float], float | None]
JUDGES: Mapping[NumberKind, tuple[SeriesRule, Judge]] = {
    NumberKind.GRADIENT: (GRADIENT, _gradient),
    NumberKind.RATE: (THROUGHPUT, _rate),
    NumberKind.STEP_TIME: (THROUGHPUT, _step_time),
    NumberKind.LEARNING_RATE: (LR, _learning_rate),
    NumberKind.MEMORY: (MEMORY, _memory),
}


@dataclass(kw_only=True)
class FlatSeries:
    """A loss: whether it has not fallen over at least the newest 200 points and a third of the run."""

    _stride: int = 1
    """Points in a part."""
    _part: list[float] = field(default_factory=list)
    _parts: list[float] = field(default_factory=list)
    _expected: float | None = None

    def take(self, loss: float) -> float | None:
        """Read one point; return the median of those points while the loss is flat."""
        self._part.append(loss)
        if len(self._part) >= self._stride:
            self._parts.append(sum(self._part) / self._stride)
            self._part.clear()
            if len(self._parts) % FLAT_EVERY == 0:
                self._judge()
        return self._expected

    def _judge(self) -> None:
        if len(self._parts) >= FLAT_PARTS:
            self._parts = [sum(pair) / 2 for pair in zip(self._parts[::2], self._parts[1::2], strict=True)]
            self._stride *= 2
        needed = max(-(-FLAT_POINTS // self._stride), -(-len(self._parts) // 3))
        newest = self._parts[-needed:]
        if len(newest) == needed:
            is_flat = median(newest) != 0 and trend(newest)[0] >= 0  # a loss of 0 has nowhere to fall
            self._expected = median(newest) if is_flat else None
