"""What people are told: alerts, what they rest on, and the messages that carry them. Frozen values."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from tracker.domain.records.types import Measure


class AlertState(StrEnum):
    """Whether an alert's cause is present."""

    FIRING = "firing"
    RESOLVED = "resolved"


class AlertKind(StrEnum):
    """What an alert is about."""

    LOSS = "loss"
    """A benchmark, a subset of it, or the completeness of its answers went down."""
    LATENCY = "latency"
    MISSING = "missing"
    """A benchmark has no result, or too few samples have a score: nobody would see a loss."""
    CHECKPOINT = "checkpoint"
    """A checkpoint will not be evaluated."""
    OVERDUE = "overdue"
    """No checkpoint came for much longer than usual."""
    STUCK = "stuck"
    """Checkpoints wait and nobody evaluates them, or one takes much longer than usual."""
    UNFIT = "unfit"
    """Repeating a benchmark changes its score by more than what it is to find."""
    TEST = "test"
    """Nothing happened: somebody tries a channel."""


class SubjectKind(StrEnum):
    """What an alert's subject is; a benchmark may have any of these words as its name."""

    BENCHMARK = "benchmark"
    LATENCY = "latency"
    CHECKPOINT = "checkpoint"
    """A whole checkpoint, or that none comes."""
    QUEUE = "queue"
    TEST = "test"


@dataclass(frozen=True, kw_only=True)
class AlertSubject:
    """What an alert speaks of. `subjects.alert_subject_text` makes words of it."""

    kind: SubjectKind
    name: str = ""
    """Of the benchmark, or of the load under which latency is measured."""
    subset: str = ""
    """Empty: the whole benchmark."""
    measure: Measure = Measure.SCORE


@dataclass(frozen=True, kw_only=True)
class AlertEvidence:
    """The numbers that an alert rests on. None and empty: there are none of that kind."""

    score: float | None = None
    """Of the checkpoint, as the benchmark reports it."""
    change: float | None = None
    """Candidate minus baseline in score units, up is better; of times their ratio, above 1 is slower."""
    ci_low: float | None = None
    """95 % interval of `change`."""
    ci_high: float | None = None
    is_ratio: bool = False
    baseline_steps: tuple[int, ...] = ()
    """Of the same run, ascending; empty also where it is a checkpoint of another one."""
    n_common: int = 0
    """Samples scored on both sides, or requests timed on both."""
    n_lost: int = 0
    """Right before, wrong now."""
    n_gained: int = 0
    lost_samples: tuple[str, ...] = ()
    """The questions of a few lost samples, one line each."""


@dataclass(frozen=True, kw_only=True)
class Alert:
    """Something a person should know now. One per cause: `fingerprint` is equal for firing and resolved."""

    fingerprint: str
    run_id: str
    step: int
    kind: AlertKind
    subject: AlertSubject
    state: AlertState
    message: str
    evidence: AlertEvidence | None = None
    command: str = ""
    """What to type to look further; empty: nothing more is to be seen."""
    raised_at: datetime


@dataclass(frozen=True, kw_only=True)
class AlertMessage:
    """What one channel is told at once: all news of one checkpoint."""

    run_id: str
    step: int
    alerts: tuple[Alert, ...]
    """At least one; firing ones first, each fingerprint once."""
    link: str = ""
    """Where the run can be looked at; empty: nowhere that is known."""

    @property
    def is_firing(self) -> bool:
        """Whether something is wrong, and not only over."""
        return any(alert.state is AlertState.FIRING for alert in self.alerts)


@dataclass(frozen=True, kw_only=True)
class Silence:
    """Somebody's word that nobody is to be told of something for a while. What it held back is told when it ends."""

    id: str
    run_id: str
    """The run or one of its sub-folders."""
    kind: SubjectKind
    name: str = "*"
    """Of a benchmark or load, or a pattern with `*` and `?`; a benchmark's measures are meant too."""
    subset: str = "*"
    """The same for subsets of the benchmark; only a pattern that fits the empty name means the whole benchmark."""
    reason: str
    begins_at: datetime
    ends_at: datetime


@dataclass(frozen=True, kw_only=True)
class ChannelState:
    """How far a channel is, for display."""

    name: str
    is_configured: bool
    waiting: int
    """Alerts that it was not told yet."""
    is_silenced: bool = False
    """All of them are held back by silences."""
    last_error: str = ""
    """What it said to the oldest of them that is not silenced; empty: it is its turn."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """When silence becomes an alert."""

    overdue_factor: Annotated[float, Field(ge=0)] = 4.0
    """Alert when no checkpoint appears for this multiple of the usual interval while training is running; 0:
    never."""
    stuck_after_s: Annotated[float, Field(ge=0)] = 900.0
    """Alert when evaluations are pending for this many seconds without an active worker, or when one takes this
    long and more than five times as long as any earlier one of the same suite; 0: never."""
