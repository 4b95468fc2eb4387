"""`tracker.ports.HealthStore`: cursors, state, curves and incidents of one training, in one transaction."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, Engine, Table, and_, select, update

from eval_jobs.identity import content_hash
from eval_jobs.queue.changes_sql import note_run
from eval_jobs.queue.database_sql import insert_into, put_row, transaction
from eval_jobs.records.changes import ChangeKind
from tracker.adapters.database.codec import progress_columns
from tracker.adapters.database.health_tables import (
    HEALTH_CURVES,
    HEALTH_INCIDENTS,
    HEALTH_POINTS,
    HEALTH_READERS,
    HEALTH_RUNS,
    HEALTH_STREAMS,
)
from tracker.adapters.health.documents import INCIDENT, STATE, STREAM
from tracker.domain.health.stored import ReadNow, ReadSoFar, progress_of
from tracker.domain.records.training import TrainingIncident
from tracker.domain.records.types import CurvePoint

POINTS_AT_ONCE = 1000
"""Rows of one statement: their parameters take ten times the memory of the points."""


class SqlHealthStore:
    """What was read of the logs of `run` on a machine, in the database behind `engine`."""

    def __init__(self, engine: Engine, run: str, host: str = "") -> None:
        """Read nothing yet; `host` is empty on the machine of the watcher."""
        self._engine = engine
        self._run = run
        self._host = host

    def read_so_far(self) -> ReadSoFar:
        """Return what was saved last; see `ports.HealthStore`."""
        states = select(HEALTH_RUNS.c.run_id, HEALTH_RUNS.c.state).where(self._is_own(HEALTH_RUNS))
        streams = select(HEALTH_STREAMS.c.path, HEALTH_STREAMS.c.cursor).where(self._is_own(HEALTH_STREAMS))
        number_of = HEALTH_READERS.c.reader
        with transaction(self._engine) as connection:
            insert = insert_into(connection, HEALTH_READERS).values(run=self._run, host=self._host, reader=1)
            raised = insert.on_conflict_do_update(index_elements=["run", "host"], set_={"reader": number_of + 1})
            connection.execute(raised)  # first: it waits for a reader that is saving
            number = connection.execute(select(number_of).where(self._is_own(HEALTH_READERS))).scalar_one()
            runs = {row.run_id: STATE.from_json(row.state) for row in connection.execute(states)}
            read = {row.path: STREAM.from_json(row.cursor) for row in connection.execute(streams)}
        return ReadSoFar(runs=runs, streams=read, reader=number, host=self._host)

    def save(self, now: ReadNow) -> bool:
        """Store what one pass adds; see `ports.HealthStore`."""
        is_mine = self._is_own(HEALTH_READERS) & (HEALTH_READERS.c.reader == now.reader)
        with transaction(self._engine) as connection:
            # An update: the next reader waits until this one has saved.
            if not connection.execute(update(HEALTH_READERS).where(is_mine).values(reader=now.reader)).rowcount:
                return False
            self._put(connection, now)
        return True

    def _put(self, connection: Connection, now: ReadNow) -> None:
        for path, (cursor, state) in now.streams.items():
            key = content_hash([self._run, path, *filter(None, [self._host])])
            document = STREAM.to_json((cursor, state))
            log = {"run": self._run, "host": self._host, "path": path, "cursor": document}
            put_row(connection, HEALTH_STREAMS, {"key": key, **log})
        for run_id, run in now.runs.items():
            progress = progress_columns(progress_of(run_id, run, now.read_at))
            row = {
                "run": self._run,
                "host": self._host,
                "read_at": now.read_at,
                "state": STATE.to_json(run),
                **progress,
            }
            put_row(connection, HEALTH_RUNS, {"run_id": run_id, **row})
            note_run(connection, ChangeKind.PROGRESS, run_id)
        for incident in now.incidents:
            _put_incident(connection, incident)
        for run_id in {incident.run_id for incident in now.incidents}:
            note_run(connection, ChangeKind.TRAINING, run_id)
        for run_id, logged in now.points.items():
            points = self._own_points(connection, run_id, logged)
            for begin in range(0, len(points), POINTS_AT_ONCE):
                insert_points(connection, run_id, points[begin : begin + POINTS_AT_ONCE], stated=False)
            note_run(connection, ChangeKind.CURVES, run_id)

    def _own_points(self, connection: Connection, run_id: str, points: Sequence[CurvePoint]) -> Sequence[CurvePoint]:
        """Return the points of the metrics that no other machine logged before."""
        curve = HEALTH_CURVES.c
        found = select(curve.key).where(curve.run_id == run_id, curve.host == self._host)
        own = set(connection.scalars(found))
        rows = []
        for key in sorted({point.key for point in points} - own):
            rows.append({"run_id": run_id, "key": key, "host": self._host})
        if rows:
            connection.execute(insert_into(connection, HEALTH_CURVES).on_conflict_do_nothing(), rows)
            own = set(connection.scalars(found))
        return [point for point in points if point.key in own]

    def _is_own(self, table: Table) -> ColumnElement[bool]:
        return and_(table.c.run == self._run, table.c.host == self._host)


def insert_points(connection: Connection, run_id: str, points: Sequence[CurvePoint], *, stated: bool) -> None:
    """Add at most `POINTS_AT_ONCE` points; `stated`: a trainer saved them."""
    rows = []
    for point in points:
        rows.append({"run_id": run_id, "key": point.key, "step": point.step, "value": point.value, "stated": stated})
    connection.execute(HEALTH_POINTS.insert(), rows)


def _put_incident(connection: Connection, incident: TrainingIncident) -> None:
    document = INCIDENT.to_json(incident)
    changed = update(HEALTH_INCIDENTS).where(HEALTH_INCIDENTS.c.id == incident.id).values(incident=document)
    if connection.execute(changed).rowcount:
        return
    row = {"id": incident.id, "run_id": incident.run_id, "seen_at": incident.seen_at, "incident": document}
    connection.execute(HEALTH_INCIDENTS.insert().values(**row))
