"""Alerts, their evidence, and the messages that contain them. Frozen values."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from tracker.domain.records.display import one_line, steps_text
from tracker.domain.records.losses import Measure
from tracker.domain.records.types import Baseline


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
    """A benchmark has no result, or too few samples have a score: a loss would not be detected."""
    CHECKPOINT = "checkpoint"
    """A checkpoint will not be evaluated."""
    OVERDUE = "overdue"
    """No checkpoint appeared for much longer than usual."""
    STUCK = "stuck"
    """Evaluations are pending without an active worker, or one takes much longer than usual."""
    UNFIT = "unfit"
    """Repeating a benchmark changes its score by more than the smallest effect it should detect."""
    UNSENT = "unsent"
    """MLflow rejects results, so that it does not show them."""
    BUG = "bug"
    """An error sets a checkpoint, a result or a part of the loop aside."""
    CRASH = "crash"
    """The training ended, or will, by an error of the program, the machine or the cluster."""
    HANG = "hang"
    """The training makes no progress, and its processes still exist."""
    DIVERGED = "diverged"
    """The training loss left its past and did not return, or is no number."""
    FAULT = "fault"
    """Hardware or the system reports an error that training may survive."""
    ANOMALY = "anomaly"
    """The training's own numbers left their past."""
    TEST = "test"
    """A test of a channel, without a cause."""


class SubjectKind(StrEnum):
    """Kind of an alert's subject. It is separate from the name: a benchmark may be named like any of these kinds."""

    BENCHMARK = "benchmark"
    LATENCY = "latency"
    CHECKPOINT = "checkpoint"
    """A whole checkpoint, or the absence of a new one."""
    QUEUE = "queue"
    TRACKING = "mlflow"
    TRAINING = "training"
    """The training itself; the name is the class of an incident."""
    TEST = "test"


@dataclass(frozen=True, kw_only=True)
class AlertSubject:
    """Subject of an alert. `subjects.alert_subject_text` formats it."""

    kind: SubjectKind
    name: str = ""
    """Name of the benchmark, or of the load under which latency is measured."""
    subset: str = ""
    """Empty for the whole benchmark."""
    measure: Measure = Measure.SCORE


@dataclass(frozen=True, kw_only=True)
class AlertEvidence:
    """Numbers that an alert is based on. None or empty means that there are none of that kind."""

    score: float | None = None
    """Score of the checkpoint, as the benchmark reports it."""
    change: float | None = None
    """Candidate minus baseline in score units, up is better; for times their ratio, above 1 is slower."""
    ci_low: float | None = None
    """95 % interval of `change`."""
    ci_high: float | None = None
    is_ratio: bool = False
    before: float | None = None
    """Score of the baseline of a loss, as the benchmark reports it."""
    baseline_steps: tuple[int, ...] = ()
    """Steps of the same run, ascending; empty also if the baseline is a checkpoint of another run."""
    onset_step: int | None = None
    """First step of a loss."""
    pending_steps: tuple[int, ...] = ()
    """Earlier checkpoints whose results are pending: the alert is provisional."""
    n_common: int = 0
    """Samples scored on both sides, or requests timed on both."""
    n_lost: int = 0
    """Samples right before, wrong now."""
    n_gained: int = 0
    lost_samples: tuple[str, ...] = ()
    """The questions of a few lost samples, one line each."""
    lines: tuple[str, ...] = ()
    """Lines of the trainer's log."""
    ranks: tuple[int, ...] = ()
    """Ranks that printed them, ascending."""
    hint: str = ""
    """What to do about it."""


@dataclass(frozen=True, kw_only=True)
class Alert:
    """An event that needs attention. One per cause: `fingerprint` is equal for firing and resolved."""

    fingerprint: str
    run_id: str
    step: int | None
    """Of the checkpoint, or at which a training failed; None: unknown."""
    kind: AlertKind
    subject: AlertSubject
    state: AlertState
    message: str
    evidence: AlertEvidence | None = None
    command: str = ""
    """Command that shows more; empty if there is nothing more to show."""
    is_correction: bool = False
    """Whether it replaces the numbers of a firing alert with the same fingerprint."""
    raised_at: datetime


@dataclass(frozen=True, kw_only=True)
class AlertMessage:
    """One message to one channel: all new alerts of one checkpoint."""

    run_id: str
    step: int | None
    alerts: tuple[Alert, ...]
    """At least one; firing ones first, each fingerprint once."""
    link: str = ""
    """Address at which the run can be viewed; empty if unknown."""

    @property
    def is_firing(self) -> bool:
        """Whether any alert is firing, not only resolved."""
        return any(alert.state is AlertState.FIRING for alert in self.alerts)


@dataclass(frozen=True, kw_only=True)
class Silence:
    """A period without notifications of a subject. Alerts held back are sent when it ends, unless resolved by then."""

    id: str
    run_id: str
    """The run or one of its sub-folders."""
    kind: SubjectKind
    name: str = "*"
    """Name of a benchmark or load, or a pattern with `*` and `?`; it covers all measures of a benchmark."""
    subset: str = "*"
    """The same for subsets of the benchmark; only a pattern that matches the empty name covers the whole benchmark."""
    reason: str
    begins_at: datetime
    ends_at: datetime


@dataclass(frozen=True, kw_only=True)
class ChannelState:
    """Delivery state of a channel, for display."""

    name: str
    is_configured: bool
    waiting: int
    """Number of alerts not sent to it yet."""
    is_silenced: bool = False
    """Whether silences hold back all of them."""
    last_error: str = ""
    """Last error of the oldest waiting alert that is not silenced; empty if it has not failed."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """When missing progress becomes an alert."""

    overdue_factor: Annotated[float, Field(ge=0)] = 4.0
    """Alert when no checkpoint appears for this multiple of the usual interval while training is running; 0:
    never."""
    stuck_after_s: Annotated[float, Field(ge=0)] = 900.0
    """Alert when evaluations are pending for this many seconds without an active worker, or when one takes this
    long and more than five times as long as any earlier one of the same suite; 0: never."""


CHECKPOINT = "checkpoint"
"""A checkpoint as a whole, by all benchmarks of its suite together."""


def subject_text(benchmark: str, subset: str, measure: Measure) -> str:
    """Return `sums`, `mmlu / anatomy` or `sums, output length`; `checkpoint` for all benchmarks together."""
    name = f"{benchmark} / {subset}" if subset else benchmark or CHECKPOINT
    if measure is Measure.SCORE:
        return name
    return f"{name}, {'truncated answers' if measure is Measure.COMPLETENESS else measure}"


def alert_subject_text(subject: AlertSubject) -> str:
    """Return `mmlu / anatomy`, `latency, load default` or `queue`."""
    if subject.kind is SubjectKind.BENCHMARK:
        return subject_text(subject.name, subject.subset, subject.measure)
    if subject.kind is SubjectKind.LATENCY:
        return f"latency, load {subject.name}"
    if subject.kind is SubjectKind.TRAINING and subject.name:
        return f"training, {subject.name}"
    return subject.kind


def silenced_text(silence: Silence) -> str:
    """Return what a silence covers: `mmlu of run-a`, `mmlu / anatomy of run-a` or `queue of run-a`, on one line."""
    what: str = silence.kind
    if silence.name != "*" or silence.kind is SubjectKind.BENCHMARK:
        subset = "" if silence.subset == "*" else silence.subset
        what = alert_subject_text(AlertSubject(kind=silence.kind, name=silence.name, subset=subset))
    return one_line(f"{what} of {silence.run_id}")


def baseline_text(baseline: Baseline, steps: Sequence[int]) -> str:
    """Return `peak, steps 510 to 600`."""
    return f"{baseline}, {steps_text(steps)}"
