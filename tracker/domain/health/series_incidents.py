"""From what the numbers of a run show to incidents. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from tracker.domain.health.series.loss import SeriesFinding, SeriesName
from tracker.domain.records.display import score_text
from tracker.domain.records.training import (
    IncidentEnd,
    Severity,
    TrainingIncident,
    TroubleClass,
    TroubleLine,
    TroubleSource,
    incident_id,
)

_OF_LOSS = (SeriesName.SPIKE, SeriesName.DIVERGED, SeriesName.COLLAPSED)
"""What a spike may become: one incident."""
_TEXTS: Mapping[str, tuple[str, str]] = {
    SeriesName.SPIKE: ("The loss spiked", "look at the data of these steps; if spikes recur, clip gradients"),
    SeriesName.DIVERGED: ("The loss diverged", "go back to a checkpoint before it, with a lower learning rate"),
    SeriesName.COLLAPSED: ("The loss collapsed", "the model answers every input alike: go back to a checkpoint"),
    SeriesName.FLAT: ("The loss does not fall any more", "compare with the scores of the checkpoints"),
    SeriesName.NAN: ("A number is NaN or infinite", "lower the learning rate, or look at the data of this step"),
    SeriesName.GRADIENT: ("The gradient norm jumped", "clip gradients, or look at the data of these steps"),
    SeriesName.LR: ("The learning rate jumped", "compare it with the schedule that you wanted"),
    SeriesName.THROUGHPUT: ("The training slowed down", "look at data loading, other jobs and the network"),
    SeriesName.MEMORY: ("Memory grows all the time", "look for tensors or caches that are kept from step to step"),
    SeriesName.BEHIND: ("A rank left the others", "compare its data and its GPU with those of the others"),
}
"""Title and hint of each class."""


@dataclass(frozen=True, kw_only=True)
class SeenFinding:
    """Where and when a finding was seen first."""

    stream: str
    at: datetime
    is_history: bool
    branch: int = 0


def finding_key(finding: SeriesFinding) -> str:
    """Return what identifies a finding, whatever becomes of it."""
    name = SeriesName.SPIKE if finding.name in _OF_LOSS else finding.name
    return f"{name} {finding.key} {finding.rank} {finding.is_numbered} {finding.onset_step}"


def title_and_hint(name: str) -> tuple[str, str]:
    """Return title and hint of a class; empty for a condition of a user."""
    return _TEXTS.get(name, ("", ""))


def incident_of(
    finding: SeriesFinding, run_id: str, seen: SeenFinding, texts: tuple[str, str] | None = None
) -> TrainingIncident:
    """Return a finding as an incident; its id is the same whatever becomes of it. `texts`: title and hint of a user."""
    title, hint = texts or title_and_hint(finding.name)
    trouble = TroubleClass(
        name=finding.name,
        severity=Severity.ALERT if finding.is_alert else Severity.SHOWN,
        title=title,
        source=TroubleSource.SERIES,
        hint=hint,
    )
    step = finding.onset_step if finding.is_numbered else None
    cause = TroubleLine(
        trouble=trouble,
        stream=seen.stream,
        number=0,
        text=finding_text(finding),
        step=step,
        rank=finding.rank,
        seen_at=seen.at,
    )
    return TrainingIncident(
        id=incident_id(run_id, seen.branch, finding_key(finding)),
        run_id=run_id,
        cause=cause,
        evidence=(cause,),
        lines=0,
        ranks=() if finding.rank is None else (finding.rank,),
        seen_at=seen.at,
        last_seen_at=seen.at,
        last_step=finding.found_step if finding.is_numbered else None,
        is_history=seen.is_history,
        hint=hint,
        ended_by=None if finding.over_step is None else IncidentEnd.PROGRESS,
        ended_step=finding.over_step if finding.is_numbered else None,
    )


def finding_text(finding: SeriesFinding) -> str:
    """Return what a finding shows: the number, the step and both values."""
    place = "step" if finding.is_numbered else "loss number"
    if finding.name not in _TEXTS and finding.worst is not None:
        return f"{finding.key} is {finding.worst:.3g} since {place} {finding.onset_step}"
    if finding.worst is None:
        return f"{finding.key} is not a number since {place} {finding.onset_step}"
    before, worst = score_text(finding.expected), score_text(finding.worst)
    return f"{finding.key} {before} before {place} {finding.onset_step}, then {worst}"
