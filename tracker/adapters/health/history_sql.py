"""`tracker.ports.TrainingHistory`: what the logs of all runs say, for those who show it."""

import logging
from collections.abc import Sequence

from sqlalchemy import Engine, Row, or_, select, update

from eval_jobs.errors import ConfigError, StoreError
from eval_jobs.queue.changes_sql import changes_since, note_run, position_now
from eval_jobs.queue.database_sql import belongs_to, transaction
from eval_jobs.records.changes import Change, ChangeKind
from tracker.adapters.database.codec import summary_from_json
from tracker.adapters.database.health_tables import HEALTH_INCIDENTS, HEALTH_POINTS, HEALTH_RUNS
from tracker.adapters.health.documents import DISMISSAL, INCIDENT
from tracker.adapters.health.store_sql import POINTS_AT_ONCE, insert_points
from tracker.domain.health.stored import RunProgress, merged_progress
from tracker.domain.records.training import TrainingIncident, as_dismissed, dismissal_of
from tracker.domain.records.types import CurvePoint

log = logging.getLogger(__name__)

_OF_PROGRESS = (
    *(HEALTH_RUNS.c[name] for name in ("run_id", "read_at", "last_step", "productive_share", "usual_s")),
    HEALTH_RUNS.c.progress.label("state"),
    HEALTH_RUNS.c.summary,
)
_STORED = select(HEALTH_INCIDENTS.c.incident, HEALTH_INCIDENTS.c.dismissed)


class SqlTrainingHistory:
    """Incidents and curves in the database behind `engine`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def position(self) -> str:
        """Return the position from which on changes are new; see `ports.Changes`."""
        return position_now(self._engine)

    def changes(self, position: str) -> tuple[str, tuple[Change, ...]]:
        """Return what changed since; see `ports.Changes`."""
        return changes_since(self._engine, position)

    def followed_runs(self) -> tuple[str, ...]:
        """Return the runs whose logs were read; see `ports.TrainingHistory`."""
        with transaction(self._engine) as connection:
            return tuple(connection.scalars(select(HEALTH_RUNS.c.run_id).distinct().order_by(HEALTH_RUNS.c.run_id)))

    def progress(self, run: str) -> tuple[RunProgress, ...]:
        """Return how a run stands; see `ports.TrainingHistory`."""
        by_run = HEALTH_RUNS.c.run_id, HEALTH_RUNS.c.host
        query = select(*_OF_PROGRESS).where(belongs_to(HEALTH_RUNS.c.run_id, run)).order_by(*by_run)
        with transaction(self._engine) as connection:
            rows = connection.execute(query).mappings().all()
        found: dict[str, list[RunProgress]] = {}
        for row in rows:
            one = RunProgress(**{**row, "summary": summary_from_json(row["summary"])})
            found.setdefault(one.run_id, []).append(one)
        return tuple(map(merged_progress, found.values()))

    def training_incidents(self, run_id: str) -> tuple[TrainingIncident, ...]:
        """Return the incidents of a run; see `ports.TrainingHistory`."""
        of_run = HEALTH_INCIDENTS.c.run_id == run_id
        if "/" in run_id:
            of_run = or_(of_run, HEALTH_INCIDENTS.c.run_id == run_id.partition("/")[0])
        query = _STORED.where(of_run).order_by(HEALTH_INCIDENTS.c.seen_at, HEALTH_INCIDENTS.c.id)
        with transaction(self._engine) as connection:
            rows = connection.execute(query).all()
        found: list[TrainingIncident] = []
        for row in rows:
            try:
                found.append(_incident(row))
            except StoreError as error:
                log.warning("an incident of %s is left out: %s", run_id, error)
        return tuple(found)

    def dismiss(self, incident_id: str, reason: str) -> TrainingIncident:
        """Close an incident; see `ports.TrainingHistory`."""
        with transaction(self._engine) as connection:
            of_id = HEALTH_INCIDENTS.c.id == incident_id
            row = connection.execute(_STORED.where(of_id)).one_or_none()
            if row is None:
                raise ConfigError(f"no incident {incident_id!r}", hint="see `tracker incidents` for the ids")
            incident = INCIDENT.from_json(row.incident)
            dismissal = dismissal_of(incident, reason)
            document = DISMISSAL.to_json(dismissal)
            connection.execute(update(HEALTH_INCIDENTS).where(of_id).values(dismissed=document))
            note_run(connection, ChangeKind.TRAINING, incident.run_id)
        return as_dismissed(incident, dismissal)

    def logged_points(self, run_id: str, after: int = 0) -> tuple[int, tuple[CurvePoint, ...]]:
        """Return the points of a run's curves; see `ports.TrainingHistory`."""
        return self._points(run_id, after, stated=False)

    def stated_points(self, run_id: str) -> tuple[CurvePoint, ...]:
        """Return what was saved of a run's curves; see `ports.TrainingHistory`."""
        return self._points(run_id, 0, stated=True)[1]

    def append_stated_points(self, run_id: str, points: Sequence[CurvePoint]) -> None:
        """Store what a trainer saved; see `ports.TrainingHistory`."""
        with transaction(self._engine) as connection:
            for begin in range(0, len(points), POINTS_AT_ONCE):
                insert_points(connection, run_id, points[begin : begin + POINTS_AT_ONCE], stated=True)
            note_run(connection, ChangeKind.CURVES, run_id)

    def _points(self, run_id: str, after: int, *, stated: bool) -> tuple[int, tuple[CurvePoint, ...]]:
        table = HEALTH_POINTS.c
        which = table.run_id == run_id, table.stated == stated, table.id > after
        with transaction(self._engine) as connection:
            rows = connection.execute(select(HEALTH_POINTS).where(*which).order_by(table.id)).all()
        points = tuple(CurvePoint(key=row.key, step=row.step, value=row.value) for row in rows)
        return (rows[-1].id if rows else after), points


def _incident(row: Row[str, str | None]) -> TrainingIncident:
    dismissal = None if row.dismissed is None else DISMISSAL.from_json(row.dismissed)
    return as_dismissed(INCIDENT.from_json(row.incident), dismissal)
