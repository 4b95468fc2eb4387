"""What belongs together in a log: one cause is one incident, whatever follows from it on all ranks. Pure.

    log = LogReader(rules)
    for number, line in enumerate(lines, start=1):
        log.take(number, line)
    log.incidents, log.findings, log.steps

An incident is over when the training makes progress again: `STEPS_AFTER` lines of steps beyond the last one before it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tracker.domain.health.line_rules import NAN, LineHit, LineRule, Severity, hit_of, plain_line
from tracker.domain.health.loss_series import LossSeries, SeriesFinding
from tracker.domain.health.step_lines import StepRow, is_loss, step_row

STEPS_AFTER = 3
EVIDENCE = 5
"""Lines that an incident keeps."""

_SUMMARY = "train_runtime"
"""On the last line of a training, whose loss is the mean of all."""
_NOT_TRAINING = re.compile(r"\b(?:val|eval|valid|validation|test)")


@dataclass(frozen=True, kw_only=True)
class PlacedHit:
    """A hit, and where it was."""

    number: int
    """Of the line, from 1."""
    step: int | None
    """Last step before it; None: none yet."""
    hit: LineHit


@dataclass(frozen=True, kw_only=True)
class LogIncident:
    """Lines with one cause."""

    hits: tuple[PlacedHit, ...]
    """In the order of the log; the cause is one of them."""
    is_over: bool
    """Whether the training made progress afterwards."""

    @property
    def cause(self) -> PlacedHit:
        """The first line of the class that explains the others: consequences explain nothing."""
        return min(self.hits, key=lambda placed: (placed.hit.rule.is_consequence, placed.hit.rule.order, placed.number))

    @property
    def rule(self) -> LineRule:
        """Rule of the cause."""
        return self.cause.hit.rule

    @property
    def is_alert(self) -> bool:
        """Whether it is worth an alert."""
        return self.rule.severity is Severity.ALERT

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that printed its lines, ascending."""
        return tuple(sorted({placed.hit.rank for placed in self.hits if placed.hit.rank is not None}))

    @property
    def evidence(self) -> tuple[PlacedHit, ...]:
        """The cause, then the first line of each other class."""
        by_rule = {self.rule.name: self.cause}
        for placed in self.hits:
            by_rule.setdefault(placed.hit.rule.name, placed)
        return tuple(by_rule.values())[:EVIDENCE]


@dataclass(frozen=True, kw_only=True)
class StepsRead:
    """What the lines of steps said."""

    lines: int = 0
    first: int | None = None
    last: int | None = None
    first_loss: float | None = None
    """Of training, where the line names one."""
    last_loss: float | None = None
    unnumbered: int = 0
    """Losses of training on lines that name no step, as Hugging Face prints them."""


@dataclass(kw_only=True)
class LogReader:
    """Reads the lines of one log in their order."""

    rules: Sequence[LineRule]
    lines: int = 0
    steps: StepsRead = field(default_factory=StepsRead)
    _open: list[PlacedHit] = field(default_factory=list)
    _ended: list[LogIncident] = field(default_factory=list)
    _ahead: int = 0
    """Lines of later steps since the last hit."""
    _branches: list[LossSeries] = field(default_factory=lambda: [LossSeries()])
    """The training loss; another one whenever the steps go back, as after a restart."""
    _losses: LossSeries = field(default_factory=lambda: LossSeries(is_numbered=False))
    """The training loss of lines without a step."""

    def take(self, number: int, raw: str) -> PlacedHit | None:
        """Read one line; return its hit."""
        self.lines += 1
        hit = hit_of(raw, self.rules)
        row = step_row(plain_line(raw))
        is_nan = hit is not None and hit.rule.name == NAN
        placed = None
        if hit is not None:
            placed = PlacedHit(number=number, step=self.steps.last, hit=hit)
            if is_nan and row is not None and row.step is not None:
                placed = PlacedHit(number=number, step=row.step, hit=hit)
            self._open.append(placed)
            self._ahead = 0
        if row is not None and row.step is not None:
            self._count(row, is_progress=not is_nan)
        elif row is not None:
            self._count_unnumbered(row)
        return placed

    @property
    def incidents(self) -> tuple[LogIncident, ...]:
        """All incidents so far, in the order of the log."""
        if not self._open:
            return tuple(self._ended)
        return (*self._ended, LogIncident(hits=tuple(self._open), is_over=False))

    @property
    def findings(self) -> tuple[SeriesFinding, ...]:
        """What the training loss shows, in the order of the log."""
        return tuple(finding for series in (*self._branches, self._losses) for finding in series.findings)

    def _count(self, row: StepRow, *, is_progress: bool) -> None:
        step = row.step or 0
        is_later = self.steps.last is None or step > self.steps.last
        loss = _training_loss(row.values)
        if loss is not None:
            self._follow(step, loss)
        first = self.steps.first if self.steps.first is not None else row.step
        first_loss = self.steps.first_loss if self.steps.first_loss is not None else loss
        self.steps = replace(
            self.steps,
            lines=self.steps.lines + 1,
            first=first,
            last=row.step,
            first_loss=first_loss,
            last_loss=self.steps.last_loss if loss is None else loss,
        )
        if self._open and is_progress and is_later:
            self._ahead += 1
            if self._ahead >= STEPS_AFTER:
                self._ended.append(LogIncident(hits=tuple(self._open), is_over=True))
                self._open, self._ahead = [], 0

    def _count_unnumbered(self, row: StepRow) -> None:
        loss = _training_loss(row.values)
        if loss is None:
            return
        first = loss if self.steps.first_loss is None else self.steps.first_loss
        self.steps = replace(self.steps, unnumbered=self.steps.unnumbered + 1, first_loss=first, last_loss=loss)
        self._losses.take(self.steps.unnumbered, loss)

    def _follow(self, step: int, loss: float) -> None:
        newest = self._branches[-1].last_step
        if newest is not None and step < newest:
            self._branches.append(LossSeries())
        if newest is None or step != newest:  # several ranks may print the same step
            self._branches[-1].take(step, loss)


def read_log(lines: Iterable[str], rules: Sequence[LineRule]) -> LogReader:
    """Return what all lines of a log say."""
    reader = LogReader(rules=rules)
    for number, line in enumerate(lines, start=1):
        reader.take(number, line)
    return reader


def _training_loss(values: Mapping[str, float]) -> float | None:
    if _SUMMARY in values:
        return None
    for name, value in values.items():
        if is_loss(name) and not _NOT_TRAINING.search(name):
            return value
    return None
