"""What a run's incidents cost: counts, steps lost, time between failures. Pure."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import mean

from tracker.domain.records.training import Severity, TrainingIncident


@dataclass(frozen=True, kw_only=True)
class ClassCount:
    """How often one class of trouble occurred."""

    name: str
    incidents: int
    open: int


@dataclass(frozen=True, kw_only=True)
class Failures:
    """What the incidents of one or more runs cost."""

    classes: tuple[ClassCount, ...]
    """Most frequent first."""
    failures: int
    """Incidents that ended the training."""
    lost_steps: int
    """Steps that were or will be repeated after those."""
    hours_between: float | None
    """Mean time between two failures of a run; None: no run had two."""


def failures_of(incidents: Sequence[TrainingIncident], checkpoints: Iterable[int]) -> Failures:
    """Return what the incidents of a run cost; `checkpoints`: steps of its checkpoints."""
    return failures_of_runs([(incidents, checkpoints)])


def failures_of_runs(runs: Iterable[tuple[Sequence[TrainingIncident], Iterable[int]]]) -> Failures:
    """Return what the incidents of several runs cost together; each run has the steps of its own checkpoints."""
    counts, lasting = Counter[str](), Counter[str]()
    failures = lost = 0
    gaps_h: list[float] = []
    for incidents, checkpoints in runs:
        saved, times = sorted(checkpoints), list[datetime]()
        for one in incidents:
            counts[one.name] += 1
            lasting[one.name] += not one.is_over
            if is_failure(one):
                failures += 1
                lost += lost_steps(one, saved)
                if not one.is_history:  # those were read long after they occurred
                    times.append(one.seen_at)
        gaps_h += _gaps_h(sorted(times))
    return Failures(
        classes=tuple(
            ClassCount(name=name, incidents=count, open=lasting[name]) for name, count in counts.most_common()
        ),
        failures=failures,
        lost_steps=lost,
        hours_between=mean(gaps_h) if gaps_h else None,
    )


def _gaps_h(times: Sequence[datetime]) -> list[float]:
    return [(later - before).total_seconds() / 3600 for before, later in pairwise(times)]


def is_failure(incident: TrainingIncident) -> bool:
    """Return whether an incident ended the training, and was neither a stop by a user nor followed by later steps.

    What ends no training by itself, such as a hang, did if something that does followed, also a stop by a user.
    """
    step, resumed = incident.cause.step, incident.resumed_step
    if incident.cause.trouble.severity is not Severity.ALERT:
        return False
    if resumed is None or step is None:
        return any(line.trouble.is_terminal for line in incident.evidence)
    return resumed <= step


def lost_steps(incident: TrainingIncident, checkpoints: Sequence[int]) -> int:
    """Return the steps that are done again after an incident; while it lasts, those since the newest checkpoint.

    `checkpoints` are ascending steps; 0 if the step of the incident is unknown.
    """
    step = incident.cause.step
    if step is None:
        return 0
    if incident.resumed_step is not None:
        return max(0, step - incident.resumed_step + 1)
    place = bisect_right(checkpoints, step)
    return step - (checkpoints[place - 1] if place else 0)
