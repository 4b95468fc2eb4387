"""Subjects of alerts and comparisons, as text. Pure."""

from collections.abc import Sequence

from tracker.domain.records.alerts import AlertSubject, Silence, SubjectKind
from tracker.domain.records.display import steps_text
from tracker.domain.records.types import Baseline, Measure


def subject_text(benchmark: str, subset: str, measure: Measure) -> str:
    """Return `sums`, `mmlu / anatomy` or `sums, output length`."""
    name = f"{benchmark} / {subset}" if subset else benchmark
    if measure is Measure.SCORE:
        return name
    return f"{name}, {'truncated answers' if measure is Measure.COMPLETENESS else measure}"


def alert_subject_text(subject: AlertSubject) -> str:
    """Return `mmlu / anatomy`, `latency, load default` or `queue`."""
    if subject.kind is SubjectKind.BENCHMARK:
        return subject_text(subject.name, subject.subset, subject.measure)
    if subject.kind is SubjectKind.LATENCY:
        return f"latency, load {subject.name}"
    return subject.kind


def silenced_text(silence: Silence) -> str:
    """Return what a silence covers: `mmlu`, `mmlu / anatomy`, `latency, load default` or `queue`."""
    if silence.kind is SubjectKind.BENCHMARK:
        return subject_text(silence.name, "" if silence.subset == "*" else silence.subset, Measure.SCORE)
    is_named = silence.kind is SubjectKind.LATENCY and silence.name != "*"
    if is_named:
        return f"latency, load {silence.name}"
    return silence.kind


def baseline_text(baseline: Baseline, steps: Sequence[int]) -> str:
    """Return `peak, steps 510 to 600`."""
    return f"{baseline}, {steps_text(steps)}"
