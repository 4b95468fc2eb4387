"""Reads the narrow rows of results and verdicts in columns, in batches: millions of rows never become objects."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain
from typing import Any

import numpy as np
from sqlalchemy import Column, Connection, Double, Integer, Select, Table, select, true

from tracker.adapters.database.tables import EVALUATIONS, JUDGED, MEASURED, SUBJECTS, AsciiText, plain_text
from tracker.domain.scores.matrix import FloatArray
from tracker.domain.tables.selection import Evaluation, Subject

_BATCH = 50_000
_OF_EVALUATION = tuple(EVALUATIONS.c[name] for name in Evaluation._fields)
_OF_SUBJECT = tuple(SUBJECTS.c[name] for name in Subject._fields)

Columns = Mapping[str, Sequence[object] | FloatArray]
"""Values by column: numbers as float64, NaN if missing, which is exact for integers up to 2^53; else objects."""


def read_evaluations(connection: Connection, runs: Collection[str] | None = None) -> tuple[Evaluation, ...]:
    """Return the evaluations of some runs, or of all, ordered by run, step and age."""
    which = true() if runs is None else EVALUATIONS.c.run_id.in_(runs)
    order = EVALUATIONS.c.run_id, EVALUATIONS.c.step, EVALUATIONS.c.finished_at, EVALUATIONS.c.plan_id
    return tuple(Evaluation(*row) for row in connection.execute(select(*_OF_EVALUATION).where(which).order_by(*order)))


def read_subjects(connection: Connection) -> Mapping[int, Subject]:
    """Return all subjects by number."""
    query = select(SUBJECTS.c.number, *_OF_SUBJECT)
    return {number: Subject(*values) for number, *values in connection.execute(query)}


def read_results(connection: Connection, runs: Collection[str] | None = None) -> Columns:
    """Return the columns of `MEASURED` of some runs, or of all, ordered by evaluation and position."""
    return _columns(connection, MEASURED, runs)


def read_verdicts(connection: Connection, runs: Collection[str] | None = None) -> Columns:
    """Return the columns of `JUDGED` of some runs, or of all, ordered by evaluation and position."""
    return _columns(connection, JUDGED, runs)


def _columns(connection: Connection, table: Table, runs: Collection[str] | None) -> Columns:
    query = select(*table.c).order_by(table.c.evaluation, table.c.position)
    if runs is not None:
        query = query.join(EVALUATIONS, EVALUATIONS.c.number == table.c.evaluation)
        query = query.where(EVALUATIONS.c.run_id.in_(runs))
    parts: dict[str, list[Any]] = {column.name: [] for column in table.c}
    for rows in _batches(connection, query):
        for column, values in zip(table.c, zip(*rows, strict=True), strict=True):
            parts[column.name].append(_array(column, values))
    return {name: _joined(table.c[name], arrays) for name, arrays in parts.items()}


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
