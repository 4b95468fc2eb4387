"""Everything that the logs of one run say, read line by line in the order in which the lines arrive. Pure.

    log = RunLog(rules=rules, state=RunState(run_id="run"))
    log.take(RawLine(number=1, text="step 10 | loss: 2.5"), Stream(name="train.log"), StreamState())
    log.incidents(), log.state.steps, log.points

A line is parsed, then classified; what shows trouble becomes an incident, and its numbers go to the series. The state
survives a restart as JSON: no line is read twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice

from tracker.domain.health.branches import goes_back, is_after_incident, remember
from tracker.domain.health.logs.masking import without_keys
from tracker.domain.health.logs.parsed import ParsedLine
from tracker.domain.health.logs.progress_bars import MARK
from tracker.domain.health.logs.step_lines import StepRow
from tracker.domain.health.logs.streams import NEVER, Stream
from tracker.domain.health.logs.text import RawLine
from tracker.domain.health.processes.pace import JobPhase, phase_of_line
from tracker.domain.health.rules.classifier import Classifier
from tracker.domain.health.rules.code import CodeRules
from tracker.domain.health.rules.lines import NAN, Fits, LineRule, plain_line, rule_fits
from tracker.domain.health.run_state import RunState, StepsRead, StreamState, certain_bar
from tracker.domain.health.series.conditions import MetricCondition
from tracker.domain.health.series.kinds import loss_in
from tracker.domain.health.series_findings import (
    forget_taken_findings,
    incidents_of_findings,
    keep_recent_findings,
)
from tracker.domain.health.trouble_log import TroubleLog
from tracker.domain.records.training import TrainingIncident
from tracker.domain.records.types import CurvePoint

MAX_SUMMARY = 20


@dataclass(kw_only=True)
class RunLog:
    """Reads lines; `points` and the incidents that ended are new since the last `forget_taken`."""

    rules: Sequence[LineRule]
    state: RunState
    conditions: tuple[MetricCondition, ...] = ()
    """Conditions of users on the numbers."""
    fits: Fits = rule_fits
    """How a rule is tested on a line."""
    mask: Callable[[str], str] = without_keys
    """Returns a text without secrets."""
    code: CodeRules | None = None
    """Rules of other packages."""
    host: str = ""
    """Machine of the logs; empty: that of the watcher."""
    points: list[CurvePoint] = field(default_factory=list)
    """To keep, in the order in which they were logged."""

    def __post_init__(self) -> None:
        """Have the numbers follow the conditions of now, not those of an earlier process."""
        for series in (self.state.series, self.state.unnumbered):
            series.conditions, series.ignores_late = self.conditions, series.is_numbered
        self.trouble = TroubleLog(state=self.state, mask=self.mask, host=self.host)
        self._classifier = Classifier(rules=self.rules, fits=self.fits, code=self.code)
        self._said = {one.name: (one.title, one.hint) for one in self.conditions}
        self._phase: JobPhase | None = None

    def take(self, raw: RawLine, stream: Stream, state: StreamState) -> None:
        """Read one line of a log."""
        line = ParsedLine(number=raw.number, row=state.rows.read(raw.text), plain=plain_line(raw.text))
        if MARK in raw.text:
            self._draw(stream, state)
        if not line.plain:
            return
        state.take_line(line.plain, line.number)
        self.trouble.note_log(stream, state)
        hit = self._classifier.of_line(line, state.recent, stream.rank)
        if hit is not None and not raw.is_known:
            self.trouble.take_hit(hit, raw, stream, state)
        self._count_line(line, (stream, state), is_progress=hit is None or hit.trouble.name != NAN)

    def take_row(self, row: StepRow, stream: Stream, state: StreamState) -> None:
        """Read one row of a log whose lines are not text."""
        hit = self._classifier.of_row(row, stream.rank)
        if row.step is None:
            return
        if hit is not None:
            self.trouble.take_hit(hit, RawLine(number=0, text=hit.line), stream, state)
        self._count(row, (stream, state), rank=stream.rank, is_progress=hit is None)

    def take_rest(self, text: str, number: int, stream: Stream, state: StreamState) -> bool:
        """Read the last line of a log, which has no end: it may be cut, so its numbers do not count.

        Return whether it shows trouble.
        """
        hit = self._classifier.of_rest(text)
        if hit is None:
            return False
        self.trouble.take_hit(hit, RawLine(number=number, text=text), stream, state)
        return True

    def end_piece(self, stream: Stream, state: StreamState) -> None:
        """Note that a piece of a log was read, of whatever kind: try what needs more than a line on it."""
        for hit, line in self._classifier.by_code():
            self.trouble.take_hit(hit, line, stream, state)
        if not stream.is_history and stream.read_at != NEVER:
            self.state.pace.take_line(stream.read_at.timestamp(), self._phase)
        self._phase = None

    def incidents(self) -> tuple[TrainingIncident, ...]:
        """Return the incidents that ended since the last `forget_taken`, or last, without those of numbers."""
        return self.trouble.incidents()

    def series_incidents(self, stream: Stream) -> tuple[TrainingIncident, ...]:
        """Return what the numbers show, as incidents; `stream`: the log that was read last."""
        return incidents_of_findings(self.state, stream, self._said)

    def end_history(self, recent: Collection[str]) -> None:
        """Note that all that was written before the run was followed is read.

        What lasts at the end of logs that were written recently is no history: it is worth an alert. `recent`: the
        names of these logs.
        """
        self.trouble.end_history(recent)
        keep_recent_findings(self.state, recent)

    def forget_taken(self) -> None:
        """Forget the points and incidents that were stored."""
        self.points.clear()
        self.trouble.ended.clear()
        forget_taken_findings(self.state)

    @property
    def steps(self) -> StepsRead:
        """What the lines of steps said."""
        return self.state.steps

    def _count_line(self, line: ParsedLine, where: tuple[Stream, StreamState], *, is_progress: bool) -> None:
        row, run = line.row, self.state
        if row is None:
            self._phase = phase_of_line(line.plain) or self._phase
        elif row.is_summary:
            run.steps.summary = dict(islice(row.values.items(), MAX_SUMMARY))
        elif row.step is not None:
            self._count(row, where, rank=line.rank(where[0].rank), is_progress=is_progress)
        elif (loss := loss_in(row.values)) is not None:
            run.unnumbered.take(run.steps.count_unnumbered(loss), row.values)

    def _count(self, row: StepRow, where: tuple[Stream, StreamState], *, rank: int | None, is_progress: bool) -> None:
        step, run, (stream, state) = row.step or 0, self.state, where
        printer = "" if rank is None else str(rank)
        if not state.places and is_after_incident(run, stream, state):
            self.trouble.end_stop()
        if goes_back(run, step, stream, state, printer):
            self._begin_branch(step)
        remember(run, step, stream, state, printer)
        at_s = self._live_time_s(stream)
        self.points += run.thinner.take(step, row.values)
        run.series.take(step, row.values, at_s=at_s, rank=rank)
        run.steps.count(row, step)
        if is_progress:
            self.trouble.take_step(step, stream)

    def _live_time_s(self, stream: Stream) -> float | None:
        """Count the time of a step, and return it in Unix seconds; None: it was not read when it was logged."""
        if stream.is_history or stream.read_at == NEVER:
            return None
        self.state.tempo.take(stream.read_at, self.state.pace.usual_s)
        self.state.pace.take_step(stream.read_at.timestamp())
        self._phase = None
        return stream.read_at.timestamp()

    def _begin_branch(self, step: int) -> None:
        run = self.state
        run.starts.branch, run.starts.after = run.starts.branch + 1, run.episodes
        run.thinner.go_back(step)
        run.series.begin_branch(step)
        run.steps.last = step
        self.trouble.begin_branch(step)

    def _draw(self, stream: Stream, state: StreamState) -> None:
        """Take the step of a progress bar: until a line names steps, it is the only sign of them."""
        steps, bar = self.state.steps, certain_bar(self.state.steps, state.rows)
        if bar is None or not steps.draw(bar.step) or steps.lines:
            return
        self._live_time_s(stream)
        if not steps.bars_repeat:
            self.trouble.take_step(bar.step, stream)
