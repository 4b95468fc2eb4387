"""Points beyond a limit become findings, and end. Pure, in bounded memory."""

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tracker.domain.health.series.loss import SeriesFinding, SeriesName

MOST_ENDED = 100
MOST_STREAKS = 100


@dataclass(frozen=True, kw_only=True)
class SeriesRule:
    """When points beyond a limit are a finding."""

    name: str
    is_alert: bool = False
    points: int = 1
    """In a row."""
    seconds: float = 0.0
    """From the first of them on."""
    healthy: int = 1
    """Points in a row that end the finding."""


NAN = SeriesRule(name=SeriesName.NAN, points=2, is_alert=True)
FLAT = SeriesRule(name=SeriesName.FLAT)
GRADIENT = SeriesRule(name=SeriesName.GRADIENT, points=2)
LR = SeriesRule(name=SeriesName.LR)
THROUGHPUT = SeriesRule(name=SeriesName.THROUGHPUT, points=3, seconds=300, is_alert=True)
MEMORY = SeriesRule(name=SeriesName.MEMORY)
BEHIND = SeriesRule(name=SeriesName.BEHIND, points=3)


class SeriesPoint(NamedTuple):
    """One number of a row."""

    step: int
    key: str
    value: float
    at_s: float | None = None
    """Unix seconds when it was read; None: unknown."""
    rank: int | None = None


@dataclass(kw_only=True)
class Streak:
    """Points beyond one limit in a row, and the finding that they are or may become."""

    finding: SeriesFinding
    since_s: float | None
    newest_step: int | None = None
    points: int = 0
    is_found: bool = False
    healthy_from: int | None = None
    """First step of the newest healthy points."""
    healthy: int = 0

    def count(self, rule: SeriesRule, point: SeriesPoint) -> None:
        """Take a point, one of each step: several ranks may print the same."""
        if point.step == self.newest_step:
            return
        self.newest_step = point.step
        self.points += 1
        self.healthy = 0
        expected, worst = self.finding.expected, self.finding.worst
        if expected is not None and worst is not None and math.isfinite(point.value):
            worst = max(worst, point.value, key=lambda value: abs(value - expected))
            self.finding = replace(self.finding, worst=worst)
        if not self.is_found and self.points >= rule.points and self._seconds(point) >= rule.seconds:
            self.is_found, self.finding = True, replace(self.finding, found_step=point.step)

    def recovers(self, rule: SeriesRule, point: SeriesPoint) -> bool:
        """Take a point that is not beyond the limit; return whether it ends what had begun."""
        if point.step != self.newest_step:
            self.newest_step = point.step
            self.healthy_from = point.step if not self.healthy else self.healthy_from
            self.healthy += 1
        return not self.is_found or self.healthy >= rule.healthy

    def _seconds(self, point: SeriesPoint) -> float:
        if self.since_s is None or point.at_s is None:
            return 0.0
        return point.at_s - self.since_s


@dataclass(kw_only=True)
class FoundSeries:
    """The findings of a run."""

    is_numbered: bool = True
    ended: list[SeriesFinding] = field(default_factory=list)
    """The first ones since they were taken: one that is stored as lasting is among them."""
    _streaks: dict[str, Streak] = field(default_factory=dict)

    @property
    def lasting(self) -> list[SeriesFinding]:
        """Return those that are not over."""
        return [streak.finding for streak in self._streaks.values() if streak.is_found]

    def close(self, step: int, *others: SeriesFinding) -> None:
        """End what lasts, and findings of others: training goes back to `step`, and another series begins."""
        for finding in (*others, *self.lasting):
            self._end(finding if finding.over_step is not None else replace(finding, over_step=step))
        self._streaks.clear()

    def judge(self, rule: SeriesRule, point: SeriesPoint, expected: float | None, *, is_beyond: bool) -> None:
        """Count a point beyond the limit of a rule, or end what had begun."""
        if not is_beyond and not self._streaks:
            return
        named = f"{rule.name} {point.key} {point.rank}"
        if not is_beyond:
            self._recover(named, rule, point)
            return
        if named not in self._streaks and len(self._streaks) < MOST_STREAKS:
            self._streaks[named] = Streak(finding=self._finding(rule, point, expected), since_s=point.at_s)
        if named in self._streaks:
            self._streaks[named].count(rule, point)

    def _recover(self, named: str, rule: SeriesRule, point: SeriesPoint) -> None:
        streak = self._streaks.get(named)
        if streak is None or not streak.recovers(rule, point):
            return
        del self._streaks[named]
        if streak.is_found:
            self._end(replace(streak.finding, over_step=streak.healthy_from))

    def raise_gradients(self) -> None:
        """Make gradients worth an alert: the loss has a finding at the same time."""
        for streak in self._streaks.values():
            if streak.finding.name == SeriesName.GRADIENT:
                streak.finding = replace(streak.finding, is_alert=True)

    def _end(self, finding: SeriesFinding) -> None:
        self.ended = [*self.ended, finding][:MOST_ENDED]

    def _finding(self, rule: SeriesRule, point: SeriesPoint, expected: float | None) -> SeriesFinding:
        return SeriesFinding(
            name=str(rule.name),
            key=point.key,
            is_alert=rule.is_alert,
            rank=point.rank,
            is_numbered=self.is_numbered,
            onset_step=point.step,
            found_step=point.step,
            expected=expected,
            worst=point.value if math.isfinite(point.value) else None,
        )
