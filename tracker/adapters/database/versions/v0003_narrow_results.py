"""Results and verdicts in narrow rows, instead of outlines of reports."""

import logging

import sqlalchemy as sa
from alembic import op

from eval_jobs.codec import record_from_bytes
from eval_jobs.errors import StoreError
from tracker.adapters.database.codec import from_json
from tracker.adapters.database.columns import METADATA
from tracker.adapters.database.results_sql import put_measured, put_report
from tracker.adapters.database.tables import EVALUATIONS, JUDGED, MEASURED, RECORDS, REPORTS, SUBJECTS
from tracker.domain.records.types import Report
from tracker.domain.tables.results import measured_rows, with_scores_of

revision = "0003"
down_revision = "0002"

log = logging.getLogger(__name__)


def upgrade() -> None:
    """Create the tables, and fill them from the stored records and reports."""
    connection = op.get_bind()
    METADATA.create_all(connection, [EVALUATIONS, SUBJECTS, MEASURED, JUDGED])
    query = sa.select(RECORDS.c.record, REPORTS.c.report).outerjoin(REPORTS, REPORTS.c.plan_id == RECORDS.c.plan_id)
    for row in connection.execute(query.execution_options(yield_per=50)):
        _fill(connection, row.record, row.report)
    connection.execute(sa.text("DROP TABLE IF EXISTS history_outlines"))


def _fill(connection: sa.Connection, stored: bytes, judged: str | None) -> None:
    try:
        record = record_from_bytes(stored)
        report = None if judged is None else from_json(Report, judged)
    except StoreError as error:
        log.warning("%s and is left out; hint: %s", error.message, error.hint)
        return
    rows = measured_rows(record)
    if report is not None:
        rows = with_scores_of(rows, report.verdicts)
        put_report(connection, report)
    put_measured(connection, record, rows)
