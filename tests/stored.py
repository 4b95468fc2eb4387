"""Recorded runs in a history."""

from tests.records import RecordedRun
from tracker.ports import History


def store_run(history: History, run: RecordedRun) -> None:
    """Append the records, reports, gaps and incidents of a run to a history."""
    for record in run.records:
        history.append(record)
    for report in run.reports:
        history.append_reports(report)
    for gap in run.gaps:
        history.append_gap(gap)
    for incident in run.incidents:
        history.append_incident(incident)
