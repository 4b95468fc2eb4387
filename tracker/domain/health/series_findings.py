"""What the numbers of a run show, as incidents: where each was seen first, and what else was read then. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from tracker.domain.health.hints import hint_of_finding
from tracker.domain.health.logs.streams import Stream
from tracker.domain.health.run_state import RunState
from tracker.domain.health.series_incidents import SeenFinding, finding_key, incident_of
from tracker.domain.records.training import TrainingIncident


def incidents_of_findings(
    state: RunState, stream: Stream, said: Mapping[str, tuple[str, str]]
) -> tuple[TrainingIncident, ...]:
    """Return what the numbers show; `stream`: the log that was read last, `said`: title and hint of users' classes."""
    shown = []
    for finding in state.findings:
        new = SeenFinding(
            stream=stream.name, at=stream.read_at, is_history=stream.is_history, branch=state.starts.branch
        )
        seen = state.seen.setdefault(finding_key(finding), new)
        found = incident_of(finding, state.run_id, seen, said.get(finding.name))
        joint = hint_of_finding(state, finding)
        shown.append(replace(found, hint=f"{joint}; {found.hint}") if joint else found)
    return tuple(shown)


def keep_recent_findings(state: RunState, recent: Collection[str]) -> None:
    """Note that what lasts and was seen in one of the `recent` logs is no history."""
    for finding in state.findings:
        key = finding_key(finding)
        seen = state.seen.get(key)
        if finding.over_step is None and seen is not None and seen.stream in recent:
            state.seen[key] = replace(seen, is_history=False)


def forget_taken_findings(state: RunState) -> None:
    """Forget the findings that were stored and are over."""
    for series in (state.series, state.unnumbered):
        for finding in series.taken():
            state.seen.pop(finding_key(finding), None)
