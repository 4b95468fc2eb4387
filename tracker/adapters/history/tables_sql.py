"""Reads the narrow rows of results and verdicts in columns, in batches: millions of rows never become objects."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain
from typing import Any

import numpy as np
from sqlalchemy import Column, Connection, Double, Engine, Integer, Select, Table, func, inspect, select, true, union

from eval_jobs.queue.database_sql import IDS_AT_ONCE, transaction
from eval_jobs.queue.plans_sql import PLANS
from tracker.adapters.database.columns import AsciiText, plain_text
from tracker.adapters.database.health_tables import HEALTH_RUNS
from tracker.adapters.database.tables import EVALUATIONS, GAPS, JUDGED, LEADERS, MEASURED, RECORDS, SUBJECTS, TURNS
from tracker.domain.records.types import VerdictWord
from tracker.domain.scores.matrix import FloatArray
from tracker.domain.tables.measured import Columns, StoredRows
from tracker.domain.tables.selection import RowSubject, StoredEvaluation

_BATCH = 50_000
_OF_EVALUATION = tuple(EVALUATIONS.c[name] for name in StoredEvaluation._fields)
_OF_SUBJECT = tuple(SUBJECTS.c[name] for name in RowSubject._fields)


class ResultTables:
    """The narrow rows of one database."""

    def __init__(self, database: Engine) -> None:
        """Take an open database; nothing is read yet."""
        self._database = database

    def runs(self) -> tuple[str, ...]:
        """Return the names of all runs that have an evaluation, a gap or a log, in order."""
        query = union(*(select(table.c.run_id) for table in (EVALUATIONS, GAPS, HEALTH_RUNS)))
        with transaction(self._database) as connection:
            return tuple(sorted(connection.scalars(query)))

    def sweeps(self) -> tuple[tuple[str, str], ...]:
        """Return (run, sweep) of all sweeps that ran, in order."""
        with transaction(self._database) as connection:
            rows = connection.execute(select(TURNS.c.run_id, TURNS.c.sweep).distinct()).all()
        return tuple(sorted((row.run_id, row.sweep) for row in rows))

    def open_plans(self) -> Mapping[tuple[str, str], int]:
        """Return the number of evaluations by run and state in the queue: waiting, running, and others."""
        if not inspect(self._database).has_table(PLANS.name):
            return {}  # nothing was ever queued, only imported
        query = select(PLANS.c.run_id, PLANS.c.state, func.count()).group_by(PLANS.c.run_id, PLANS.c.state)
        with transaction(self._database) as connection:
            return {(run, state): count for run, state, count in connection.execute(query)}

    def output_dirs(self) -> Mapping[str, str]:
        """Return the folder that each watcher watches or watched last, by its run."""
        with transaction(self._database) as connection:
            rows = connection.execute(select(LEADERS.c.run_id, LEADERS.c.output_dir)).all()
        return {row.run_id: row.output_dir for row in rows}

    def results(self, runs: Collection[str] | None = None) -> StoredRows:
        """Return the results of some runs, or of all."""
        return self._read(MEASURED, runs)

    def verdicts(self, runs: Collection[str] | None = None, names: Collection[str] = ()) -> StoredRows:
        """Return the verdicts of some runs, or of all; `names`: only these columns."""
        return self._read(JUDGED, runs, names)

    def evaluations(self, runs: Collection[str] | None = None) -> tuple[StoredEvaluation, ...]:
        """Return the evaluations of some runs, or of all."""
        with transaction(self._database) as connection:
            return _evaluations(connection, runs)

    def sample_versions(self, plan_ids: Sequence[str]) -> Mapping[str, str]:
        """Return the version of the files with the samples of some plans, by plan; empty for one without samples."""
        found: dict[str, str] = {}
        with transaction(self._database) as connection:
            for start in range(0, len(plan_ids), IDS_AT_ONCE):
                which = RECORDS.c.plan_id.in_(plan_ids[start : start + IDS_AT_ONCE])
                query = select(RECORDS.c.plan_id, RECORDS.c.samples).where(which)
                found.update((plan_id, version or "") for plan_id, version in connection.execute(query))
        return found

    def _read(self, table: Table, runs: Collection[str] | None, names: Collection[str] = ()) -> StoredRows:
        with transaction(self._database) as connection:
            return StoredRows(
                evaluations=_evaluations(connection, runs),
                subjects=_subjects(connection),
                columns=_columns(connection, table, runs, names),
            )


def urgent_words(rows: StoredRows) -> Mapping[int, VerdictWord]:
    """Return the most urgent verdict of each evaluation that has any, by its number."""
    words, numbers = tuple(VerdictWord), np.asarray(rows.columns["evaluation"], dtype=np.int64)
    places = {str(word): place for place, word in enumerate(words)}
    found: dict[int, int] = {}
    for number, word in zip(numbers.tolist(), rows.columns["word"], strict=True):
        place = places[str(word)]
        found[number] = min(found.get(number, place), place)
    return {number: words[place] for number, place in found.items()}


def _evaluations(connection: Connection, runs: Collection[str] | None) -> tuple[StoredEvaluation, ...]:
    which = true() if runs is None else EVALUATIONS.c.run_id.in_(runs)
    order = EVALUATIONS.c.run_id, EVALUATIONS.c.step, EVALUATIONS.c.finished_at, EVALUATIONS.c.plan_id
    return tuple(
        StoredEvaluation(*row) for row in connection.execute(select(*_OF_EVALUATION).where(which).order_by(*order))
    )


def _subjects(connection: Connection) -> Mapping[int, RowSubject]:
    query = select(SUBJECTS.c.number, *_OF_SUBJECT)
    return {number: RowSubject(*values) for number, *values in connection.execute(query)}


def _columns(connection: Connection, table: Table, runs: Collection[str] | None, names: Collection[str]) -> Columns:
    columns = [column for column in table.c if not names or column.name in names]
    query = select(*columns).order_by(table.c.evaluation, table.c.position)
    if runs is not None:
        query = query.join(EVALUATIONS, EVALUATIONS.c.number == table.c.evaluation)
        query = query.where(EVALUATIONS.c.run_id.in_(runs))
    parts: dict[str, list[Any]] = {column.name: [] for column in columns}
    for rows in _batches(connection, query):
        for column, values in zip(columns, zip(*rows, strict=True), strict=True):
            parts[column.name].append(_array(column, values))
    # Column by column: millions of rows are not held twice.
    return {column.name: _joined(column, parts.pop(column.name)) for column in columns}


def _batches(connection: Connection, query: Select[Any]) -> Iterator[Sequence[tuple[Any, ...]]]:
    """Yield the rows as the driver has them: SQLAlchemy's rows take three times as long."""
    compiled = query.compile(dialect=connection.dialect, compile_kwargs={"render_postcompile": True})
    parameters: Any = compiled.params
    if compiled.positional:
        parameters = [compiled.params[name] for name in compiled.positiontup or ()]
    driver: Any = connection.connection.driver_connection
    # With a name, PostgreSQL keeps the rows at the server until they are fetched.
    names = ("tracker_rows",) if connection.dialect.name == "postgresql" else ()
    with closing(driver.cursor(*names)) as cursor:
        cursor.execute(str(compiled), parameters)
        while rows := cursor.fetchmany(_BATCH):
            yield rows


def _array(column: Column[Any], values: Sequence[Any]) -> FloatArray | list[Any]:
    if isinstance(column.type, Integer | Double):
        return np.array(values, dtype=np.float64)
    return [plain_text(value) if isinstance(column.type, AsciiText) else value for value in values]


def _joined(column: Column[Any], parts: Sequence[Any]) -> FloatArray | list[Any]:
    if isinstance(column.type, Integer | Double):
        return np.concatenate(parts) if parts else np.zeros(0)
    return list(chain.from_iterable(parts))
