"""Where the reading of the logs of one run stands; it is stored as JSON between two readings. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from tracker.domain.health.episodes import MAX_RANKS, Episode
from tracker.domain.health.logs.batch_sizes import has_sizes
from tracker.domain.health.logs.progress_bars import Bar
from tracker.domain.health.logs.row_reader import RowReader
from tracker.domain.health.logs.step_lines import StepRow
from tracker.domain.health.logs.text import RawLine
from tracker.domain.health.logs.thinning import CurveThinner
from tracker.domain.health.processes.pace import PAUSE, JobPace
from tracker.domain.health.series.kinds import loss_in
from tracker.domain.health.series.loss import SeriesFinding
from tracker.domain.health.series.training import RunSeries
from tracker.domain.health.series_incidents import SeenFinding
from tracker.domain.records.training import CONTEXT_LINES, TrainingIncident

MAX_LAST_LINES = 64
PAUSE_S = 30.0
"""Least time without a step that is a pause, such as a save or a failure."""


@dataclass(kw_only=True)
class Tempo:
    """When a run that is followed live logged its steps; lines that were written before do not count."""

    first_at: datetime | None = None
    last_at: datetime | None = None
    productive_s: float = 0.0
    """Seconds in which steps advanced."""

    def take(self, at: datetime, usual_s: float) -> None:
        """Count a step that was logged at `at`; steps that were read together count as one.

        `usual_s`: time between two logged steps so far; 0: unknown.
        """
        if self.first_at is None or self.last_at is None:
            self.first_at = self.last_at = at
            return
        gap_s = (at - self.last_at).total_seconds()
        if gap_s <= 0:
            return
        self.productive_s += min(gap_s, PAUSE * (usual_s or gap_s))
        self.last_at = at

    def pauses_at(self, at: datetime, usual_s: float) -> bool:
        """Return whether no step was logged for longer than usual before `at`."""
        if self.last_at is None:
            return False
        return (at - self.last_at).total_seconds() > max(PAUSE_S, PAUSE * usual_s)

    def productive_share(self) -> float | None:
        """Return the share of the time since the first step in which steps advanced; None: unknown."""
        if self.first_at is None or self.last_at is None or self.last_at <= self.first_at:
            return None
        return self.productive_s / (self.last_at - self.first_at).total_seconds()


@dataclass(kw_only=True)
class StepsRead:
    """What the lines of steps said."""

    lines: int = 0
    first: int | None = None
    last: int | None = None
    first_loss: float | None = None
    """First training loss that a line names; None: there is none."""
    last_loss: float | None = None
    unnumbered: int = 0
    """Losses of training on lines that name no step, as Hugging Face prints them."""
    total: int | None = None
    """Steps of the whole training, where a line names them."""
    summary: dict[str, float] = field(default_factory=dict)
    """Numbers of the line that ends a training, by name; empty: it was not read after the newest step."""
    bar_step: int | None = None
    """Newest step of a progress bar, since the newest line."""
    bars_repeat: bool = False
    """Whether bars without lines began again, as with each epoch: they name no step of the whole training."""

    @property
    def reached(self) -> int | None:
        """The step that the training has reached, by its lines or its bar; None: none is known."""
        if self.bar_step is None or self.bars_repeat:
            return self.last
        return self.bar_step if self.last is None else max(self.bar_step, self.last)

    def draw(self, step: int) -> bool:
        """Note the step of a bar; return whether it moved."""
        before, self.bar_step = self.bar_step, step
        if not self.lines and before is not None and step < before:
            self.bars_repeat = True
        return before != step

    @property
    def is_complete(self) -> bool | None:
        """Whether the training has done all of its steps; None: unknown."""
        if self.summary:
            return True
        if self.total is None or self.reached is None:
            return None
        return self.reached >= self.total

    def count(self, row: StepRow, step: int) -> None:
        """Count one more line of a step."""
        self.lines += 1
        self.summary, self.bar_step, self.bars_repeat = {}, None, False
        if self.first is None:
            self.first = step
        self.last = step if self.last is None else max(self.last, step)
        self.total = row.total or self.total
        loss = loss_in(row.values)
        if loss is not None:
            self._take_loss(loss)

    def count_unnumbered(self, loss: float) -> int:
        """Count the loss of a line that names no step, and return its number."""
        self.unnumbered += 1
        self._take_loss(loss)
        return self.unnumbered

    def _take_loss(self, loss: float) -> None:
        self.first_loss = loss if self.first_loss is None else self.first_loss
        self.last_loss = loss


def certain_bar(steps: StepsRead, rows: RowReader) -> Bar | None:
    """Return the newest bar of a log if it is certain to be that of the training; None: it may be of any loop.

    Rows stood beside it. Or no row of the run has a step, and either a loss was logged elsewhere, or the bar says so.
    """
    bar = rows.bar
    if rows.newest is not None:
        is_certain = not rows.is_late and rows.other is None
    elif bar is not None and not steps.lines:
        is_certain = bar.is_named or bool(steps.unnumbered)
    else:
        is_certain = False
    return bar if is_certain else None


@dataclass(kw_only=True)
class StreamState:
    """Where the reading of one log stands."""

    rows: RowReader = field(default_factory=RowReader)
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Last step and branch of each rank that prints to it, by its number; "" for lines that name none."""
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=CONTEXT_LINES))
    """Newest lines, without colours."""
    sizes: RawLine | None = None
    """Newest line that names sizes of a batch."""
    after: int = 0
    """Incidents of lines in its run that began before it."""

    def __post_init__(self) -> None:
        """Limit the lines again, because JSON does not keep the limit."""
        self.recent = deque(self.recent, maxlen=CONTEXT_LINES)

    def remember(self, printer: str, step: int, branch: int) -> None:
        """Remember where a rank stands."""
        if printer in self.places or len(self.places) < MAX_RANKS:
            self.places[printer] = (step, branch)

    def masked(self, mask: Callable[[str], str]) -> StreamState:
        """Return it with the lines as they may be stored."""
        recent = deque(map(mask, self.recent), maxlen=CONTEXT_LINES)
        sizes = None if self.sizes is None else self.sizes._replace(text=mask(self.sizes.text))
        return replace(self, recent=recent, sizes=sizes)

    def take_line(self, text: str, number: int) -> None:
        """Remember a line, without colours."""
        self.recent.append(text)
        if has_sizes(text):
            self.sizes = RawLine(number=number, text=text)


@dataclass(kw_only=True)
class Starts:
    """How often a training was started."""

    branch: int = 0
    """Times that its steps went back."""
    after: int = 0
    """Incidents of lines before that, the last time."""
    jobs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Numbers of the latest job by which logs are named, by what else their names have."""


@dataclass(kw_only=True)
class RunState:
    """What was read of a run so far."""

    run_id: str = ""
    steps: StepsRead = field(default_factory=StepsRead)
    starts: Starts = field(default_factory=Starts)
    episode: Episode | None = None
    """The open incident."""
    episodes: int = 0
    """Incidents of lines so far."""
    series: RunSeries = field(default_factory=RunSeries)
    unnumbered: RunSeries = field(default_factory=lambda: RunSeries(is_numbered=False))
    """Of rows that name no step."""
    thinner: CurveThinner = field(default_factory=CurveThinner)
    tempo: Tempo = field(default_factory=Tempo)
    pace: JobPace = field(default_factory=JobPace)
    lasting: dict[str, TrainingIncident] = field(default_factory=dict)
    """What was measured of the machine and is still so, by what identifies it."""
    seen: dict[str, SeenFinding] = field(default_factory=dict)
    """When each finding was seen first, by what identifies it."""

    @property
    def findings(self) -> tuple[SeriesFinding, ...]:
        """What the numbers show, in the order of the log."""
        return (*self.series.findings, *self.unnumbered.findings)


def last_lines_text(states: Mapping[int, StreamState], shown: Callable[[str], str]) -> Iterator[str]:
    """Yield one text with the last line of each rank that has a log of its own, if there is any."""
    lines = []
    for rank, state in sorted(states.items())[:MAX_LAST_LINES]:
        if state.recent:
            lines.append(f"rank {rank}: {shown(state.recent[-1])}")
    if lines:
        yield "\n".join(("last lines:", *lines))
