"""Whether the loss of a training leaves its own past: a spike, a divergence, a collapse. Pure.

    series = LossSeries()
    for step, loss in points:
        series.take(step, loss)
    series.findings

A point is compared with the median of the newest healthy ones, and its distance with those that healthy points had
from theirs (median absolute deviation): both ignore single outliers. Values that are no number are left out.
"""

import math
from collections import deque
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import median

HISTORY = 20
"""Healthy points behind the expected value; with fewer, nothing but a collapse is found."""
DISTANCES = 50
"""Healthy points whose distances show the noise."""
DEVIATIONS = 10.0
SHARE = 0.3
"""Smallest rise, as a share of the expected loss: in a calm series many deviations are nothing."""
SHARE_OF_HIGHEST = 0.02
"""The same of the highest healthy loss: near 0, everything is many times the expected loss."""
IN_A_ROW = 2
"""Points beyond the limit: a single one is noise of its batch."""
LASTING = 20
"""Points without recovery after which a spike is a divergence."""
EQUAL = 5
"""Equal points that are a collapse, for example at the logarithm of the vocabulary's size."""
_DIGITS = 4
_MAD_TO_SD = 1.4826


class SeriesName(StrEnum):
    """Classes of findings."""

    SPIKE = "spike"
    """The loss rose, and came back or may still do so."""
    DIVERGED = "diverged"
    """It did not come back."""
    COLLAPSED = "collapsed"
    """It rose and stands still: the model says the same whatever it is asked."""


@dataclass(frozen=True, kw_only=True)
class SeriesFinding:
    """One stretch of a series that is not healthy."""

    name: SeriesName
    is_numbered: bool = True
    """Whether the log names steps; else they are the numbers of its losses, from 1."""
    onset_step: int
    """First step beyond the limit."""
    found_step: int
    """Step at which it was certain."""
    expected: float
    """Loss before it."""
    worst: float
    over_step: int | None = None
    """First step that was back; None: it lasts."""


@dataclass(kw_only=True)
class LossSeries:
    """Follows the training loss in the order of its steps."""

    is_numbered: bool = True
    """As in `SeriesFinding`."""
    last_step: int | None = None
    """Step of the newest point."""
    _healthy: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))
    _distances: deque[float] = field(default_factory=lambda: deque(maxlen=DISTANCES))
    _beyond: list[tuple[int, float]] = field(default_factory=list)
    _newest: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=EQUAL))
    _first: float | None = None
    _lowest: float = math.inf
    _highest: float = 0.0
    """Of healthy points."""
    _ended: list[SeriesFinding] = field(default_factory=list)
    _open: SeriesFinding | None = None

    @property
    def findings(self) -> tuple[SeriesFinding, ...]:
        """All findings so far, in the order of their steps."""
        if self._open is None:
            return tuple(self._ended)
        return (*self._ended, self._open)

    def take(self, step: int, loss: float) -> None:
        """Read one point."""
        self.last_step = step
        if not math.isfinite(loss):
            return
        if self._first is None:
            self._first = loss
        self._newest.append((step, loss))
        if self._has_collapsed():
            self._collapse()
        elif len(self._healthy) < HISTORY:
            self._keep(loss)
        elif loss > self._limit():
            self._beyond.append((step, loss))
            self._rise()
        else:
            self._recover(step, loss)
        self._lowest = min(self._lowest, loss)

    def _limit(self) -> float:
        noise = _MAD_TO_SD * median(self._distances)
        smallest = max(SHARE * abs(self._expected()), SHARE_OF_HIGHEST * self._highest)
        return self._expected() + max(DEVIATIONS * noise, smallest)

    def _expected(self) -> float:
        return median(self._healthy)

    def _keep(self, loss: float) -> None:
        if self._healthy:
            self._distances.append(abs(loss - self._expected()))
        self._healthy.append(loss)
        self._highest = max(self._highest, loss)

    def _rise(self) -> None:
        worst = max(loss for _, loss in self._beyond)
        if self._open is None and len(self._beyond) >= IN_A_ROW:
            self._open = self._finding(SeriesName.SPIKE, self._beyond[0][0], self._expected(), worst)
        elif self._open is not None:
            lasting = len(self._beyond) > LASTING and self._open.name is SeriesName.SPIKE
            name = SeriesName.DIVERGED if lasting else self._open.name
            self._open = replace(self._open, name=name, worst=max(worst, self._open.worst))

    def _recover(self, step: int, loss: float) -> None:
        if self._open is not None:
            self._ended.append(replace(self._open, over_step=step))
            self._open = None
        for _, beyond in self._beyond:  # single outliers belong to the noise of the run
            self._distances.append(abs(beyond - self._expected()))
        self._beyond.clear()
        self._keep(loss)

    def _has_collapsed(self) -> bool:
        if len(self._newest) < EQUAL or self._first is None:
            return False
        shown = {f"{loss:.{_DIGITS}g}" for _, loss in self._newest}
        value = self._newest[-1][1]
        smallest = max(SHARE * self._lowest, SHARE_OF_HIGHEST * max(self._first, self._highest))
        is_high = 0 < self._lowest < math.inf and value > self._lowest + smallest
        return len(shown) == 1 and is_high and f"{self._first:.{_DIGITS}g}" not in shown

    def _collapse(self) -> None:
        if self._open is not None and self._open.name is SeriesName.COLLAPSED:
            return
        onset, worst = self._newest[0]
        expected = self._lowest
        if self._open is not None:
            onset, expected, worst = self._open.onset_step, self._open.expected, max(self._open.worst, worst)
        self._open = self._finding(SeriesName.COLLAPSED, onset, expected, worst)

    def _finding(self, name: SeriesName, onset_step: int, expected: float, worst: float) -> SeriesFinding:
        return SeriesFinding(
            name=name,
            is_numbered=self.is_numbered,
            onset_step=onset_step,
            found_step=self._newest[-1][0],
            expected=expected,
            worst=worst,
        )
