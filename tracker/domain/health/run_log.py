"""Everything that the logs of one run say, read line by line in the order in which the lines arrive. Pure.

    log = RunLog(rules, RunState(run_id="run"))
    log.take(Line(number=1, text="step 10 | loss: 2.5"), Stream(name="train.log"), StreamState())
    log.incidents(), log.state.steps, log.points

An incident is over when the training makes progress again: `STEPS_AFTER` lines of steps beyond the last one before it.
The state survives a restart as JSON: no line is read twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice

from tracker.domain.health.branches import goes_back, is_after_incident, remember
from tracker.domain.health.episodes import Episode, begun
from tracker.domain.health.hints import OOM, incident_in
from tracker.domain.health.logs.masking import without_keys
from tracker.domain.health.logs.progress_bars import MARK
from tracker.domain.health.logs.ranks import printed_rank
from tracker.domain.health.logs.step_lines import StepRow
from tracker.domain.health.logs.streams import NEVER, Stream
from tracker.domain.health.logs.text import RawLine
from tracker.domain.health.processes.pace import JobPhase, phase_of_line
from tracker.domain.health.processes.signs import ProcessSign, incident_of_sign
from tracker.domain.health.rules.code import CodeRules, ReadLine, hit_of_finding, read_line
from tracker.domain.health.rules.lines import (
    NAN,
    Fits,
    LineHit,
    LineRule,
    has_any,
    nan_hit,
    plain_line,
    rule_fits,
    rule_hit,
    traceback_hit,
    triggers_of,
)
from tracker.domain.health.run_state import RunState, StepsRead, StreamState, certain_bar, last_lines_text
from tracker.domain.health.series.conditions import MetricCondition
from tracker.domain.health.series.kinds import loss_in
from tracker.domain.health.series_findings import (
    forget_taken_findings,
    incidents_of_findings,
    keep_recent_findings,
)
from tracker.domain.records.display import one_line, shortened
from tracker.domain.records.training import IncidentEnd, TrainingIncident, TroubleLine, TroubleSource
from tracker.domain.records.types import CurvePoint

STEPS_AFTER = 3
PROCESSES = "processes"
"""Name of the stream for signs that come from no log."""
TEXT_CHARS = 300
MAX_INDENT = 40
MAX_SUMMARY = 20
KEPT_ENDED = 1000
"""Ended incidents that one reading hands out; more in one log are one failure that repeats."""


@dataclass(kw_only=True)
class RunLog:
    """Reads lines; `points` and `ended` are new since the last `forget_taken`."""

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
    hits: list[tuple[str, TroubleLine]] | None = None
    """All lines with trouble, each with the id of its incident; None: they are not kept."""
    points: list[CurvePoint] = field(default_factory=list)
    """To keep, in the order in which they were logged."""
    ended: dict[str, TrainingIncident] = field(default_factory=dict)
    """By id."""

    def __post_init__(self) -> None:
        """Have the numbers follow the conditions of now, not those of an earlier process, and speed up the rules."""
        for series in (self.state.series, self.state.unnumbered):
            series.conditions, series.ignores_late = self.conditions, series.is_numbered
        self._said = {one.name: (one.title, one.hint) for one in self.conditions}
        self._triggers = triggers_of(self.rules)
        self._untried: list[ReadLine] = []
        self._phase: JobPhase | None = None
        self._newest = StreamState()
        self._of_rank: dict[int, StreamState] = {}

    def take(self, line: RawLine, stream: Stream, state: StreamState) -> None:
        """Read one line of a log."""
        row = state.rows.read(line.text)
        self._draw(line.text, stream, state)
        plain = plain_line(line.text)
        if not plain:
            return
        state.take_line(plain, line.number)
        self._newest = state
        if stream.rank is not None:
            self._of_rank[stream.rank] = state
        if self.code is not None:
            self._untried.append(read_line(line.number, plain, row, stream.rank))
        hit = self._trouble(plain, row, state.recent)
        if hit is not None and not line.is_known:
            self._hit(hit, line, (stream, state))
        if row is None:
            self._phase = phase_of_line(plain) or self._phase
        elif row.is_summary:
            self.state.steps.summary = dict(islice(row.values.items(), MAX_SUMMARY))
        elif row.step is None:
            self._count_unnumbered(row)
        else:
            rank = printed_rank(plain)
            is_nan = hit is not None and hit.trouble.name == NAN
            self._count(row, (stream, state), rank=stream.rank if rank is None else rank, is_progress=not is_nan)

    def take_row(self, row: StepRow, stream: Stream, state: StreamState) -> None:
        """Read one row of a log whose lines are not text."""
        if self.code is not None:
            self._untried.append(read_line(0, "", row, stream.rank))
        if row.step is None:
            return
        hit = nan_hit(f"step {row.step}: the loss is no number", row)
        if hit is not None:
            self._hit(hit, RawLine(number=0, text=hit.line), (stream, state))
        self._count(row, (stream, state), rank=stream.rank, is_progress=hit is None)

    def try_code(self, stream: Stream, state: StreamState) -> None:
        """Try the rules of other packages on what was read of a log since the last call."""
        if self.code is None or not self._untried:
            return
        untried, self._untried = self._untried, []
        for name, finding in self.code(untried):
            line = RawLine(number=finding.line.number, text=finding.line.text)
            self._hit(hit_of_finding(name, finding), line, (stream, state))

    def take_rest(self, text: str, number: int, stream: Stream, state: StreamState) -> bool:
        """Read the last line of a log, which has no end: it may be cut, so its numbers do not count.

        Return whether it shows trouble.
        """
        hit = rule_hit(plain_line(text), self.rules, self.fits)
        if hit is None:
            return False
        self._hit(hit, RawLine(number=number, text=text), (stream, state))
        return True

    def take_sign(self, sign: ProcessSign, at: datetime) -> None:
        """Take what the processes of the run show."""
        for rank in sign.ranks or (None,):
            found = TroubleLine(
                trouble=sign.trouble,
                stream=PROCESSES,
                number=0,
                text=self._shown(sign.text),
                step=self.state.steps.reached,
                rank=rank,
                seen_at=at,
                is_proven=sign.is_proven,
            )
            its_log = self._newest if rank is None else self._of_rank.get(rank, self._newest)
            episode = self._join(found, its_log, is_history=False)
            if sign.capture:
                episode.capture = "\n\n".join((sign.capture, *last_lines_text(self._of_rank, self._shown)))

    def end_stop(self) -> None:
        """Note that a training which a user had stopped runs again: what fails now is another incident."""
        episode = self.state.episode
        if episode is not None and episode.cause.trouble.is_stop:
            self._end(episode, IncidentEnd.RESTARTED)

    def end_hang(self) -> None:
        """Note that all processes ended without trouble: what they did before is over."""
        episode = self.state.episode
        if episode is not None and episode.cause.trouble.source is TroubleSource.PROCESS:
            self._end(episode, IncidentEnd.ENDED)

    def begin_condition(self, key: str, sign: ProcessSign, at: datetime) -> None:
        """Take what is measured of the machine, and lasts until `end_condition`."""
        run = self.state
        if key not in run.lasting:
            run.lasting[key] = incident_of_sign(sign, (run.run_id, self.host), run.steps.reached, at)

    def end_condition(self, key: str, at: datetime, ended_by: IncidentEnd = IncidentEnd.RECOVERED) -> None:
        """End a condition."""
        found = self.state.lasting.pop(key, None)
        if found is not None:
            self.ended[found.id] = replace(found, ended_by=ended_by, last_seen_at=at)

    def note_lines(self, stream: Stream) -> None:
        """Note that lines were read of a log, of whatever kind: the training does something."""
        if not stream.is_history and stream.read_at != NEVER:
            self.state.pace.take_line(stream.read_at.timestamp(), self._phase)
        self._phase = None

    def incidents(self) -> tuple[TrainingIncident, ...]:
        """Return the incidents that ended since the last `forget_taken`, or last, without those of numbers."""
        found = (*self.ended.values(), *self.state.lasting.values())
        if self.state.episode is None:
            return found
        return (*found, incident_in(self.state, self.state.episode))

    def series_incidents(self, stream: Stream) -> tuple[TrainingIncident, ...]:
        """Return what the numbers show, as incidents; `stream`: the log that was read last."""
        return incidents_of_findings(self.state, stream, self._said)

    def end_history(self, recent: Collection[str]) -> None:
        """Note that all that was written before the run was followed is read.

        What lasts at the end of logs that were written recently is no history: it is worth an alert. `recent`: the
        names of these logs.
        """
        episode = self.state.episode
        if episode is not None and episode.newest is not None and episode.newest.stream in recent:
            episode.is_history = False
        keep_recent_findings(self.state, recent)

    def forget_taken(self) -> None:
        """Forget the points and incidents that were stored."""
        self.points.clear()
        self.ended.clear()
        forget_taken_findings(self.state)

    @property
    def steps(self) -> StepsRead:
        """What the lines of steps said."""
        return self.state.steps

    def _trouble(self, plain: str, row: StepRow | None, recent: Sequence[str]) -> LineHit | None:
        found = None
        if self._triggers is None or has_any(plain.lower(), self._triggers):
            found = rule_hit(plain, self.rules, self.fits)
        if found is None:
            found = traceback_hit(recent, self.rules) if row is None else nan_hit(plain, row)
        return found

    def _hit(self, hit: LineHit, line: RawLine, where: tuple[Stream, StreamState]) -> None:
        stream, state = where
        episode = self.state.episode
        if hit.trouble.is_consequence:
            if episode is None and self.state.steps.is_complete:
                return  # what ranks print when others have ended
        elif episode is not None and episode.may_follow(stream) and is_after_incident(self.state, stream, state):
            self.end_stop()
        found = TroubleLine(
            trouble=hit.trouble,
            stream=stream.name,
            number=line.number,
            text=self._shown(hit.line),
            step=self.state.steps.reached if hit.step is None else hit.step,
            rank=stream.rank if hit.rank is None else hit.rank,
            seen_at=stream.read_at,
        )
        self._join(found, state, is_history=stream.is_history)

    def _join(self, found: TroubleLine, state: StreamState, *, is_history: bool) -> Episode:
        run = self.state
        if run.episode is not None and run.episode.is_history and not is_history:
            self._end(run.episode, IncidentEnd.ENDED)  # what is live now is another one
        if run.episode is None:
            run.episodes += 1
            run.episode = begun(run.run_id, run.episodes, host=self.host, is_history=is_history)
        run.episode.join(found, lambda: tuple(map(self._shown_indented, state.recent)))
        run.episode.wait_for_progress(run.steps.last)
        self._note_sizes(run.episode, found, state.sizes)
        if self.hits is not None:
            self.hits.append((run.episode.id, found))
        return run.episode

    def _note_sizes(self, episode: Episode, found: TroubleLine, sizes: RawLine | None) -> None:
        """Note the sizes of the batch for which the memory of a GPU was too small."""
        if found.trouble.name == OOM and sizes is not None and episode.sizes is None:
            episode.sizes = replace(found, number=sizes.number, text=self._shown(sizes.text))

    def _shown(self, text: str) -> str:
        return shortened(one_line(self.mask(text)), TEXT_CHARS)

    def _shown_indented(self, text: str) -> str:
        indent = min(len(text) - len(text.lstrip(" ")), MAX_INDENT)
        return " " * indent + self._shown(text)

    def _count(self, row: StepRow, where: tuple[Stream, StreamState], *, rank: int | None, is_progress: bool) -> None:
        step, run, (stream, state) = row.step or 0, self.state, where
        printer = "" if rank is None else str(rank)
        if not state.places and is_after_incident(run, stream, state):
            self.end_stop()
        if goes_back(run, step, stream, state, printer):
            self._begin_branch(step)
        remember(run, step, stream, state, printer)
        at_s = self._live_time_s(stream)
        self.points += run.thinner.take(step, row.values)
        run.series.take(step, row.values, at_s=at_s, rank=rank)
        run.steps.count(row, step)
        if run.episode is not None and is_progress:
            self._progress(run.episode, step, stream)

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
        self.end_stop()
        if run.episode is not None:
            run.episode.progress.beyond = step - 1

    def _progress(self, episode: Episode, step: int, stream: Stream) -> None:
        if not episode.may_follow(stream):
            episode.skip_to(step)
        elif episode.progresses_to(step, stream.read_at) >= STEPS_AFTER:
            self._end(episode, IncidentEnd.PROGRESS, step)

    def _end(self, episode: Episode, ended_by: IncidentEnd, step: int | None = None) -> None:
        if len(self.ended) < KEPT_ENDED:
            self.ended[episode.id] = incident_in(self.state, episode, ended_by=ended_by, ended_step=step)
        self.state.episode = None

    def _count_unnumbered(self, row: StepRow) -> None:
        loss = loss_in(row.values)
        if loss is None:
            return
        self.state.unnumbered.take(self.state.steps.count_unnumbered(loss), row.values)

    def _draw(self, text: str, stream: Stream, state: StreamState) -> None:
        """Take the step of a progress bar: until a line names steps, it is the only sign of them."""
        run = self.state
        bar = certain_bar(run.steps, state.rows) if MARK in text else None
        if bar is None or not run.steps.draw(bar.step) or run.steps.lines:
            return
        self._live_time_s(stream)
        if run.episode is not None and not run.steps.bars_repeat:
            self._progress(run.episode, bar.step, stream)
