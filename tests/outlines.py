"""Outlines of reports as the history gives them, without a history."""

from sqlalchemy import create_engine

from tracker.adapters.database.columns import METADATA
from tracker.adapters.database.results_sql import outlines_of, put_report
from tracker.domain.records.types import Report


def stored_outline(report: Report) -> Report:
    """Store a report, and return its outline."""
    engine = create_engine("sqlite://")
    METADATA.create_all(engine)
    with engine.begin() as connection:
        put_report(connection, report)
        (outline,) = outlines_of(connection, report.run_id)
    engine.dispose()
    return outline
