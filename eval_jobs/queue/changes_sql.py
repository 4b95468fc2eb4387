"""What changed in a database, each change with a number that only grows: "what is new since N" is one indexed query.

    note_changes(connection, ChangeKind.PLAN, [(plan_id, run_id)])      # in the transaction that changes it
    position, changes = changes_since(engine, position)

On PostgreSQL the number is that of the transaction, so that no writer waits for another one. Transactions become
visible in any order: a position is what a reader has seen (`txid_snapshot`), and no change is missed or returned twice.
"""

from collections.abc import Iterable

import sqlalchemy as sa

from eval_jobs.identity import content_hash
from eval_jobs.queue.database_sql import insert_into, transaction
from eval_jobs.queue.plans_sql import CHANGES, COUNTERS
from eval_jobs.records.changes import Change, ChangeKind

_SEEN = "CAST(:position AS txid_snapshot)"
_POSITIONS = {
    "postgresql": "SELECT CAST(txid_current_snapshot() AS text)",
    "sqlite": "SELECT CAST(coalesce(max(number), 0) AS text) FROM change_counters",
}
_IS_NEW = {
    "postgresql": f"number >= txid_snapshot_xmin({_SEEN}) AND NOT txid_visible_in_snapshot(number, {_SEEN})",
    "sqlite": "number > CAST(:position AS integer)",
}


def note_changes(connection: sa.Connection, kind: ChangeKind, changed: Iterable[tuple[str, str]]) -> None:
    """Give things, (key, run), the number of this transaction."""
    rows = [{"kind": kind, "key": key, "run_id": run_id} for key, run_id in sorted(set(changed))]
    if not rows:
        return
    insert = insert_into(connection, CHANGES).values(number=_number(connection))
    changes = {"run_id": insert.excluded.run_id, "number": insert.excluded.number}
    connection.execute(insert.on_conflict_do_update(index_elements=["kind", "key"], set_=changes), rows)


def note_run(connection: sa.Connection, kind: ChangeKind, run_id: str) -> None:
    """Give a kind of thing, of which a run has one, the number of this transaction."""
    note_changes(connection, kind, [(content_hash([run_id]), run_id)])


def position_now(engine: sa.Engine) -> str:
    """Return the position from which on changes are new."""
    with transaction(engine) as connection:
        return str(connection.execute(sa.text(_POSITIONS[engine.dialect.name])).scalar_one())


def changes_since(engine: sa.Engine, position: str) -> tuple[str, tuple[Change, ...]]:
    """Return the changes since a position, and the new position."""
    here, is_new = _POSITIONS[engine.dialect.name], _IS_NEW[engine.dialect.name]
    query = f"SELECT kind, key, run_id, ({here}) AS position FROM changes WHERE {is_new} ORDER BY number, kind, key"  # noqa: S608 - constants
    with transaction(engine) as connection:
        rows = connection.execute(sa.text(query), {"position": position}).all()
    changes = tuple(Change(kind=ChangeKind(row.kind), key=row.key, run_id=row.run_id) for row in rows)
    return (str(rows[-1].position) if rows else position), changes


def _number(connection: sa.Connection) -> int:
    if connection.dialect.name == "postgresql":
        return int(connection.execute(sa.select(sa.func.txid_current())).scalar_one())
    insert = insert_into(connection, COUNTERS).values(id=1, number=1)
    raised = insert.on_conflict_do_update(index_elements=["id"], set_={"number": COUNTERS.c.number + 1})
    return int(connection.execute(raised.returning(COUNTERS.c.number)).scalar_one())
