"""The queue in one SQL table, for any number of workers: SQLite on one machine, PostgreSQL across machines.

Every change is one UPDATE whose WHERE clause repeats its preconditions, so that only one of two processes succeeds.
No statement reads more rows than it changes, counts or returns, except `revive`, which runs once at a start.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import sqlalchemy as sa

from eval_jobs import codec
from eval_jobs.errors import OtherSchema, StoreError
from eval_jobs.queue import rules
from eval_jobs.queue.changes_sql import note_changes
from eval_jobs.queue.database_sql import add_row, belongs_to, transaction
from eval_jobs.queue.migrate_sql import QUEUE_TABLES, bring_up_to_date
from eval_jobs.queue.plans_sql import PLANS, crashes_of, running_of, unfinished_of, waiting_of
from eval_jobs.queue.rules import PlanState
from eval_jobs.queue.statements_sql import (
    END_EXPIRED,
    NEW_VALUES,
    NEWEST_NOTE,
    NEXT_RUN,
    RUNS,
    SHORTEN_LEASES,
    TAKE_NEXT,
    UNCLAIMED,
    WAITS,
    is_of_hold,
    locked,
    lost_values,
)
from eval_jobs.queue_types import Backlog, Claim, Hold, HoldEnd, QueueState
from eval_jobs.records.changes import ChangeKind
from eval_jobs.records.progress import Progress, shown_line
from eval_jobs.types import BenchmarkFailure, EvalPlan, EvalRecord

log = logging.getLogger(__name__)
Stored = TypeVar("Stored", bound=sa.Row[*tuple[Any, ...]])
Read = TypeVar("Read")


class SqlQueue:
    """`eval_jobs.ports.Queue` in the database behind `engine`; its tables are created or brought up to date."""

    def __init__(self, engine: sa.Engine, *, run: str = "") -> None:
        """Open the queue. With `run`, the methods for a watcher cover only that run and its sub-folders.

        Workers claim plans of every run.

        Raises:
            OtherSchema: a newer program wrote the tables.
            StoreError: the database cannot be reached or written.
        """
        self._engine = engine
        self._mine = belongs_to(PLANS.c.run_id, run) if run else sa.true()
        bring_up_to_date(engine, QUEUE_TABLES)

    def add(self, plan: EvalPlan, *, now: datetime, backlog: Backlog = Backlog.OLDEST, keep: bool = False) -> bool:
        """Add a plan; see `ports.Queue`."""
        skippable = rules.may_skip(backlog, keep=keep)
        turn = {
            "plan": codec.plan_to_json(plan),
            "place": rules.place_of(plan, backlog, keep=keep),
            "may_skip": skippable,
        }
        what = {"id": plan.id, "run_id": plan.checkpoint.run_id, "step": plan.checkpoint.step, "added_at": now}
        with transaction(self._engine) as connection:
            is_new = add_row(connection, PLANS, {**NEW_VALUES, **turn, **what})
            if not is_new:
                states = [PlanState.WAITING]
                if not skippable:
                    states += [PlanState.SKIPPED, PlanState.LEFT_OUT]
                known = sa.update(PLANS).where(PLANS.c.id == plan.id, PLANS.c.state.in_(states))
                connection.execute(known.values(turn | {"state": PlanState.WAITING}))
            note_changes(connection, ChangeKind.PLAN, [(plan.id, plan.checkpoint.run_id)])
        return is_new

    def skip(self, run_id: str, *, max_waiting: int) -> int:
        """Skip the surplus; see `ports.Queue`."""
        of_run = sa.and_(WAITS, PLANS.c.run_id == run_id)
        places = sa.select(PLANS.c.place).where(of_run).distinct().order_by(PLANS.c.place)
        first_surplus = places.offset(max_waiting).limit(1).scalar_subquery()
        surplus = sa.select(PLANS.c.id).where(of_run, PLANS.c.place >= first_surplus, PLANS.c.may_skip)
        change = locked(surplus, WAITS, state=PlanState.SKIPPED)
        with transaction(self._engine) as connection:
            return _noted(connection, change)

    def skipped(self) -> tuple[EvalPlan, ...]:
        """Return skipped plans that are not left out yet; see `ports.Queue`."""
        return self._plans_in(PlanState.SKIPPED)

    def waiting(self) -> tuple[EvalPlan, ...]:
        """Return all waiting plans; see `ports.Queue`."""
        return self._plans_in(PlanState.WAITING)

    def withdraw(self, plan_id: str) -> bool:
        """Remove a waiting plan; see `ports.Queue`."""
        with transaction(self._engine) as connection:
            return _noted(connection, sa.delete(PLANS).where(PLANS.c.id == plan_id, WAITS)) == 1

    def leave_out(self, plan_id: str) -> None:
        """Mark a skipped plan as recorded; see `ports.Queue`."""
        self._change(plan_id, PlanState.SKIPPED, state=PlanState.LEFT_OUT)

    def claim(
        self, *, worker: str, now: datetime, lease_until: datetime, except_runs: Collection[str] = ()
    ) -> Claim | None:
        """Take the next plan; see `ports.Queue`."""
        with transaction(self._engine) as connection:
            # A lease that was granted before the clock was set back is shortened, and plans with an expired one wait.
            latest = now + timedelta(seconds=rules.MAX_LEASE_S)
            connection.execute(SHORTEN_LEASES, {"latest": latest, "until": lease_until})
            expired = connection.execute(END_EXPIRED, {"now": now}).all()
            run_id = connection.scalar(NEXT_RUN, {"except_runs": tuple(except_runs)})
            row = None
            if run_id is not None:
                taken = {"of_run": run_id, "by_worker": worker, "now": now, "until": lease_until}
                row = connection.execute(TAKE_NEXT, taken).one_or_none()
            _note(connection, expired if row is None else [*expired, row])
        if row is None:  # on PostgreSQL: another worker is claiming it
            return None
        return next(iter(self._each([row], lambda row: _claim_of(row, worker, lease_until))), None)

    def extend(
        self, claim: Claim, *, lease_until: datetime, progress: Progress | None = None, answered: int = 0
    ) -> bool:
        """Extend the lease and store the progress; see `ports.Queue`."""
        most = sa.case((PLANS.c.answered < answered, answered), else_=PLANS.c.answered)
        return self._change_held(
            claim.hold, lease_until=lease_until, progress=codec.progress_to_json(progress), answered=most
        )

    def finish(self, claim: Claim, record: EvalRecord, *, now: datetime) -> bool:
        """Store the outcome; see `ports.Queue`."""
        failed = any(isinstance(outcome, BenchmarkFailure) for outcome in record.outcomes)
        stored = self._change_held(
            claim.hold,
            state=PlanState.FINISHED,
            record=codec.record_to_bytes(record),
            failed=failed,
            poisoned=rules.was_poisoned(record),
            finished_at=now,
        )
        return stored or self._is_done(claim.hold)

    def release(self, claim: Claim, *, counts: bool = True, note: str = "") -> None:
        """Release a plan; see `ports.Queue`."""
        attempt = claim.attempt if counts else claim.attempt - 1
        self._change_held(claim.hold, attempt=attempt, **UNCLAIMED | {"note": shown_line(note)})

    def holds(self) -> tuple[Hold, ...]:
        """Return all current holds; see `ports.Queue`."""
        query = sa.select(PLANS.c.id, PLANS.c.worker, PLANS.c.attempt, PLANS.c.lease_until).where(RUNS)
        with transaction(self._engine) as connection:
            rows = connection.execute(query).all()
        # Sorted here: with ORDER BY id, SQLite scans all plans.
        rows = sorted(rows, key=lambda row: row.id)
        return tuple(Hold(plan_id=r.id, worker=r.worker, attempt=r.attempt, lease_until=r.lease_until) for r in rows)

    def take_back(self, hold: Hold, end: HoldEnd) -> bool:
        """Requeue a plan whose worker is gone; see `ports.Queue`."""
        if end is HoldEnd.INTERRUPTED:
            return self._change_held(hold, attempt=hold.attempt - 1, **UNCLAIMED)
        return self._change_held(hold, **lost_values(crashed=end is HoldEnd.CRASHED))

    def known(self, plan_ids: Collection[str]) -> frozenset[str]:
        """Return which plans were added; see `ports.Queue`."""
        with transaction(self._engine) as connection:
            return frozenset(connection.scalars(sa.select(PLANS.c.id).where(PLANS.c.id.in_(plan_ids))))

    def done(self, plan_ids: Collection[str]) -> frozenset[str]:
        """Return which plans are done; see `ports.Queue`."""
        states = (PlanState.FINISHED, PlanState.ACKNOWLEDGED)
        is_done = sa.and_(PLANS.c.state.in_(states), PLANS.c.failed.is_(False))
        query = sa.select(PLANS.c.id).where(PLANS.c.id.in_(plan_ids), is_done)
        with transaction(self._engine) as connection:
            return frozenset(connection.scalars(query))

    def finished(self) -> tuple[EvalRecord, ...]:
        """Return records that are not acknowledged yet; see `ports.Queue`."""
        query = sa.select(PLANS.c.id, PLANS.c.record).where(PLANS.c.state == PlanState.FINISHED, self._mine)
        with transaction(self._engine) as connection:
            rows = connection.execute(query.order_by(PLANS.c.step, PLANS.c.id)).all()
        found = (self._finished(row.id, row.record) for row in rows if row.record is not None)
        return tuple(record for record in found if record is not None)

    def acknowledge(self, plan_id: str) -> None:
        """Mark a finished plan as taken over; see `ports.Queue`."""
        # The record is now in the history; keeping it here too would double the size of the database.
        self._change(plan_id, PlanState.FINISHED, state=PlanState.ACKNOWLEDGED, record=None)

    def revive(self, renewed: Callable[[EvalPlan], EvalPlan | None]) -> int:
        """Requeue failed plans; see `ports.Queue`."""
        has_failed = sa.and_(PLANS.c.state == PlanState.ACKNOWLEDGED, PLANS.c.failed.is_(True))
        allowed = sa.or_(PLANS.c.poisoned.is_(False), PLANS.c.revived < rules.MAX_REVIVALS)
        revived = sa.case((PLANS.c.poisoned.is_(True), PLANS.c.revived + 1), else_=PLANS.c.revived)
        anew = {"attempt": 0, "lost": 0, "crashes": "", "stalled": 0, "poisoned": False, "revived": revived}
        failed = sa.and_(has_failed, allowed, self._mine)
        again = sa.update(PLANS).values(UNCLAIMED | anew | {"failed": None, "finished_at": None})
        with transaction(self._engine) as connection:
            stored = connection.execute(sa.select(PLANS.c.id, PLANS.c.plan).where(failed)).all()
        plans = self._each(stored, _plan_of)
        with transaction(self._engine) as connection:
            count = 0
            for failed_plan in plans:
                plan = renewed(failed_plan)
                if plan is not None:
                    change = again.where(failed, PLANS.c.id == plan.id).values(plan=codec.plan_to_json(plan))
                    count += _noted(connection, change)
            return count

    def open_steps(self, run_id: str, *, sweeps: bool = True) -> frozenset[int]:
        """Return the steps with open plans; see `ports.Queue`."""
        open_states = (PlanState.WAITING, PlanState.RUNNING, PlanState.FINISHED)
        query = sa.select(PLANS.c.step).where(PLANS.c.state.in_(open_states), PLANS.c.run_id == run_id)
        if not sweeps:
            query = query.where(PLANS.c.place < rules.FIRST_PLACE_OF_SWEEPS)
        with transaction(self._engine) as connection:
            return frozenset(connection.scalars(query))

    def state(self) -> QueueState:
        """Return the open plans; see `ports.Queue`."""
        numbers = (
            sa.select(PLANS.c.state, PLANS.c.run_id, sa.func.count().label("plans"))
            .where(PLANS.c.state.in_(rules.ON_ITS_WAY), self._mine)
            .group_by(PLANS.c.state, PLANS.c.run_id)
        )
        columns = (PLANS.c.id, PLANS.c.plan, PLANS.c.worker, PLANS.c.progress, PLANS.c.claimed_at)
        running = sa.select(*columns).where(RUNS, self._mine).order_by(PLANS.c.run_id, PLANS.c.place, PLANS.c.id)
        waiting = (
            sa.select(
                PLANS.c.id, PLANS.c.run_id, PLANS.c.step, PLANS.c.place, PLANS.c.claimed_at, NEWEST_NOTE.label("note")
            )
            .where(WAITS, self._mine)
            .order_by(PLANS.c.place >= rules.FIRST_PLACE_OF_SWEEPS, PLANS.c.run_id, PLANS.c.place, PLANS.c.id)
            .limit(rules.SHOWN)
        )
        with transaction(self._engine) as connection:
            counted = connection.execute(numbers).all()
            rows = connection.execute(running).all()
            shown = connection.execute(waiting).all()
        return QueueState(
            waiting=tuple(map(waiting_of, shown)),
            running=self._each(rows, running_of),
            counts={state: sum(row.plans for row in counted if row.state == state) for state in rules.ON_ITS_WAY},
            unfinished=unfinished_of(counted),
        )

    def _plans_in(self, state: PlanState) -> tuple[EvalPlan, ...]:
        query = sa.select(PLANS.c.id, PLANS.c.plan).where(PLANS.c.state == state, self._mine)
        with transaction(self._engine) as connection:
            rows = connection.execute(query.order_by(PLANS.c.step, PLANS.c.id)).all()
        return self._each(rows, _plan_of)

    def _each(self, rows: Iterable[Stored], read: Callable[[Stored], Read]) -> tuple[Read, ...]:
        """Return what `read` makes of each row; a plan that is damaged is removed."""
        found = []
        for row in rows:
            try:
                found.append(read(row))
            except OtherSchema:
                raise
            except StoreError as error:
                log.warning("plan %s: %s and is removed; a watcher adds it again when it starts", row.id, error.message)
                with transaction(self._engine) as connection:
                    connection.execute(sa.delete(PLANS).where(PLANS.c.id == row.id))
        return tuple(found)

    def _finished(self, plan_id: str, stored: bytes) -> EvalRecord | None:
        """Return the record of a plan; None: it is damaged, and the plan waits for another evaluation."""
        try:
            return codec.record_from_bytes(stored)
        except OtherSchema:
            raise
        except StoreError as error:
            log.warning("plan %s: %s; the plan is evaluated again", plan_id, error.message)
        anew = lost_values(crashed=False) | {"record": None, "failed": None, "finished_at": None}
        self._change(plan_id, PlanState.FINISHED, **anew)
        return None

    def _change(self, plan_id: str, while_: PlanState, **values: object) -> None:
        change = sa.update(PLANS).where(PLANS.c.id == plan_id, PLANS.c.state == while_).values(values)
        with transaction(self._engine) as connection:
            _noted(connection, change)

    def _change_held(self, hold: Hold, **values: object) -> bool:
        """Change the plan if this claim still holds it; return whether it does."""
        change = sa.update(PLANS).where(RUNS, is_of_hold(hold)).values(values)
        with transaction(self._engine) as connection:
            return _noted(connection, change) == 1

    def _is_done(self, hold: Hold) -> bool:
        done = PLANS.c.state.in_([PlanState.FINISHED, PlanState.ACKNOWLEDGED])
        with transaction(self._engine) as connection:
            return connection.scalar(sa.select(PLANS.c.id).where(done, is_of_hold(hold))) is not None


def _noted(connection: sa.Connection, change: sa.Update | sa.Delete) -> int:
    """Change plans, each with a number (`changes_sql`); return how many."""
    rows = connection.execute(change.returning(PLANS.c.id, PLANS.c.run_id)).all()
    _note(connection, rows)
    return len(rows)


def _note(connection: sa.Connection, rows: Iterable[sa.Row[*tuple[Any, ...]]]) -> None:
    note_changes(connection, ChangeKind.PLAN, [(row.id, row.run_id) for row in rows])


def _plan_of(row: sa.Row[*tuple[Any, ...]]) -> EvalPlan:
    return codec.plan_from_json(row.plan)


def _claim_of(row: sa.Row[*tuple[Any, ...]], worker: str, lease_until: datetime) -> Claim:
    return Claim(
        plan=codec.plan_from_json(row.plan),
        worker=worker,
        attempt=row.attempt,
        lost=row.lost,
        crashes=crashes_of(row.crashes),
        stalled=row.stalled,
        lease_until=lease_until,
    )
