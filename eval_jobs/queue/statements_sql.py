"""Statements of the queue that are made once, and the column values of plans in each state."""

from typing import Any

import sqlalchemy as sa

from eval_jobs.queue.plans_sql import ENTRY, FIELD, PLANS
from eval_jobs.queue.rules import PlanState
from eval_jobs.queue_types import Hold

WAITS = PLANS.c.state == PlanState.WAITING
RUNS = PLANS.c.state == PlanState.RUNNING
UNCLAIMED = {"state": PlanState.WAITING, "worker": "", "note": "", "progress": "", "lease_until": None}
"""Column values of a plan that waits."""
_COUNTS = ("attempt", "lost", "stalled", "answered", "answered_at_loss", "revived")
NEW_VALUES = {**UNCLAIMED, "crashes": "", "poisoned": False, **dict.fromkeys(_COUNTS, 0)}


def _next_run() -> sa.Select[str]:
    """Return a query for the run without a claim for the longest time, of those with a waiting plan.

    There are few runs and many plans: one index lookup finds the next run, however many plans lie in between.
    """
    runs = sa.select(sa.func.min(PLANS.c.run_id).label("run_id")).where(WAITS).cte("runs", recursive=True)
    next_one = sa.select(sa.func.min(PLANS.c.run_id)).where(WAITS, PLANS.c.run_id > runs.c.run_id).scalar_subquery()
    runs = runs.union_all(sa.select(next_one).where(runs.c.run_id.is_not(None)))
    last_claim = sa.select(sa.func.max(PLANS.c.claimed_at)).where(PLANS.c.run_id == runs.c.run_id).scalar_subquery()
    for_others = runs.c.run_id.in_(sa.bindparam("except_runs", expanding=True))
    found = sa.select(runs.c.run_id).where(runs.c.run_id.is_not(None), ~for_others)
    return found.order_by(last_claim.nulls_first(), runs.c.run_id).limit(1)


NEXT_RUN = _next_run()


def _newest_note() -> sa.ColumnElement[str]:
    """Return a plan's note, or "" if a plan of its run was claimed later: the note may be outdated."""
    claims = PLANS.alias()
    last_claim = sa.select(sa.func.max(claims.c.claimed_at)).where(claims.c.run_id == PLANS.c.run_id).scalar_subquery()
    return sa.case((PLANS.c.claimed_at == last_claim, PLANS.c.note), else_="")


NEWEST_NOTE = _newest_note()


def locked(chosen: sa.Select[Any], still: sa.ColumnElement[bool], **values: object) -> Any:  # noqa: ANN401 - Update is generic
    """Return an update of the `chosen` plans that `still` meet the condition.

    PostgreSQL skips rows that another process is changing: two workers that claim at the same time get two plans, and
    neither waits for the other. SQLite has one writer at a time and renders no lock.
    """
    return sa.update(PLANS).where(PLANS.c.id.in_(chosen.with_for_update(skip_locked=True)), still).values(values)


def lost_values(*, crashed: bool) -> dict[str, object]:
    """Return the new column values of a plan that lost its worker. All expressions read the old row."""
    got_further = PLANS.c.answered > PLANS.c.answered_at_loss
    crashes: sa.ColumnElement[str] = sa.case((got_further, sa.literal("")), else_=PLANS.c.crashes)
    if crashed:
        claimed_at = sa.type_coerce(PLANS.c.claimed_at, sa.Text)
        crashes = crashes + PLANS.c.worker + FIELD + PLANS.c.progress + FIELD + claimed_at + ENTRY
    return UNCLAIMED | {
        "lost": PLANS.c.lost + 1,
        "crashes": crashes,
        "stalled": sa.case((got_further, 1), else_=PLANS.c.stalled + 1),
        "answered_at_loss": PLANS.c.answered,
    }


# Made once: on SQLite, other workers wait while a claim makes its statements.
_NEXT_PLAN = sa.select(PLANS.c.id).where(WAITS, PLANS.c.run_id == sa.bindparam("of_run"))
_NEXT_PLAN = _NEXT_PLAN.order_by(PLANS.c.place, PLANS.c.id).limit(1).with_for_update(skip_locked=True)
TAKE_NEXT = (
    sa.update(PLANS)
    # A scalar subquery is evaluated once; an IN may be evaluated repeatedly.
    .where(PLANS.c.id == _NEXT_PLAN.scalar_subquery(), WAITS)
    .values(
        state=PlanState.RUNNING,
        worker=sa.bindparam("by_worker"),
        attempt=PLANS.c.attempt + 1,
        note="",
        progress="",
        claimed_at=sa.bindparam("now"),
        lease_until=sa.bindparam("until"),
    )
    .returning(*(PLANS.c[name] for name in ("id", "run_id", "plan", "attempt", "lost", "crashes", "stalled")))
)
_TOO_LONG = sa.and_(RUNS, PLANS.c.lease_until > sa.bindparam("latest"))
SHORTEN_LEASES = locked(sa.select(PLANS.c.id).where(_TOO_LONG), _TOO_LONG, lease_until=sa.bindparam("until"))
_RUN_OUT = sa.and_(RUNS, PLANS.c.lease_until <= sa.bindparam("now"))
END_EXPIRED = locked(sa.select(PLANS.c.id).where(_RUN_OUT), _RUN_OUT, **lost_values(crashed=True))
END_EXPIRED = END_EXPIRED.returning(PLANS.c.id, PLANS.c.run_id)


def is_of_hold(hold: Hold) -> sa.ColumnElement[bool]:
    """Return whether a plan is held by this claim."""
    return sa.and_(PLANS.c.id == hold.plan_id, PLANS.c.worker == hold.worker, PLANS.c.attempt == hold.attempt)
