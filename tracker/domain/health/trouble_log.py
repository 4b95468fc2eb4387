"""From what shows trouble to incidents: which begin, what belongs to them, and how they end. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from datetime import datetime

from tracker.domain.health.branches import is_after_incident
from tracker.domain.health.episodes import Episode, begun
from tracker.domain.health.hints import OOM, incident_in
from tracker.domain.health.logs.masking import without_keys
from tracker.domain.health.logs.streams import Stream
from tracker.domain.health.logs.text import RawLine
from tracker.domain.health.processes.signs import ProcessSign, incident_of_sign
from tracker.domain.health.rules.lines import LineHit
from tracker.domain.health.run_state import RunState, StreamState, last_lines_text
from tracker.domain.records.display import one_line, shortened
from tracker.domain.records.training import IncidentEnd, TrainingIncident, TroubleLine, TroubleSource

STEPS_AFTER = 3
"""Lines of steps beyond the last one before an incident after which it is over."""
PROCESSES = "processes"
"""Name of the stream for signs that come from no log."""
TEXT_CHARS = 300
MAX_INDENT = 40
KEPT_ENDED = 1000
"""Ended incidents that one reading hands out; more in one log are one failure that repeats."""


@dataclass(kw_only=True)
class TroubleLog:
    """The incidents of one run, by its lines, its processes and its machine; `ended` is new since it was emptied."""

    state: RunState
    mask: Callable[[str], str] = without_keys
    """Returns a text without secrets."""
    host: str = ""
    """Machine of the logs; empty: that of the watcher."""
    hits: list[tuple[str, TroubleLine]] | None = None
    """All lines with trouble, each with the id of its incident; None: they are not kept."""
    ended: dict[str, TrainingIncident] = field(default_factory=dict)
    """By id."""
    _newest: StreamState = field(default_factory=StreamState)
    """The log that was read last."""
    _of_rank: dict[int, StreamState] = field(default_factory=dict)
    """The logs of single ranks."""

    def note_log(self, stream: Stream, state: StreamState) -> None:
        """Note which log is read: what the processes show is told with its newest lines."""
        self._newest = state
        if stream.rank is not None:
            self._of_rank[stream.rank] = state

    def take_hit(self, hit: LineHit, line: RawLine, stream: Stream, state: StreamState) -> None:
        """Take a line that shows trouble."""
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

    def take_step(self, step: int, stream: Stream) -> None:
        """Take a step, which ends an incident if enough of them follow it."""
        episode = self.state.episode
        if episode is None:
            return
        if not episode.may_follow(stream):
            episode.skip_to(step)
        elif episode.progresses_to(step, stream.read_at) >= STEPS_AFTER:
            self._end(episode, IncidentEnd.PROGRESS, step)

    def begin_branch(self, step: int) -> None:
        """Note that the training was started again, from `step`."""
        self.end_stop()
        if self.state.episode is not None:
            self.state.episode.progress.beyond = step - 1

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

    def end_history(self, recent: Collection[str]) -> None:
        """Note that what lasts at the end of the `recent` logs is worth an alert."""
        episode = self.state.episode
        if episode is not None and episode.newest is not None and episode.newest.stream in recent:
            episode.is_history = False

    def incidents(self) -> tuple[TrainingIncident, ...]:
        """Return the incidents that ended since `ended` was emptied, or last."""
        found = (*self.ended.values(), *self.state.lasting.values())
        if self.state.episode is None:
            return found
        return (*found, incident_in(self.state, self.state.episode))

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

    def _end(self, episode: Episode, ended_by: IncidentEnd, step: int | None = None) -> None:
        if len(self.ended) < KEPT_ENDED:
            self.ended[episode.id] = incident_in(self.state, episode, ended_by=ended_by, ended_step=step)
        self.state.episode = None

    def _shown(self, text: str) -> str:
        return shortened(one_line(self.mask(text)), TEXT_CHARS)

    def _shown_indented(self, text: str) -> str:
        indent = min(len(text) - len(text.lstrip(" ")), MAX_INDENT)
        return " " * indent + self._shown(text)
