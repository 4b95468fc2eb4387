"""Recorded runs as a report gets them."""

from __future__ import annotations

from datetime import UTC, datetime

from dashboards.run_data import RunData, newest_records
from tests.records import RecordedRun


def run_data(run: RecordedRun, *, unfinished: int = 0) -> RunData:
    """Return the data of a report of `run`, with the texts of all samples at hand."""
    return RunData(
        run_id=run.run_id,
        records=newest_records(run.without_texts()),
        reports=run.reports,
        gaps=run.gaps,
        curves=run.curves,
        phases=run.phases,
        texts={record.plan.id: record for record in run.records},
        unfinished=unfinished,
        made_at=datetime(2026, 3, 14, 12, 0, tzinfo=UTC),
    )
