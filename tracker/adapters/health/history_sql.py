"""`tracker.ports.TrainingHistory`: what the logs of all runs say, for those who show it."""

from dataclasses import replace

from sqlalchemy import Engine, Row, or_, select, update

from eval_jobs.errors import ConfigError
from eval_jobs.queue.database_sql import belongs_to, transaction
from tracker.adapters.database.tables import HEALTH_INCIDENTS, HEALTH_POINTS, HEALTH_RUNS
from tracker.adapters.health.documents import incident_from_json, state_from_json
from tracker.domain.health.stored import RunProgress
from tracker.domain.records.training import IncidentEnd, TrainingIncident
from tracker.domain.records.types import CurvePoint

_STORED = select(HEALTH_INCIDENTS.c.incident, HEALTH_INCIDENTS.c.dismissed)


class SqlTrainingHistory:
    """Incidents and curves in the database behind `engine`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def followed_runs(self) -> tuple[str, ...]:
        """Return the runs whose logs were read; see `ports.TrainingHistory`."""
        with transaction(self._engine) as connection:
            return tuple(connection.scalars(select(HEALTH_RUNS.c.run_id).order_by(HEALTH_RUNS.c.run_id)))

    def progress(self, run: str) -> tuple[RunProgress, ...]:
        """Return how a run stands; see `ports.TrainingHistory`."""
        query = select(HEALTH_RUNS).where(belongs_to(HEALTH_RUNS.c.run_id, run)).order_by(HEALTH_RUNS.c.run_id)
        with transaction(self._engine) as connection:
            rows = connection.execute(query).all()
        states = [state_from_json(row.state) for row in rows]
        return tuple(
            RunProgress(
                run_id=row.run_id,
                read_at=row.read_at,
                last_step=state.steps.last,
                productive_share=state.tempo.productive_share(),
                changes=row.changes,
            )
            for row, state in zip(rows, states, strict=True)
        )

    def training_incidents(self, run_id: str) -> tuple[TrainingIncident, ...]:
        """Return the incidents of a run; see `ports.TrainingHistory`."""
        of_run = HEALTH_INCIDENTS.c.run_id == run_id
        if "/" in run_id:
            of_run = or_(of_run, HEALTH_INCIDENTS.c.run_id == run_id.partition("/")[0])
        query = _STORED.where(of_run).order_by(HEALTH_INCIDENTS.c.seen_at, HEALTH_INCIDENTS.c.id)
        with transaction(self._engine) as connection:
            return tuple(_incident(row) for row in connection.execute(query))

    def dismiss(self, incident_id: str, reason: str) -> TrainingIncident:
        """Close an incident; see `ports.TrainingHistory`."""
        with transaction(self._engine) as connection:
            of_id = HEALTH_INCIDENTS.c.id == incident_id
            connection.execute(update(HEALTH_INCIDENTS).where(of_id).values(dismissed=reason))
            row = connection.execute(_STORED.where(of_id)).one_or_none()
            if row is None:
                raise ConfigError(f"no incident {incident_id!r}", hint="see `tracker incidents` for the ids")
            incident = _incident(row)
            raised = update(HEALTH_RUNS).where(HEALTH_RUNS.c.run_id == incident.run_id)
            connection.execute(raised.values(changes=HEALTH_RUNS.c.changes + 1))
        return incident

    def logged_points(self, run_id: str, after: int = 0) -> tuple[int, tuple[CurvePoint, ...]]:
        """Return the points of a run's curves; see `ports.TrainingHistory`."""
        table = HEALTH_POINTS.c
        query = select(HEALTH_POINTS).where(table.run_id == run_id, table.id > after).order_by(table.id)
        with transaction(self._engine) as connection:
            rows = connection.execute(query).all()
        points = tuple(CurvePoint(key=row.key, step=row.step, value=row.value) for row in rows)
        return (rows[-1].id if rows else after), points


def _incident(row: Row[str, str | None]) -> TrainingIncident:
    incident = incident_from_json(row.incident)
    if row.dismissed is None or incident.is_over:
        return incident
    return replace(incident, ended_by=IncidentEnd.DISMISSED, reason=row.dismissed)
