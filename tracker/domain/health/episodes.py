"""What belongs together: one cause is one incident, whatever follows from it on all ranks. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from tracker.domain.health.logs.streams import Stream
from tracker.domain.records.training import (
    EVIDENCE_LINES,
    RANK_KILLED,
    IncidentEnd,
    Severity,
    TrainingIncident,
    TroubleClass,
    TroubleLine,
    incident_id,
)

MAX_RANKS = 1024
SETTLE_S = 10.0
"""Seconds in which steps from before an incident may still arrive in other logs, which are read and written later."""


@dataclass(kw_only=True)
class StepsAfter:
    """Steps after the newest line of an incident."""

    beyond: int | None = None
    """Last step that is no progress: the highest before the line, or the one before a restart; None: there was none."""
    steps: int = 0
    """Later steps."""
    step: int | None = None
    """The first of them."""
    at: datetime | None = None
    """When the newest of them was read."""


@dataclass(kw_only=True)
class Episode:
    """An incident while lines may still join it."""

    id: str
    run_id: str
    context: tuple[str, ...] = ()
    """Lines before the present cause."""
    is_history: bool = False
    first_of: dict[str, TroubleLine] = field(default_factory=dict)
    """First line of each class, in the order of the log."""
    ranks_of: dict[str, set[int]] = field(default_factory=dict)
    """Ranks that printed lines of each class."""
    lines: int = 0
    newest: TroubleLine | None = None
    progress: StepsAfter = field(default_factory=StepsAfter)
    sizes: TroubleLine | None = None
    """The last line with the sizes of a batch, if GPU memory ran out."""
    capture: str = ""
    """What its processes did, as text."""

    def join(self, line: TroubleLine, context: Callable[[], tuple[str, ...]]) -> None:
        """Add a line; `context` returns those before it in its log."""
        if line.trouble.name not in self.first_of:
            self.first_of[line.trouble.name] = line
            if self.cause is line:
                self.context = context()
        ranks = self.ranks_of.setdefault(line.trouble.name, set())
        if line.rank is not None and len(ranks) < MAX_RANKS:
            ranks.add(line.rank)
        self.lines += 1
        self.newest = line

    def wait_for_progress(self, after: int | None) -> None:
        """Expect steps after the highest one so far; None: there was none."""
        self.progress = StepsAfter(beyond=after)

    def may_follow(self, stream: Stream) -> bool:
        """Return whether a step in a log can be later than the newest line of trouble."""
        if self.newest is None or self.newest.stream == stream.name:
            return True
        return not stream.is_history and (stream.read_at - self.newest.seen_at).total_seconds() >= SETTLE_S

    def skip_to(self, step: int) -> None:
        """Note a step that may be earlier than the trouble: later ones have to be beyond it."""
        if self.progress.beyond is not None:
            self.progress.beyond = max(self.progress.beyond, step)

    def progresses_to(self, step: int, at: datetime) -> int:
        """Count a step that was read at `at`; return how many are progress: those of slow logs and ranks are none."""
        found = self.progress
        if found.beyond is None or step > found.beyond:
            found.beyond, found.at = step, at
            found.step = step if found.step is None else found.step
            found.steps += 1
        return found.steps

    @property
    def cause(self) -> TroubleLine:
        """The first line of the class that explains the others: consequences explain nothing.

        A stop by a user explains only what follows it: a job is often cancelled because it crashed. What is only shown,
        such as a network that fails, explains no failure: training survives it.
        """
        candidates: list[TroubleLine] = []
        for line in self.first_of.values():
            if not line.trouble.is_stop or all(_may_precede_stop(before.trouble) for before in candidates):
                candidates.append(line)
        return min(candidates, key=_rank_as_cause)

    @property
    def ending(self) -> TroubleClass:
        """What ended the training: its cause, or else, as after a hang, the first class that ends one."""
        classes = [self.cause.trouble, *(line.trouble for line in self.first_of.values())]
        return next((trouble for trouble in classes if trouble.is_terminal), classes[0])

    def incident(self, *, ended_by: IncidentEnd | None = None, ended_step: int | None = None) -> TrainingIncident:
        """Return the incident as known now; `ended_step`: where progress made it over."""
        cause, newest = self.cause, self.newest or self.cause
        others = [line for line in self.first_of.values() if line is not cause]
        if self.sizes is not None and cause.trouble.name == self.sizes.trouble.name:
            others.insert(0, self.sizes)
        return TrainingIncident(
            id=self.id,
            run_id=self.run_id,
            cause=cause,
            evidence=(cause, *others)[:EVIDENCE_LINES],
            context=self.context,
            lines=self.lines,
            ranks=tuple(sorted(self.ranks_of[cause.trouble.name])),
            seen_at=next(iter(self.first_of.values())).seen_at,
            last_seen_at=newest.seen_at,
            last_step=newest.step,
            is_history=self.is_history,
            hint=cause.trouble.hint,
            ended_by=ended_by,
            ended_step=ended_step,
            resumed_step=self.progress.step,
            resumed_at=self.progress.at,
            capture=self.capture,
        )


def _may_precede_stop(trouble: TroubleClass) -> bool:
    """Return whether a stop by a user may be printed after it; a rank that was killed before was no user's decision."""
    return trouble.is_consequence and trouble.name != RANK_KILLED


def _rank_as_cause(line: TroubleLine) -> tuple[bool, bool, int]:
    trouble = line.trouble
    is_survived = trouble.severity is Severity.SHOWN and not trouble.is_stop
    return is_survived, trouble.is_consequence, trouble.order


def begun(run_id: str, number: int, *, host: str = "", is_history: bool) -> Episode:
    """Return the `number`-th episode of a run on a machine, which a line is to join; its id never changes."""
    return Episode(id=incident_id(run_id, number, *filter(None, [host])), run_id=run_id, is_history=is_history)
