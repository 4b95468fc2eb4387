"""Whether one rank of a training leaves the others of the same step. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

from tracker.domain.health.series.findings import SeriesPoint
from tracker.domain.health.series.loss import DEVIATIONS, DISTANCES, HISTORY
from tracker.domain.health.series.robust import MAD_TO_SD, RollingMedian

WAITING = 2
"""Newest steps that are not judged yet: some ranks may print them later."""
LEAST_RANKS = 3
MOST_RANKS = 4_096
SHARE = 0.05
"""Smallest distance, as a share of the median."""


@dataclass(kw_only=True)
class RankSeries:
    """One number of all ranks: the noise is the distance from the median of the ranks, over the newest steps."""

    _newest: dict[int, dict[int, float]] = field(default_factory=dict)
    """By step and rank."""
    _noise: RollingMedian = field(default_factory=lambda: RollingMedian(size=DISTANCES))

    def take(self, point: SeriesPoint, rank: int) -> Iterator[tuple[SeriesPoint, float, bool]]:
        """Read one point; yield those of a step that is judged, with its median and whether they are beyond."""
        at_step = self._newest.setdefault(point.step, {})
        if len(at_step) < MOST_RANKS:
            at_step[rank] = point.value
        if len(self._newest) > WAITING:
            step = min(self._newest)
            yield from self._judged(step, point.key, self._newest.pop(step))

    def _judged(self, step: int, key: str, by_rank: dict[int, float]) -> Iterator[tuple[SeriesPoint, float, bool]]:
        if len(by_rank) < LEAST_RANKS:
            return
        middle, has_history = median(by_rank.values()), len(self._noise.newest) >= HISTORY
        limit = max(DEVIATIONS * MAD_TO_SD * self._noise.middle, SHARE * abs(middle))
        self._noise.add(median(abs(value - middle) for value in by_rank.values()))
        for rank, value in by_rank.items():
            is_beyond = has_history and abs(value - middle) > limit
            yield SeriesPoint(step=step, key=key, value=value, rank=rank), middle, is_beyond
