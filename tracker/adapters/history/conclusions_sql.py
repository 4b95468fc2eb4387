"""What was concluded of runs: incidents, accepted levels, changes of settings, calibrations, gaps and alerts."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Engine, Table, and_, select, true, update

from eval_jobs.errors import OtherSchema, StoreError
from eval_jobs.identity import content_hash
from eval_jobs.queue.changes_sql import note_changes
from eval_jobs.queue.database_sql import add_row, put_row, transaction
from eval_jobs.records.changes import ChangeKind
from tracker.adapters.database.codec import Kind, from_json, stored_step, to_json
from tracker.adapters.database.damaged_sql import DamagedRows
from tracker.adapters.database.tables import (
    ACCEPTANCES,
    ALERTS,
    CALIBRATIONS,
    GAPS,
    INCIDENTS,
    SERIES_CHANGES,
)
from tracker.adapters.history.log_sql import add_events
from tracker.domain.log.events import RunEvent, acceptance_event, alert_events, unevaluated
from tracker.domain.records.alerts import Alert, AlertState
from tracker.domain.records.calibration import Calibration
from tracker.domain.records.losses import Acceptance, Closing, Incident
from tracker.domain.records.types import Gap
from tracker.domain.scores.series_changes import SeriesChange


class SqlConclusions:
    """Conclusions in the database behind `_engine`."""

    _engine: Engine
    _damaged: DamagedRows

    def append_incident(self, incident: Incident) -> None:
        """Store an incident; see `ports.History`."""
        with transaction(self._engine) as connection:
            put_incident(connection, incident)

    def incidents(self, run_id: str) -> tuple[Incident, ...]:
        """Return the run's incidents; see `ports.History`."""
        found = self._read(Incident, INCIDENTS.c.incident, INCIDENTS.c.run_id == run_id)
        # Sorted here: databases differ in how they order names.
        return tuple(sorted(found, key=lambda e: (e.opened_step, e.benchmark, e.subset, e.suite, e.measure)))

    def append_acceptance(self, acceptance: Acceptance) -> None:
        """Store an acceptance; see `ports.History`."""
        run_id, step = acceptance.run_id, acceptance.step
        key = content_hash([run_id, step, acceptance.benchmark, *filter(None, [acceptance.series])])
        row = {"key": key, "run_id": run_id, "step": step, "acceptance": to_json(acceptance)}
        self._put(ACCEPTANCES, row, acceptance_event(acceptance))

    def acceptances(self, run_id: str) -> tuple[Acceptance, ...]:
        """Return the run's acceptances; see `ports.History`."""
        found = self._read(Acceptance, ACCEPTANCES.c.acceptance, ACCEPTANCES.c.run_id == run_id)
        return tuple(sorted(found, key=lambda a: (a.step, a.benchmark)))

    def append_series_change(self, change: SeriesChange) -> None:
        """Store a change of settings; see `ports.History`."""
        key = content_hash([change.run_id, change.suite, change.benchmark, change.at.isoformat()])
        row = {"key": key, "run_id": change.run_id, "at": change.at, "change": to_json(change)}
        self._put(SERIES_CHANGES, row)

    def series_changes(self, run_id: str) -> tuple[SeriesChange, ...]:
        """Return the run's changes of settings; see `ports.History`."""
        found = self._read(SeriesChange, SERIES_CHANGES.c.change, SERIES_CHANGES.c.run_id == run_id)
        return tuple(sorted(found, key=lambda c: (c.at, c.suite, c.benchmark)))

    def append_calibration(self, calibration: Calibration) -> None:
        """Store a calibration; see `ports.History`."""
        plan_id, finished_at = calibration.plan.id, calibration.finished_at
        row = {"plan_id": plan_id, "finished_at": finished_at, "calibration": to_json(calibration)}
        self._put(CALIBRATIONS, row)

    def calibrations(self) -> tuple[Calibration, ...]:
        """Return all calibrations; see `ports.History`."""
        order = CALIBRATIONS.c.finished_at, CALIBRATIONS.c.plan_id
        return self._read(Calibration, CALIBRATIONS.c.calibration, true(), order)

    def append_gap(self, gap: Gap) -> bool:
        """Store a gap that is new; see `ports.History`."""
        row = {"run_id": gap.run_id, "step": gap.step, "code": gap.code, "gap": to_json(gap)}
        with transaction(self._engine) as connection:
            if is_new := add_row(connection, GAPS, row):
                note_changes(connection, ChangeKind.GAP, [(content_hash([gap.run_id, gap.step, gap.code]), gap.run_id)])
                add_events(connection, [unevaluated(gap)])
            return is_new

    def gaps(self, run_id: str) -> tuple[Gap, ...]:
        """Return the run's gaps; see `ports.History`."""
        return self._read(Gap, GAPS.c.gap, GAPS.c.run_id == run_id, (GAPS.c.step, GAPS.c.code))

    def append_alert(self, alert: Alert) -> None:
        """Store the newest state of an alert; see `ports.History`."""
        row = {"run_id": alert.run_id, "step": stored_step(alert), "state": alert.state, "alert": to_json(alert)}
        before = self._read(Alert, ALERTS.c.alert, ALERTS.c.fingerprint == alert.fingerprint)
        with transaction(self._engine) as connection:
            put_row(connection, ALERTS, row | {"fingerprint": alert.fingerprint})
            note_changes(connection, ChangeKind.ALERT, [(alert.fingerprint, alert.run_id)])
            add_events(connection, alert_events(alert, before[0] if before else None))

    def open_alerts(self, run_id: str) -> tuple[Alert, ...]:
        """Return the run's firing alerts; see `ports.History`."""
        is_firing = and_(ALERTS.c.run_id == run_id, ALERTS.c.state == AlertState.FIRING)
        return self._read(Alert, ALERTS.c.alert, is_firing, (ALERTS.c.step, ALERTS.c.fingerprint))

    def alerts(self, run_id: str) -> tuple[Alert, ...]:
        """Return the newest state of each of the run's alerts; see `ports.History`."""
        return self._read(Alert, ALERTS.c.alert, ALERTS.c.run_id == run_id, (ALERTS.c.step, ALERTS.c.fingerprint))

    def _put(self, table: Table, row: Mapping[str, object], *events: RunEvent) -> None:
        with transaction(self._engine) as connection:
            put_row(connection, table, row)
            add_events(connection, events)

    def damaged(self) -> tuple[str, ...]:
        """Return what was left out because it cannot be read; see `ports.History`."""
        return self._damaged.texts()

    def _read(
        self, kind: type[Kind], column: Column[str], which: ColumnElement[bool], order: Sequence[Column[Any]] = ()
    ) -> tuple[Kind, ...]:
        with transaction(self._engine) as connection:
            return self._read_on(connection, kind, column, which, order)

    def _read_on(
        self,
        connection: Connection,
        kind: type[Kind],
        column: Column[str],
        which: ColumnElement[bool],
        order: Sequence[Column[Any]] = (),
    ) -> tuple[Kind, ...]:
        query = select(column).where(which).order_by(*order)
        return tuple(self._damaged.documents(connection, query, kind, column.table))


def put_incident(connection: Connection, incident: Incident) -> None:
    """Store an incident in a transaction, unless a user has accepted it."""
    key = content_hash([*incident.key])
    # A no-op update locks the row: a concurrent acceptance comes before or after.
    held = update(INCIDENTS).where(INCIDENTS.c.key == key).values(run_id=incident.run_id)
    known = connection.scalar(held.returning(INCIDENTS.c.incident))
    if incident.closed_by is not Closing.ACCEPTED and _is_accepted(known):
        return
    row = {
        "key": key,
        "run_id": incident.run_id,
        "opened_step": incident.opened_step,
        "incident": to_json(incident),
    }
    put_row(connection, INCIDENTS, row)
    note_changes(connection, ChangeKind.LOSS, [(key, incident.run_id)])


def _is_accepted(incident: str | None) -> bool:
    if incident is None:
        return False
    try:
        return from_json(Incident, incident).closed_by is Closing.ACCEPTED
    except OtherSchema:
        raise
    except StoreError:
        return False  # it is damaged, and replaced
