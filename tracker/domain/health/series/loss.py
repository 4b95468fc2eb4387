"""Whether the loss of a training leaves its own past: a spike, a divergence, a collapse. Pure.

    series = LossSeries()
    for step, loss in points:
        series.take(step, loss)
    series.findings

A point is compared with the median of the newest healthy ones, and its distance with those that healthy points had
from theirs (median absolute deviation): both ignore single outliers. Values that are no number are left out.
"""

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tracker.domain.health.series.robust import MAD_TO_SD, RollingMedian

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
_MOST_ENDED = 100


class SeriesName(StrEnum):
    """Classes of findings, of the loss and of other numbers."""

    SPIKE = "spike"
    """The loss rose, and came back or may still do so."""
    DIVERGED = "diverged"
    """The loss rose and did not come back."""
    COLLAPSED = "collapsed"
    """It rose and stands still: the model says the same whatever it is asked."""
    FLAT = "flat"
    """The loss has not fallen for long."""
    NAN = "nan"
    """Another number than the loss is NaN or infinite."""
    GRADIENT = "gradient"
    """The gradient norm is far above its past."""
    LR = "lr"
    """The learning rate jumped."""
    THROUGHPUT = "throughput"
    """The training is far slower than it was."""
    MEMORY = "memory"
    """The memory in use grows all the time."""
    BEHIND = "behind"
    """The numbers of one rank leave those of the others."""


@dataclass(frozen=True, kw_only=True)
class SeriesFinding:
    """One stretch of a series that is not healthy."""

    name: str
    """A `SeriesName`, or the name of a condition."""
    key: str
    """Printed name of the number."""
    is_alert: bool
    """Whether it is worth an alert; else it is only shown."""
    rank: int | None = None
    """Rank that left the others; None: the finding is of no single rank."""
    is_numbered: bool = True
    """Whether the log names steps; else they are the numbers of its losses, from 1."""
    onset_step: int
    """First step beyond the limit."""
    found_step: int
    """Step at which the finding became certain."""
    expected: float | None
    """Value before it, or the threshold of a condition; None: there is no such number."""
    worst: float | None
    """Value that is furthest from it; None: it is no number."""
    over_step: int | None = None
    """First step that was back; None: it lasts."""


@dataclass(kw_only=True)
class LossSeries:
    """Follows the training loss in the order of its steps."""

    is_numbered: bool = True
    """As in `SeriesFinding`."""
    key: str = "loss"
    """Printed name of the loss."""
    last_step: int | None = None
    """Step of the newest point."""
    _healthy: RollingMedian = field(default_factory=lambda: RollingMedian(size=HISTORY))
    _distances: RollingMedian = field(default_factory=lambda: RollingMedian(size=DISTANCES))
    _beyond: list[tuple[int, float]] = field(default_factory=list)
    """The newest of them, as many as `_distances` can take."""
    _newest: list[tuple[int, float]] = field(default_factory=list)
    _first: float | None = None
    _lowest: float | None = None
    _highest: float = 0.0
    """Of healthy points."""
    _ended: list[SeriesFinding] = field(default_factory=list)
    _open: SeriesFinding | None = None

    @property
    def findings(self) -> tuple[SeriesFinding, ...]:
        """The findings so far, in the order of their steps."""
        if self._open is None:
            return tuple(self._ended)
        return (*self._ended, self._open)

    @property
    def lasting(self) -> SeriesFinding | None:
        """The finding that is not over."""
        return self._open

    def taken(self) -> tuple[SeriesFinding, ...]:
        """Return the findings that are over, and forget them."""
        ended, self._ended = tuple(self._ended), []
        return ended

    def take(self, step: int, loss: float) -> None:
        """Read one point."""
        self.last_step = step
        if not math.isfinite(loss):
            return
        if self._first is None:
            self._first = loss
        self._newest.append((step, loss))
        del self._newest[:-EQUAL]
        if self._has_collapsed():
            self._collapse()
        elif len(self._healthy.newest) < HISTORY:
            self._keep(loss)
        elif loss > self._limit():
            self._beyond = [*self._beyond[1 - DISTANCES :], (step, loss)]
            self._rise()
        else:
            self._recover(step, loss)
        if self._lowest is None or loss < self._lowest:
            self._lowest = loss

    def _limit(self) -> float:
        noise = MAD_TO_SD * self._distances.middle
        expected = self._healthy.middle
        smallest = max(SHARE * abs(expected), SHARE_OF_HIGHEST * self._highest)
        return expected + max(DEVIATIONS * noise, smallest)

    def _keep(self, loss: float) -> None:
        if self._healthy.newest:
            self._distances.add(abs(loss - self._healthy.middle))
        self._healthy.add(loss)
        self._highest = max(self._highest, loss)

    def _rise(self) -> None:
        worst = max(loss for _, loss in self._beyond)
        if self._open is None and len(self._beyond) >= IN_A_ROW:
            self._open = self._finding(SeriesName.SPIKE, self._beyond[0][0], self._healthy.middle, worst)
        elif self._open is not None:
            lasting = len(self._beyond) > LASTING and self._open.name == SeriesName.SPIKE
            name = SeriesName.DIVERGED if lasting else self._open.name
            self._open = replace(self._open, name=name, worst=self._worst(worst))

    def _recover(self, step: int, loss: float) -> None:
        if self._open is not None:
            self._ended = [*self._ended, replace(self._open, over_step=step)][:_MOST_ENDED]
            self._open = None
        for _, beyond in self._beyond:  # single outliers belong to the noise of the run
            self._distances.add(abs(beyond - self._healthy.middle))
        self._beyond.clear()
        self._keep(loss)

    def _has_collapsed(self) -> bool:
        if len(self._newest) < EQUAL or self._first is None or self._lowest is None or self._lowest <= 0:
            return False
        rise = self._newest[-1][1] - self._lowest
        if rise <= max(SHARE * self._lowest, SHARE_OF_HIGHEST * max(self._first, self._highest)):
            return False
        shown = {f"{loss:.{_DIGITS}g}" for _, loss in self._newest}
        return len(shown) == 1 and f"{self._first:.{_DIGITS}g}" not in shown

    def _collapse(self) -> None:
        if self._open is not None and self._open.name == SeriesName.COLLAPSED:
            return
        onset, worst = self._newest[0]
        expected = self._lowest
        if self._open is not None:
            onset, expected, worst = self._open.onset_step, self._open.expected, self._worst(worst)
        self._open = self._finding(SeriesName.COLLAPSED, onset, expected, worst)

    def _worst(self, worst: float) -> float:
        if self._open is None or self._open.worst is None:
            return worst
        return max(worst, self._open.worst)

    def _finding(self, name: SeriesName, onset_step: int, expected: float | None, worst: float) -> SeriesFinding:
        return SeriesFinding(
            name=name,
            key=self.key,
            is_alert=True,
            is_numbered=self.is_numbered,
            onset_step=onset_step,
            found_step=self._newest[-1][0],
            expected=expected,
            worst=worst,
        )
