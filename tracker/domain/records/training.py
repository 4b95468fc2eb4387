"""What a trainer's own output shows: lines of trouble, and incidents of the training. Frozen values."""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from eval_jobs.identity import content_hash

EVIDENCE_LINES = 5
CONTEXT_LINES = 20
_ID_CHARS = 10
RANK_KILLED = "rank_killed"
"""Class of the line in which a launcher reports it."""


class Severity(StrEnum):
    """How trouble is reported."""

    ALERT = "alert"
    SHOWN = "shown"
    """In pages and tables only."""


class TroubleSource(StrEnum):
    """What showed the trouble."""

    LINE = "line"
    """A line that a rule fits."""
    SERIES = "series"
    """The numbers that the trainer logs."""
    PROCESS = "process"
    """What the processes of the training do, or that they ended."""
    RESOURCE = "resource"
    """What the processes use."""
    HARDWARE = "hardware"


@dataclass(frozen=True, kw_only=True)
class TroubleClass:
    """One class of trouble."""

    name: str
    severity: Severity
    title: str = ""
    """In words, as the begin of a sentence; empty: the name says it."""
    source: TroubleSource = TroubleSource.LINE
    is_terminal: bool = False
    """Whether the training ends with it."""
    is_consequence: bool = False
    """Whether something else is its cause."""
    wait_s: float = 0.0
    """Seconds without a step after which it is reported: training may survive it."""
    hint: str = ""
    command: str = ""
    """To run next; empty: none."""
    order: int = 0
    """Place among all classes: earlier ones explain later ones."""

    @property
    def is_stop(self) -> bool:
        """Whether a user ended the training."""
        return self.is_terminal and self.severity is Severity.SHOWN


@dataclass(frozen=True, kw_only=True)
class TroubleLine:
    """A line that shows trouble, and where it was."""

    trouble: TroubleClass
    stream: str
    """Path of the log, as it is shown."""
    number: int
    """Of the line, from 1."""
    text: str
    """Cleaned, on one line and of bounded length."""
    step: int | None = None
    """Last step of the run before it; None: none yet."""
    rank: int | None = None
    """Process that printed it; None: neither the line nor the path names one."""
    seen_at: datetime
    """When it was read."""
    is_proven: bool = True
    """Whether what it says is certain; else it is the likely cause of a hang."""


class IncidentEnd(StrEnum):
    """Why an incident is over."""

    PROGRESS = "progress"
    """The training made progress afterwards."""
    DISMISSED = "dismissed"
    """A user closed it."""
    ENDED = "ended"
    """The training ended without it, or began again after it."""
    RESTARTED = "restarted"
    """A training that a user had stopped runs again."""
    RECOVERED = "recovered"
    """What was measured is well again."""


@dataclass(frozen=True, kw_only=True)
class TrainingIncident:
    """Trouble with one cause, whatever followed from it on all ranks."""

    id: str
    run_id: str
    cause: TroubleLine
    """The line that explains the others."""
    evidence: tuple[TroubleLine, ...]
    """The cause, then the first line of each other class, at most `EVIDENCE_LINES`."""
    context: tuple[str, ...] = ()
    """The lines of the same log up to the cause, at most `CONTEXT_LINES`; cleaned."""
    lines: int
    """Lines that belong to it."""
    ranks: tuple[int, ...] = ()
    """Ranks that printed lines of its class, ascending, where lines or paths name one."""
    seen_at: datetime
    """When its first line was read."""
    last_seen_at: datetime
    last_step: int | None = None
    """Last step of the run before its newest line."""
    is_history: bool = False
    """Whether it was in the logs before they were followed: shown, but no alert."""
    hint: str = ""
    ended_by: IncidentEnd | None = None
    """None: it lasts."""
    ended_step: int | None = None
    """Step at which progress was certain; None: it lasts, or was dismissed."""
    resumed_step: int | None = None
    """First step that was logged afterwards; None: there is none, or the numbers alone showed it."""
    resumed_at: datetime | None = None
    """When the newest step after it was read."""
    wait_s: float = 0.0
    """Seconds without a step after which it is reported; 0: at once."""
    reason: str = ""
    """Why a user dismissed it."""
    capture: str = ""
    """States and stacks of its processes, as text."""

    @property
    def name(self) -> str:
        """Class of the cause."""
        return self.cause.trouble.name

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.ended_by is not None

    @property
    def is_alert(self) -> bool:
        """Whether it is worth an alert, apart from `wait_s`."""
        return self.cause.trouble.severity is Severity.ALERT and not self.is_history


@dataclass(frozen=True, kw_only=True)
class Dismissal:
    """A user's decision that an incident needs no more attention."""

    reason: str
    classes: tuple[str, ...]
    """Classes of trouble that the user knew."""

    def covers(self, incident: TrainingIncident) -> bool:
        """Return whether no other failure has joined the incident since; consequences and stops are none."""
        for line in incident.evidence:
            trouble = line.trouble
            is_failure = trouble.severity is Severity.ALERT and not trouble.is_consequence
            if is_failure and trouble.name not in self.classes:
                return False
        return True


def incident_id(*parts: object) -> str:
    """Return the id of an incident, which never changes: of what identifies it, with the id of its run."""
    return content_hash(parts)[:_ID_CHARS]


def dismissal_of(incident: TrainingIncident, reason: str) -> Dismissal:
    """Return the dismissal of what is known of an incident now."""
    return Dismissal(reason=reason, classes=tuple(line.trouble.name for line in incident.evidence))


def as_dismissed(incident: TrainingIncident, dismissal: Dismissal | None) -> TrainingIncident:
    """Return an incident as closed by a user, unless it is over or another failure has joined it."""
    if dismissal is None or incident.is_over or not dismissal.covers(incident):
        return incident
    return replace(incident, ended_by=IncidentEnd.DISMISSED, reason=dismissal.reason)
