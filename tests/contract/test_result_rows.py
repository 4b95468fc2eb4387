"""The narrow rows of results and verdicts equal the records and reports, in whatever order they came."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import Engine, text

from eval_jobs.queue.database_sql import open_database, transaction
from eval_jobs.types import EvalRecord, EvalResult
from tests.records import forgetting_run, without_samples
from tracker.adapters.database.tables import EVALUATIONS, JUDGED, MEASURED, SUBJECTS
from tracker.adapters.history.store_sql import SqlHistory
from tracker.adapters.history.tables_sql import ResultTables
from tracker.domain.records.losses import Measure
from tracker.domain.records.types import Report, VerdictWord
from tracker.domain.tables.results import JudgedRow, MeasuredRow, judged_rows, measured_rows, with_scores_of

RECORDED = forgetting_run(checkpoints=4, samples=6)
Rows = dict[str, list[dict[str, object]]]
"""By plan."""


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    url = f"sqlite:///{tmp_path}/tracker.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    engine = open_database(url)
    yield engine
    engine.dispose()


def stored(engine: Engine, *, verdicts: bool) -> Rows:
    """Return what is read back, as the fields of `MeasuredRow` or `JudgedRow`."""
    tables = ResultTables(engine)
    rows = tables.verdicts() if verdicts else tables.results()
    columns, subjects, evaluations = rows.columns, rows.subjects, {e.number: e for e in rows.evaluations}
    found: Rows = {e.plan_id: [] for e in evaluations.values()}
    for values in zip(*columns.values(), strict=True):
        row = {name: _plain(value) for name, value in zip(columns, values, strict=True)}
        of_subject = subjects[int(str(row.pop("subject")))]._asdict()
        plan = evaluations[int(str(row.pop("evaluation")))].plan_id
        assert row.pop("position") == len(found[plan])
        found[plan].append({**of_subject, **row})
    return found


def _plain(value: object) -> object:
    if isinstance(value, float):
        return None if np.isnan(value) else int(value) if value == int(value) else float(value)
    return value


def rows_of(plan_rows: Mapping[str, Sequence[MeasuredRow] | Sequence[JudgedRow]]) -> Rows:
    """Return the fields of rows by plan, without those that are stored as documents."""
    found: Rows = {}
    for plan, rows in plan_rows.items():
        found[plan] = [{n: v for n, v in asdict(row).items() if n not in ("missing", "screened")} for row in rows]
    return found


def with_columns_of(found: Rows, expected: Rows) -> Rows:
    """Return what was found in the columns that are expected, for the plans that have rows."""
    names = {name for rows in expected.values() for row in rows for name in row}
    return {plan: [{n: row[n] for n in row if n in names} for row in rows] for plan, rows in found.items() if rows}


def changed(record: EvalRecord, later_s: float) -> EvalRecord:
    """The same plan again: other scores, one result fewer."""
    first, *others = record.outcomes
    if isinstance(first, EvalResult):
        first = replace(first, samples=first.samples[:3], duration_s=2.5)
    outcomes = (first, *others[:-1])
    return replace(record, outcomes=outcomes, finished_at=record.finished_at + timedelta(seconds=later_s))


def judged_again(report: Report, later_s: float) -> Report:
    """Another verdict, and findings on a subset and on the checkpoint as a whole."""
    first, *others = report.verdicts
    found = (
        replace(first, subset="\u5386\u53f2 \ud800", word=VerdictWord.REGRESSED),
        replace(first, benchmark="", word=VerdictWord.TRANSIENT),
        replace(first, measure=Measure.COMPLETENESS),
    )
    verdicts = (replace(first, word=VerdictWord.SUSPECT), *others)
    return replace(report, verdicts=verdicts, findings=found, created_at=report.created_at + timedelta(seconds=later_s))


@pytest.mark.parametrize("seed", range(3))
def test_rows_equal_the_newest_records_and_reports_in_any_order(engine: Engine, tmp_path: Path, seed: int) -> None:
    history = SqlHistory(engine, tmp_path / "samples")
    records: dict[str, EvalRecord] = {}
    reports: dict[str, Report] = {}
    steps: list[EvalRecord | Report] = [*RECORDED.records, *RECORDED.reports]
    steps += [changed(r, 9.0) for r in RECORDED.records[:2]] + [judged_again(r, 9.0) for r in RECORDED.reports[1:]]
    np.random.default_rng(seed).shuffle(steps)
    for one in steps:
        if isinstance(one, EvalRecord):
            history.append(one)
            records[one.plan.id] = one
        else:
            history.append_reports(one)
            reports[one.plan_id] = one
    measured = rows_of({plan: measured_rows(record) for plan, record in records.items()})
    judged = rows_of({plan: judged_rows(report) for plan, report in reports.items()})
    assert with_columns_of(stored(engine, verdicts=False), measured) == measured
    assert with_columns_of(stored(engine, verdicts=True), judged) == judged


def test_a_database_of_an_older_version_gets_the_rows_of_what_it_holds(engine: Engine, tmp_path: Path) -> None:
    history = SqlHistory(engine, tmp_path / "samples")
    for record in RECORDED.records:
        history.append(record)
    for report in RECORDED.reports[:-1]:
        history.append_reports(report)
    before = stored(engine, verdicts=True), history.outlines(RECORDED.run_id)
    with transaction(engine) as connection:
        for table in (EVALUATIONS, SUBJECTS, MEASURED, JUDGED):
            table.drop(connection)
        connection.execute(text("CREATE TABLE history_outlines (plan_id VARCHAR(64), outline TEXT)"))
        connection.execute(text("UPDATE checkpoint_tracker_version SET version_num = '0002'"))
    history = SqlHistory(engine, tmp_path / "samples")
    assert (stored(engine, verdicts=True), history.outlines(RECORDED.run_id)) == before
    without_counts = {}
    verdicts = [*(report.verdicts for report in RECORDED.reports[:-1]), ()]
    for record, known in zip(RECORDED.records, verdicts, strict=True):
        without_counts[record.plan.id] = with_scores_of(measured_rows(without_samples(record)), known)
    expected = rows_of(without_counts)
    assert with_columns_of(stored(engine, verdicts=False), expected) == expected
    assert any(row["score"] for rows in expected.values() for row in rows)
