"""Whether the numbers of a training leave their own past: one finding for each stretch that is not healthy. Pure.

    series = RunSeries()
    series.take(100, {"loss": 2.5, "grad_norm": 0.5, "lr": 1e-4, "tok/s": 12_000.0}, at_s=1_767_000_000.0)
    series.findings

The whole state is bounded, and can be stored as JSON between two rows.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tracker.domain.health.series.conditions import MetricCondition
from tracker.domain.health.series.findings import BEHIND, FLAT, NAN, FoundSeries, SeriesPoint, SeriesRule
from tracker.domain.health.series.kinds import NumberKind, number_kind, training_numbers
from tracker.domain.health.series.loss import LossSeries, SeriesFinding
from tracker.domain.health.series.numbers import JUDGES, FlatSeries, NumberSeries
from tracker.domain.health.series.ranks import RankSeries
from tracker.domain.records.training import Severity

MOST_NUMBERS = 50
"""Maximum number of numbers that are followed in a run: the first ones."""
CONDITION_HEALTHY = 3
"""Points in a row that end what a user's condition found: a number near a threshold crosses it again and again."""
SILENT_STEPS = 20
"""Steps that others print, and the followed rank does not, before another one is followed."""
HIGHEST = 1e100
"""Larger numbers count as infinite."""
_SPEEDS = (NumberKind.RATE, NumberKind.STEP_TIME)
_COMPARED = (NumberKind.LOSS, *_SPEEDS)
_STEADY = (NumberKind.GRADIENT, NumberKind.LEARNING_RATE, NumberKind.OTHER)
"""Kinds that must be numbers. Lines with a loss that is none are found by a rule for lines."""


@dataclass(kw_only=True)
class RunSeries:
    """Follows the numbers of one training in the order of its steps."""

    is_numbered: bool = True
    """As in `SeriesFinding`."""
    conditions: tuple[MetricCondition, ...] = ()
    ignores_late: bool = False
    """Whether rows of earlier steps come from slow logs; then only `begin_branch` marks a restart."""
    _newest: int | None = None
    """Highest step."""
    _rank: int | None = None
    """The first that printed: all rules but `behind` follow it and rows without a rank, until it is silent."""
    _ahead: int = 0
    """Number of steps beyond its last row that other ranks have printed."""
    _ahead_step: int = 0
    """The highest of them."""
    _loss: LossSeries = field(default_factory=LossSeries)
    _flat: FlatSeries = field(default_factory=FlatSeries)
    _numbers: dict[str, NumberSeries] = field(default_factory=dict)
    _ranks: dict[str, RankSeries] = field(default_factory=dict)
    _found: FoundSeries = field(default_factory=FoundSeries)

    def __post_init__(self) -> None:
        """Have the parts name steps as the whole does."""
        self._loss.is_numbered = self._found.is_numbered = self.is_numbered

    @property
    def kinds(self) -> frozenset[NumberKind]:
        """Kinds of the numbers that are followed, besides the loss."""
        return frozenset(map(number_kind, self._numbers))

    @property
    def findings(self) -> tuple[SeriesFinding, ...]:
        """The findings, in the order of the steps at which they were found."""
        findings = (*self._found.ended, *self._loss.findings, *self._found.lasting)
        return tuple(sorted(findings, key=lambda finding: finding.found_step))

    def taken(self) -> tuple[SeriesFinding, ...]:
        """Return the findings that are over or of a series before a restart, and forget them."""
        ended = (*self._found.ended, *self._loss.taken())
        self._found.ended = []
        return tuple(sorted(ended, key=lambda finding: finding.found_step))

    def take(
        self, step: int, values: Mapping[str, float], *, at_s: float | None = None, rank: int | None = None
    ) -> None:
        """Read one row.

        Args:
            step: of the training.
            values: by their printed names, in lower case.
            at_s: unix seconds when it was read; None: unknown, as for a log of the past.
            rank: process that printed it; None: unknown.
        """
        self._rank = rank if self._rank is None else self._rank
        numbers = training_numbers(tuple(values))
        if rank is not None:
            self._compare(rank, [SeriesPoint(step, key, values[key]) for key, kind in numbers if kind in _COMPARED])
        if not self._is_followed(step, rank):
            return
        self._newest = step
        if self.conditions:
            self._hold(step, values)
        for key, kind in numbers:
            self._follow(kind, SeriesPoint(step, key, values[key], at_s))
        if self._loss.lasting is not None:
            self._found.raise_gradients()

    def _is_followed(self, step: int, rank: int | None) -> bool:
        """Return whether a row is of the rank that is followed, and not of a slow log."""
        if rank is not None and rank != self._rank and not self._takes_over(step, rank):
            return False
        self._ahead = 0
        return not self.ignores_late or self._newest is None or step >= self._newest

    def _takes_over(self, step: int, rank: int) -> bool:
        """Return whether a rank is followed from now on: after a restart with fewer, the one before is silent."""
        beyond = self._ahead_step if self._ahead else self._newest
        if beyond is None or step <= beyond:
            return False
        self._ahead, self._ahead_step = self._ahead + 1, step
        if self._ahead < SILENT_STEPS:
            return False
        self._rank = rank
        return True

    def begin_branch(self, step: int) -> None:
        """Begin again: training goes back to an earlier step."""
        self._newest = self._rank = None
        self._begin_again(step)

    def _compare(self, rank: int, points: Sequence[SeriesPoint]) -> None:
        for point in points:
            is_followed = point.key in self._ranks or len(self._ranks) < MOST_NUMBERS
            if is_followed and -HIGHEST < point.value < HIGHEST:
                series = self._ranks.setdefault(point.key, RankSeries())
                for judged, middle, is_beyond in series.take(point, rank):
                    self._found.judge(BEHIND, judged, middle, is_beyond=is_beyond)

    def _hold(self, step: int, values: Mapping[str, float]) -> None:
        for one in self.conditions:
            if one.key in values:
                point, is_beyond = SeriesPoint(step, one.key, values[one.key]), one.holds(values[one.key])
                is_alert = one.severity is Severity.ALERT
                rule = SeriesRule(name=one.name, is_alert=is_alert, points=one.points, healthy=CONDITION_HEALTHY)
                self._found.judge(rule, point, one.threshold, is_beyond=is_beyond)

    def _follow(self, kind: NumberKind, point: SeriesPoint) -> None:
        is_number = -HIGHEST < point.value < HIGHEST
        if kind is NumberKind.LOSS:
            self._follow_loss(point)
            return
        if is_number and kind in JUDGES:
            self._judge(kind, point)
        if kind in _STEADY:
            self._found.judge(NAN, point, None, is_beyond=not is_number)

    def _judge(self, kind: NumberKind, point: SeriesPoint) -> None:
        series = self._numbers.get(point.key)
        if series is None:
            if len(self._numbers) >= MOST_NUMBERS:
                return
            series = self._numbers[point.key] = NumberSeries()
        rule, judge = JUDGES[kind]
        expected = judge(series, point.value)
        self._found.judge(rule, point, expected, is_beyond=expected is not None)

    def _follow_loss(self, point: SeriesPoint) -> None:
        newest = self._loss.last_step
        if newest is not None and point.step < newest:
            self._begin_again(point.step)
        elif point.step == newest:  # several ranks may print the same step
            return
        elif newest is None:
            self._loss.key = point.key
        if math.isnan(point.value):
            return
        loss = max(-HIGHEST, min(HIGHEST, point.value))
        self._loss.take(point.step, loss)
        flat = self._flat.take(loss)
        self._found.judge(FLAT, point, flat, is_beyond=flat is not None)

    def _begin_again(self, step: int) -> None:
        """After a restart, only the speed is compared with what was before."""
        self._found.close(step, *self._loss.findings)
        self._loss = LossSeries(is_numbered=self.is_numbered, key=self._loss.key)
        self._flat, self._ranks = FlatSeries(), {}
        self._numbers = {key: series for key, series in self._numbers.items() if number_kind(key) in _SPEEDS}
