"""Recorded runs as a report gets them."""

from __future__ import annotations

from datetime import UTC, datetime

from dashboards.ledger import LOST_SAMPLES
from dashboards.run_data import RunData, newest_records
from tests.records import RecordedRun, scores_of_run, without_samples
from tracker.domain.forgetting.ledger import run_ledger
from tracker.domain.forgetting.texts import with_texts
from tracker.domain.types import Policy


def run_data(run: RecordedRun, *, unfinished: int = 0) -> RunData:
    """Return the data of a report of `run`, with the texts of all samples at hand."""
    full = {record.plan.id: record for record in run.records}
    scores = scores_of_run(run)
    ledger = run_ledger(scores, Policy(phases=run.phases), details=LOST_SAMPLES)
    return RunData(
        run_id=run.run_id,
        records=newest_records(map(without_samples, run.records)),
        scores=scores,
        reports=run.reports,
        episodes=run.episodes,
        acceptances=run.acceptances,
        gaps=run.gaps,
        curves=run.curves,
        phases=run.phases,
        texts=full,
        ledger=with_texts(ledger, lambda plan_id, _: full.get(plan_id)),
        unfinished=unfinished,
        made_at=datetime(2026, 3, 14, 12, 0, tzinfo=UTC),
    )
