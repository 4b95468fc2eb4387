"""What several kinds of evidence say together about one cause. Pure."""

from collections.abc import Collection
from dataclasses import replace

from tracker.domain.health.episodes import Episode
from tracker.domain.health.run_state import RunState
from tracker.domain.health.series.kinds import NumberKind
from tracker.domain.health.series.loss import SeriesFinding, SeriesName
from tracker.domain.health.series_incidents import finding_text
from tracker.domain.records.training import IncidentEnd, Severity, TrainingIncident, TroubleClass

WAIT = 3.0
"""Wait for the next step, in usual intervals between steps."""
PAUSES = 3
"""Least number of pauses that make them a habit."""
_SILENT = "silent"
_NCCL = "nccl"
OOM = "oom"
_LEAK = "memory grew until it was full: look for a leak"
_JOINT = (
    (SeriesName.THROUGHPUT, {_NCCL}, "the network between the processes is slow or broken"),
    (SeriesName.THROUGHPUT, {_SILENT}, "the training waits for data: look at data loading"),
    ("host_oom", {SeriesName.MEMORY}, _LEAK),
    (OOM, {SeriesName.MEMORY}, _LEAK),
    (OOM, set[str](), "memory did not grow before: this batch or this sequence length is too large"),
)
"""Cause, what must be there with it, and what they say: the first that fits decides."""


def joint_hint(cause: str, *, line_classes: Collection[str], series: Collection[str], silent: bool) -> str:
    """Return what all classes of lines and findings around a cause say of it; "" if nothing fits."""
    evidence = set(series)
    if silent:
        evidence.add(_SILENT)
    if any(name.startswith(_NCCL) for name in line_classes):
        evidence.add(_NCCL)
    for of_cause, needed, hint in _JOINT:
        if cause == of_cause and needed <= evidence:
            return hint
    return ""


def hint_of_finding(run: RunState, finding: SeriesFinding) -> str:
    """Return what the lines of a run say of a finding in its numbers; "" if nothing."""
    classes = () if run.episode is None else run.episode.first_of
    return joint_hint(finding.name, line_classes=classes, series=(), silent=_pauses(run))


def incident_in(
    run: RunState, episode: Episode, *, ended_by: IncidentEnd | None = None, ended_step: int | None = None
) -> TrainingIncident:
    """Return an incident of a run with what its numbers and pauses say of the cause."""
    shown = episode.incident(ended_by=ended_by, ended_step=ended_step)
    cause = episode.cause.trouble
    hints = (_hint_of_lines(run, episode), _evidence(run, episode), cause.hint)
    return replace(shown, hint="; ".join(filter(None, hints)), wait_s=_wait_s(run, cause))


def _hint_of_lines(run: RunState, episode: Episode) -> str:
    if NumberKind.MEMORY not in run.series.kinds:  # without such numbers, nothing is known of it
        return ""
    series = {finding.name for finding in run.findings}
    return joint_hint(episode.cause.trouble.name, line_classes=episode.first_of, series=series, silent=_pauses(run))


def _evidence(run: RunState, episode: Episode) -> str:
    """Return how the memory grew before it was full; "" if it did not, or is not known."""
    if episode.cause.trouble.name != OOM:
        return ""
    return next((finding_text(finding) for finding in run.findings if finding.name == SeriesName.MEMORY), "")


def _wait_s(run: RunState, cause: TroubleClass) -> float:
    """Return the time without a step after which an incident is reported; 0: at once, or never if it is shown."""
    if not cause.wait_s or (cause.severity is Severity.SHOWN and run.steps.is_complete):
        return 0.0
    return max(cause.wait_s, WAIT * run.pace.usual_s)


def _pauses(run: RunState) -> bool:
    return len(run.pace.pauses_s) >= PAUSES
