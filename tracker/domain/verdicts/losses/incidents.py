"""Incidents as records: which are open, of which settings, and which checkpoints they take out of tests. Pure.

One loss is one incident: notifications are sent when it opens and when it ends, not at every checkpoint in between.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tracker.domain.records.losses import Acceptance, Closing, Incident
from tracker.domain.verdicts.hypothesis import Subject

_BY_LATER = frozenset({Closing.RECOVERED, Closing.TRANSIENT, Closing.REMEASURED})


def incidents_at(incidents: Sequence[Incident], subject: Subject, step: int) -> tuple[Incident, ...]:
    """Return the incidents of `subject` as of just before the verdicts on `step`.

    Verdicts that are computed again or late use the same incidents. A level that was accepted at `step` counts from
    there on, so the incident that it covers is over.
    """
    before = [e for e in incidents if subject_of(e) == subject and e.opened_step < step]
    return tuple(e if _is_over(e, step) else reopened(e) for e in before)


def open_of(known: Sequence[Incident], steps: Sequence[int]) -> Incident | None:
    """Return the open incident of those that checkpoints at `steps` opened, or None.

    An incident of a series with other settings does not apply to this one, which could never end it.
    """
    return next((e for e in reversed(known) if e.closed_step is None and e.opened_step in steps), None)


def is_of_series(incident: Incident, series: Mapping[str, str]) -> bool:
    """Return whether an incident is of results with the settings in `series`, by benchmark.

    One of all benchmarks together is, as long as one of them has its settings: a broken checkpoint stays broken for
    those, whatever changed for another one.
    """
    names = incident.benchmarks or (incident.benchmark,)
    own = zip(names, incident.series, strict=False)
    known = [series[name] == settings for name, settings in own if name in series]
    return not known or any(known)


def counting(steps: Sequence[int], known: Sequence[Incident], acceptances: Sequence[Acceptance]) -> tuple[bool, ...]:
    """Return for each of `steps`, the last of which is the candidate, whether it counts in tests.

    The checkpoints of a recovered loss do not count, nor do those before an accepted or explained level.
    """
    *earlier, candidate = steps
    starts = [a.from_step for a in acceptances if a.step <= candidate]
    starts += (e.onset_step for e in known if e.closed_by is Closing.EXPLAINED)
    start = max(starts, default=steps[0])
    over = [e for e in known if e.last_step is not None]
    if not over and start == steps[0]:
        return (True,) * len(steps)
    return (*(step >= start and not _was_lost(over, step) for step in earlier), True)


def reopened(incident: Incident) -> Incident:
    """Return the incident as if it had not ended."""
    return replace(incident, closed_step=None, closed_by=None, last_step=None, closed_digest="")


def ends_earlier(change: Incident, known: Iterable[Incident]) -> bool:
    """Return whether a change ends a loss at an earlier checkpoint than known so far, or one that lasts so far."""
    for one in known:
        if one.key == change.key and change.closed_step is not None:
            return one.closed_step is None or (one.closed_by in _BY_LATER and one.closed_step > change.closed_step)
    return False


def has_ended(incident: Incident, known: Iterable[Incident]) -> bool:
    """Return whether a later checkpoint has shown that this loss is over."""
    return any(one.key == incident.key and one.closed_by in _BY_LATER for one in known)


def is_covered(incident: Incident, acceptance: Acceptance, known: Iterable[Acceptance]) -> bool:
    """Return whether an acceptance ends an incident; one of all benchmarks together with the last of those that fell.

    `known` are all acceptances of the run. Only those of results with the settings of the incident count.
    """
    fell = set(incident.benchmarks) or {incident.benchmark}
    own = [a for a in (*known, acceptance) if a.step >= incident.opened_step and _has_settings(incident, a)]
    if acceptance not in own or acceptance.benchmark not in fell or not fell <= {a.benchmark for a in own}:
        return False
    if incident.closed_step is None:
        return True
    return (incident.closed_step, incident.closed_by) == (acceptance.step, Closing.ACCEPTED)


def _has_settings(incident: Incident, acceptance: Acceptance) -> bool:
    return not acceptance.series or is_of_series(incident, {acceptance.benchmark: acceptance.series})


def accepted(incident: Incident, step: int) -> Incident:
    """Return the incident, ended by an acceptance at `step`."""
    return replace(incident, closed_step=step, closed_by=Closing.ACCEPTED)


def subject_of(incident: Incident) -> Subject:
    """Return the subject of the incident."""
    return Subject(suite=incident.suite, benchmark=incident.benchmark, subset=incident.subset, measure=incident.measure)


def _is_over(incident: Incident, step: int) -> bool:
    if incident.closed_step is None:
        return False
    if incident.closed_by is Closing.CORRECTED:
        return True  # it was none
    return incident.closed_step < step or (incident.closed_step == step and incident.closed_by is Closing.ACCEPTED)


def _was_lost(known: Iterable[Incident], step: int) -> bool:
    return any(e.last_step is not None and e.onset_step <= step <= e.last_step for e in known)
