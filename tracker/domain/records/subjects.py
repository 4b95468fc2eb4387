"""Subjects of alerts and comparisons, as text. Pure."""

from collections.abc import Sequence

from tracker.domain.records.alerts import AlertSubject, Silence, SubjectKind
from tracker.domain.records.display import one_line, steps_text
from tracker.domain.records.losses import Measure
from tracker.domain.records.types import Baseline

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
