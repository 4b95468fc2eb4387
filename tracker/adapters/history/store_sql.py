"""The history in a SQL database and Parquet files: all measurements and verdicts of every run.

append(record) -> samples to Parquet, the rest to one row of `history_records`, which names their version
records(run), scores(run) -> earlier records are cached in memory, so only a new record is read
outlines(run) -> narrow rows (`results_sql`): a table of thousands of checkpoints needs no documents
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Row, and_, select, union, update

from eval_jobs.codec import record_from_bytes, record_to_bytes
from eval_jobs.errors import ConfigError, StoreError
from eval_jobs.queue.changes_sql import note_changes
from eval_jobs.queue.database_sql import belongs_to, put_row, transaction
from eval_jobs.queue.migrate_sql import QUEUE_TABLES, bring_up_to_date
from eval_jobs.records.changes import ChangeKind
from eval_jobs.types import EvalRecord, EvalResult
from tracker.adapters.database.codec import to_json
from tracker.adapters.database.damaged_sql import DamagedRows
from tracker.adapters.database.results_sql import outlines_of, put_record, put_report
from tracker.adapters.database.tables import (
    GAPS,
    RECORDS,
    REPORTS,
    TRACKER_TABLES,
)
from tracker.adapters.health.history_sql import SqlTrainingHistory
from tracker.adapters.history.conclusions_sql import SqlConclusions, put_incident
from tracker.adapters.history.log_sql import SqlEventLog, add_events
from tracker.adapters.samples.kept_scores import KeptScores, StoredRecord
from tracker.adapters.samples.packed_parquet import NO_SAMPLES, SampleFiles, pack
from tracker.domain.log.events import RunEvent
from tracker.domain.records.branches import newest_of_benchmarks
from tracker.domain.records.display import count_text
from tracker.domain.records.imported import without_samples
from tracker.domain.records.losses import Measure
from tracker.domain.records.types import Report
from tracker.domain.scores.run_scores import RunScores
from tracker.domain.scores.sample_columns import SampleColumns

_RECORDED = select(RECORDS.c.record, RECORDS.c.samples)
_IN_ORDER = REPORTS.c.step, REPORTS.c.created_at, REPORTS.c.plan_id


class SqlHistory(SqlTrainingHistory, SqlConclusions, SqlEventLog):
    """`tracker.ports.History` in the database behind `engine`, samples in Parquet files under `samples_dir`."""

    def __init__(self, engine: Engine, samples_dir: Path) -> None:
        """Open the history and migrate its tables.

        Raises:
            StoreError: the database cannot be reached or written, or is newer than this program.
        """
        super().__init__(engine)
        self._samples = SampleFiles(samples_dir)
        self._records: dict[str, StoredRecord] = {}
        """Records in memory, by plan id."""
        self._scores: dict[tuple[str, tuple[Measure, ...]], KeptScores] = {}
        """Scores in memory, by run and measures."""
        self._damaged = DamagedRows()
        bring_up_to_date(engine, QUEUE_TABLES)  # with the numbers of changes
        bring_up_to_date(engine, TRACKER_TABLES)

    def append(self, record: EvalRecord) -> None:
        """Store a record; see `ports.History`."""
        plan, checkpoint = record.plan, record.plan.checkpoint
        packed = pack(record)
        row = {
            "plan_id": plan.id,
            "run_id": checkpoint.run_id,
            "step": checkpoint.step,
            "finished_at": record.finished_at,
            "record": record_to_bytes(without_samples(record)),
            "samples": packed.version,
        }
        with transaction(self._engine) as connection:
            # The row is locked against other writers of this plan. It becomes visible after its files are written.
            put_row(connection, RECORDS, row)
            put_record(connection, record)
            self._samples.write(packed)
            note_changes(connection, ChangeKind.EVALUATION, [(plan.id, checkpoint.run_id)])
        self._records.pop(plan.id, None)
        if self._samples.has_other_files(plan.id, packed.version):
            self._remove_replaced(plan.id)

    def record(self, plan_id: str, benchmarks: Collection[str] | None = None) -> EvalRecord | None:
        """Return one record with its texts; see `ports.History`."""
        stored = self._one(plan_id)
        while stored is not None:
            try:
                return self._with_samples(stored, benchmarks)
            except StoreError:
                newer = self._one(plan_id)
                if newer == stored:
                    raise
                stored = newer  # replaced while its files were read
        return None

    def bare_record(self, plan_id: str) -> EvalRecord | None:
        """Return one record without samples; see `ports.History`."""
        stored = self._one(plan_id)
        return None if stored is None else stored.record

    def records(self, run_id: str) -> tuple[EvalRecord, ...]:
        """Return the run's records without samples; see `ports.History`."""
        return tuple(stored.record for stored in self._stored(run_id))

    def scores(
        self, run_id: str, measures: tuple[Measure, ...] = tuple(Measure), steps: Collection[int] | None = None
    ) -> RunScores:
        """Return all scores of the run; see `ports.History`."""
        kept = KeptScores(run_id, self._reader_of(measures), measures)
        if steps is None:
            kept = self._scores.setdefault((run_id, measures), kept)
        stored = self._stored(run_id, steps)
        while True:
            try:
                return kept.brought_up_to(stored)
            except StoreError:
                newer = self._stored(run_id, steps)
                if newer == stored:
                    raise
                stored = newer  # replaced while its files were read

    def texts(self, run_id: str) -> Mapping[str, int]:
        """Return the size of the answers of every plan, in bytes; see `ports.History`."""
        plans = (stored.record.plan.id for stored in self._stored(run_id))
        return {plan_id: size for plan_id in plans if (size := self._samples.answers_bytes(plan_id))}

    def forget_texts(self, plan_id: str) -> None:
        """Delete the answers of a plan; see `ports.History`."""
        with transaction(self._engine) as connection:
            if self._engine.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN IMMEDIATE")  # locks without writing: the disk may be full
            else:
                _hold(connection, plan_id)
            self._samples.forget_answers(plan_id)

    def append_reports(self, *reports: Report, events: Iterable[RunEvent] = ()) -> None:
        """Store reports with their incidents and events; see `ports.History`."""
        with transaction(self._engine) as connection:
            for report in reports:
                row = {
                    "plan_id": report.plan_id,
                    "run_id": report.run_id,
                    "step": report.step,
                    "created_at": report.created_at,
                    "report": to_json(report),
                }
                put_row(connection, REPORTS, row)
                put_report(connection, report)
                for incident in report.incidents:
                    put_incident(connection, incident)
                note_changes(connection, ChangeKind.EVALUATION, [(report.plan_id, report.run_id)])
            add_events(connection, events)

    def report(self, plan_id: str) -> Report | None:
        """Return one report; see `ports.History`."""
        return next(iter(self._read(Report, REPORTS.c.report, REPORTS.c.plan_id == plan_id)), None)

    def reports(self, run_id: str) -> tuple[Report, ...]:
        """Return the run's reports; see `ports.History`."""
        return self._read(Report, REPORTS.c.report, REPORTS.c.run_id == run_id, _IN_ORDER)

    def outlines(self, run_id: str) -> tuple[Report, ...]:
        """Return the run's reports without most of their evidence; see `ports.History`."""
        with transaction(self._engine) as connection:
            drafts = outlines_of(connection, run_id)
            newest = REPORTS.c.plan_id.in_(newest_of_benchmarks(drafts))
            whole = {report.plan_id: report for report in self._read_on(connection, Report, REPORTS.c.report, newest)}
        return tuple(whole.get(draft.plan_id, draft) for draft in drafts)

    def runs(self) -> tuple[str, ...]:
        """Return all runs; see `ports.History`."""
        query = union(select(RECORDS.c.run_id), select(GAPS.c.run_id))
        with transaction(self._engine) as connection:
            return tuple(sorted(connection.scalars(query)))

    def _one(self, plan_id: str) -> StoredRecord | None:
        with transaction(self._engine) as connection:
            return next(self._parsed(connection, RECORDS.c.plan_id == plan_id), None)

    def _parsed(self, connection: Connection, which: ColumnElement[bool]) -> Iterator[StoredRecord]:
        return self._damaged.readable(connection, _RECORDED.where(which), _stored_record, RECORDS)

    def _stored(self, run_id: str, steps: Collection[int] | None = None) -> tuple[StoredRecord, ...]:
        query = (
            select(RECORDS.c.plan_id, RECORDS.c.finished_at, RECORDS.c.samples)
            .where(RECORDS.c.run_id == run_id)
            .order_by(RECORDS.c.step, RECORDS.c.finished_at, RECORDS.c.plan_id)
        )
        with transaction(self._engine) as connection:
            known = connection.execute(query).all()
            stale = [row.plan_id for row in known if not self._is_kept(row.plan_id, row.finished_at, row.samples)]
            for plan_id in stale:
                self._records.pop(plan_id, None)
            for stored in self._parsed(connection, RECORDS.c.plan_id.in_(stale)):
                self._records[stored.record.plan.id] = stored
        found = (self._records[row.plan_id] for row in known if row.plan_id in self._records)
        return tuple(s for s in found if steps is None or s.record.plan.checkpoint.step in steps)

    def _is_kept(self, plan_id: str, finished_at: datetime, samples: str) -> bool:
        """Return whether the record in memory is the stored one; another process may have replaced it."""
        kept = self._records.get(plan_id)
        return kept is not None and (kept.record.finished_at, kept.samples) == (finished_at, samples)

    def _reader_of(self, measures: tuple[Measure, ...]) -> Callable[[StoredRecord], Mapping[str, SampleColumns]]:
        only_scores = measures == (Measure.SCORE,)

        def columns(stored: StoredRecord) -> Mapping[str, SampleColumns]:
            return self._samples.columns(stored.record.plan.id, stored.samples, only_scores=only_scores)

        return columns

    def _with_samples(self, stored: StoredRecord, benchmarks: Collection[str] | None) -> EvalRecord:
        record = stored.record
        found = self._samples.samples(record.plan.id, stored.samples, benchmarks)
        outcomes = tuple(
            replace(o, samples=found[o.benchmark].samples, has_texts=found[o.benchmark].has_texts)
            if isinstance(o, EvalResult) and o.benchmark in found
            else o
            for o in record.outcomes
        )
        return replace(record, outcomes=outcomes)

    def _remove_replaced(self, plan_id: str) -> None:
        """Delete the files that no row refers to: of a record that was replaced, or of a process that was killed."""
        with transaction(self._engine) as connection:
            if (version := _hold(connection, plan_id)) is not None:
                self._samples.remove_others(plan_id, version)


def demand_samples(engine: Engine, samples_dir: Path, run: str) -> None:
    """Refuse a folder without any of the stored samples of `run` and its sub-folders.

    Raises:
        ConfigError: the files of the run are in another folder; with this one no verdict could be computed.
        StoreError: the database cannot be read.
    """
    has_files = and_(RECORDS.c.samples.is_not(None), RECORDS.c.samples != NO_SAMPLES)
    query = select(RECORDS.c.plan_id).where(belongs_to(RECORDS.c.run_id, run), has_files)
    with transaction(engine) as connection:
        plan_ids = connection.scalars(query).all()
    if plan_ids and not any((samples_dir / plan_id).is_dir() for plan_id in plan_ids):
        raise ConfigError(
            f"no answers in {samples_dir} for the {count_text(len(plan_ids), 'result')} of run {run} in the database",
            hint="set run.state_dir to the previous folder, or set another run.name",
        )


def _hold(connection: Connection, plan_id: str) -> str | None:
    """Lock the row of a plan, and so its files, until the transaction ends; return the version of its samples."""
    held = update(RECORDS).where(RECORDS.c.plan_id == plan_id).values(samples=RECORDS.c.samples)
    return connection.execute(held.returning(RECORDS.c.samples)).scalar()


def _stored_record(row: Row[Any]) -> StoredRecord:
    return StoredRecord(record=record_from_bytes(row.record), samples=row.samples)
