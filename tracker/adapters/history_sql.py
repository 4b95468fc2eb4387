"""The history in a SQL database and Parquet files: everything that was measured and concluded of every run.

append(record) -> samples to Parquet, the rest to one row of `history_records`
records(run), scores(run) -> what was read before is kept in memory, so one new record reads one record
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Index,
    LargeBinary,
    MetaData,
    Select,
    String,
    Table,
    Text,
    select,
    union,
)

from eval_jobs.codec import record_from_bytes, record_to_bytes
from eval_jobs.identity import content_hash
from eval_jobs.queue.database_sql import insert_into, transaction
from eval_jobs.queue.migrate_sql import bring_up_to_date
from eval_jobs.queue.sql_queue import UtcText
from eval_jobs.types import EvalRecord, EvalResult
from tracker.adapters.codec import from_json, to_json
from tracker.adapters.kept_scores import KeptScores
from tracker.adapters.samples_parquet import read_samples, samples_path, write_samples
from tracker.adapters.tables import TRACKER_TABLES
from tracker.domain.run_scores import RunScores
from tracker.domain.types import Acceptance, Alert, AlertState, Closing, Episode, Gap, Report

METADATA = MetaData()
RECORDS = Table(
    "history_records",
    METADATA,
    Column("plan_id", String(64), primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("finished_at", UtcText, nullable=False),
    Column("record", LargeBinary, nullable=False),
    Index("history_records_by_run", "run_id", "step"),
)
REPORTS = Table(
    "history_reports",
    METADATA,
    Column("plan_id", String(64), primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("created_at", UtcText, nullable=False),
    Column("report", Text, nullable=False),
    Index("history_reports_by_run", "run_id", "step"),
)
EPISODES = Table(
    "history_episodes",
    METADATA,
    # A hash: names of benchmarks and subsets may be longer than an index can hold.
    Column("key", String(64), primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("opened_step", BigInteger, nullable=False),
    Column("episode", Text, nullable=False),
    Index("history_episodes_by_run", "run_id", "opened_step"),
)
ACCEPTANCES = Table(
    "history_acceptances",
    METADATA,
    Column("key", String(64), primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("acceptance", Text, nullable=False),
    Index("history_acceptances_by_run", "run_id", "step"),
)
GAPS = Table(
    "history_gaps",
    METADATA,
    Column("run_id", Text, primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("code", String(64), primary_key=True),
    Column("gap", Text, nullable=False),
)
ALERTS = Table(
    "history_alerts",
    METADATA,
    Column("fingerprint", String(64), primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("alert", Text, nullable=False),
    Index("history_alerts_by_run", "run_id", "state"),
)


class SqlHistory:
    """`tracker.ports.History` in the database behind `engine`, samples in Parquet files under `samples_dir`."""

    def __init__(self, engine: Engine, samples_dir: Path) -> None:
        """Open the history; its tables are brought up to date.

        Raises:
            StoreError: the database cannot be reached or written, or is newer than this program.
        """
        self._engine = engine
        self._samples_dir = samples_dir
        self._records: dict[str, EvalRecord] = {}
        """Records of `records` by plan id."""
        self._scores: dict[str, KeptScores] = {}
        """By run."""
        bring_up_to_date(engine, TRACKER_TABLES)

    def append(self, record: EvalRecord) -> None:
        """Store a record; see `ports.History`."""
        plan, checkpoint = record.plan, record.plan.checkpoint
        # Samples first: a row never stands without them, and files without a row are replaced by the next try.
        for outcome in record.outcomes:
            if isinstance(outcome, EvalResult):
                write_samples(samples_path(self._samples_dir, plan.id, outcome.benchmark), outcome.samples)
        row = {
            "plan_id": plan.id,
            "run_id": checkpoint.run_id,
            "step": checkpoint.step,
            "finished_at": record.finished_at,
            "record": record_to_bytes(_without_samples(record)),
        }
        with transaction(self._engine) as connection:
            _put(connection, RECORDS, row)
        self._records.pop(plan.id, None)

    def record(self, plan_id: str) -> EvalRecord | None:
        """Return one record with its texts; see `ports.History`."""
        return self._one(select(RECORDS.c.record).where(RECORDS.c.plan_id == plan_id))

    def find_record(self, run_id: str, step: int) -> EvalRecord | None:
        """Return the newest record of a step with its texts; see `ports.History`."""
        query = select(RECORDS.c.record).where(RECORDS.c.run_id == run_id, RECORDS.c.step == step)
        return self._one(query.order_by(RECORDS.c.finished_at.desc(), RECORDS.c.plan_id.desc()).limit(1))

    def records(self, run_id: str) -> tuple[EvalRecord, ...]:
        """Return the run's records without samples; see `ports.History`."""
        query = (
            select(RECORDS.c.plan_id, RECORDS.c.finished_at)
            .where(RECORDS.c.run_id == run_id)
            .order_by(RECORDS.c.step, RECORDS.c.finished_at, RECORDS.c.plan_id)
        )
        with transaction(self._engine) as connection:
            known = {row.plan_id: row.finished_at for row in connection.execute(query)}
            stale = [plan_id for plan_id, finished_at in known.items() if not self._is_kept(plan_id, finished_at)]
            rows = connection.execute(select(RECORDS.c.record).where(RECORDS.c.plan_id.in_(stale))).scalars().all()
        for data in rows:
            record = record_from_bytes(data)
            self._records[record.plan.id] = record
        return tuple(self._records[plan_id] for plan_id in known)

    def scores(self, run_id: str) -> RunScores:
        """Return everything that was scored along the run; see `ports.History`."""
        kept = self._scores.setdefault(run_id, KeptScores(run_id, self._samples_dir))
        return kept.brought_up_to(self.records(run_id))

    def append_report(self, report: Report) -> None:
        """Store a report; see `ports.History`."""
        row = {
            "plan_id": report.plan_id,
            "run_id": report.run_id,
            "step": report.step,
            "created_at": report.created_at,
            "report": to_json(report),
        }
        with transaction(self._engine) as connection:
            _put(connection, REPORTS, row)

    def reports(self, run_id: str) -> tuple[Report, ...]:
        """Return the run's reports; see `ports.History`."""
        query = select(REPORTS.c.report).where(REPORTS.c.run_id == run_id)
        query = query.order_by(REPORTS.c.step, REPORTS.c.created_at, REPORTS.c.plan_id)
        return tuple(from_json(Report, text) for text in self._texts(query))

    def append_episode(self, episode: Episode) -> None:
        """Store an episode; see `ports.History`."""
        e = episode
        row = {
            "key": content_hash([e.run_id, e.suite, e.benchmark, e.subset, e.measure, e.opened_step]),
            "run_id": e.run_id,
            "opened_step": e.opened_step,
            "episode": to_json(e),
        }
        with transaction(self._engine) as connection:
            known = connection.scalar(select(EPISODES.c.episode).where(EPISODES.c.key == row["key"]))
            stays = known is not None and from_json(Episode, known).closed_by is Closing.ACCEPTED
            if not stays or e.closed_by is Closing.ACCEPTED:
                _put(connection, EPISODES, row)

    def episodes(self, run_id: str) -> tuple[Episode, ...]:
        """Return the run's episodes; see `ports.History`."""
        texts = self._texts(select(EPISODES.c.episode).where(EPISODES.c.run_id == run_id))
        # Sorted here: databases order names each in their own way.
        found = (from_json(Episode, text) for text in texts)
        return tuple(sorted(found, key=lambda e: (e.opened_step, e.benchmark, e.subset, e.suite, e.measure)))

    def append_acceptance(self, acceptance: Acceptance) -> None:
        """Store an acceptance; see `ports.History`."""
        row = {
            "key": content_hash([acceptance.run_id, acceptance.step, acceptance.benchmark]),
            "run_id": acceptance.run_id,
            "step": acceptance.step,
            "acceptance": to_json(acceptance),
        }
        with transaction(self._engine) as connection:
            _put(connection, ACCEPTANCES, row)

    def acceptances(self, run_id: str) -> tuple[Acceptance, ...]:
        """Return the run's acceptances; see `ports.History`."""
        texts = self._texts(select(ACCEPTANCES.c.acceptance).where(ACCEPTANCES.c.run_id == run_id))
        found = (from_json(Acceptance, text) for text in texts)
        return tuple(sorted(found, key=lambda a: (a.step, a.benchmark)))

    def append_gap(self, gap: Gap) -> bool:
        """Store a gap that is new; see `ports.History`."""
        row = {"run_id": gap.run_id, "step": gap.step, "code": gap.code, "gap": to_json(gap)}
        with transaction(self._engine) as connection:
            # The row that comes back is the proof; drivers do not count inserted rows alike.
            insert = insert_into(connection, GAPS).values(row).on_conflict_do_nothing().returning(GAPS.c.step)
            return connection.execute(insert).first() is not None

    def gaps(self, run_id: str) -> tuple[Gap, ...]:
        """Return the run's gaps; see `ports.History`."""
        query = select(GAPS.c.gap).where(GAPS.c.run_id == run_id).order_by(GAPS.c.step, GAPS.c.code)
        return tuple(from_json(Gap, text) for text in self._texts(query))

    def append_alert(self, alert: Alert) -> None:
        """Store the newest state of an alert; see `ports.History`."""
        row = {
            "fingerprint": alert.fingerprint,
            "run_id": alert.run_id,
            "step": alert.step,
            "state": alert.state,
            "alert": to_json(alert),
        }
        with transaction(self._engine) as connection:
            _put(connection, ALERTS, row)

    def open_alerts(self, run_id: str) -> tuple[Alert, ...]:
        """Return the run's firing alerts; see `ports.History`."""
        query = select(ALERTS.c.alert).where(ALERTS.c.run_id == run_id, ALERTS.c.state == AlertState.FIRING)
        return tuple(
            from_json(Alert, text) for text in self._texts(query.order_by(ALERTS.c.step, ALERTS.c.fingerprint))
        )

    def runs(self) -> tuple[str, ...]:
        """Return all runs; see `ports.History`."""
        query = union(select(RECORDS.c.run_id), select(GAPS.c.run_id))
        with transaction(self._engine) as connection:
            return tuple(sorted(connection.scalars(query)))

    # --- private

    def _one(self, query: Select[bytes]) -> EvalRecord | None:
        with transaction(self._engine) as connection:
            data = connection.scalar(query)
        return None if data is None else self._with_samples(record_from_bytes(data))

    def _texts(self, query: Select[str]) -> tuple[str, ...]:
        with transaction(self._engine) as connection:
            return tuple(connection.scalars(query))

    def _is_kept(self, plan_id: str, finished_at: datetime) -> bool:
        """Return whether the record in memory is the stored one; another process may have replaced it."""
        kept = self._records.get(plan_id)
        return kept is not None and kept.finished_at == finished_at

    def _with_samples(self, record: EvalRecord) -> EvalRecord:
        folder, plan_id = self._samples_dir, record.plan.id
        outcomes = tuple(
            replace(o, samples=read_samples(samples_path(folder, plan_id, o.benchmark)))
            if isinstance(o, EvalResult)
            else o
            for o in record.outcomes
        )
        return replace(record, outcomes=outcomes)


def _without_samples(record: EvalRecord) -> EvalRecord:
    outcomes = tuple(replace(o, samples=()) if isinstance(o, EvalResult) else o for o in record.outcomes)
    return replace(record, outcomes=outcomes)


def _put(connection: Connection, table: Table, row: Mapping[str, object]) -> None:
    """Insert a row, or replace the one with the same key."""
    connection.execute(
        insert_into(connection, table).values(row).on_conflict_do_update(index_elements=table.primary_key, set_=row)
    )
