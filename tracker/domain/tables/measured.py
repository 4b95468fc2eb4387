"""The tables of scores and verdicts, from narrow rows in columns. Pure.

Nothing is done row by row, but for steps that were evaluated several times.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracker.domain.records.losses import Measure
from tracker.domain.scores.matrix import BoolArray, FloatArray, IntArray
from tracker.domain.tables.catalog import SCORES, VERDICTS
from tracker.domain.tables.columns import Coded, Rows, TableDefinition, Values
from tracker.domain.tables.selection import RowSubject, StoredEvaluation, contested

Columns = dict[str, Sequence[object] | FloatArray]
"""Values by column, ordered by evaluation: numbers as float64, exact for integers up to 2^53, else objects. Making
a table removes them from here, so that millions of rows are not in memory twice."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredRows:
    """Narrow rows in columns, and what they are about, as of one moment."""

    evaluations: Sequence[StoredEvaluation]
    """Of what is asked for."""
    subjects: Mapping[int, RowSubject]
    columns: Columns
    benchmark: str | None = None
    """None: all."""


def scores_table(stored: StoredRows) -> Rows:
    """Return the table `scores`."""
    return _table(SCORES, stored)


def verdicts_table(stored: StoredRows) -> Rows:
    """Return the table `verdicts`."""
    return _table(VERDICTS, stored)


def _table(table: TableDefinition, stored: StoredRows) -> Rows:
    columns, subjects = stored.columns, stored.subjects
    counted = sorted(stored.evaluations, key=lambda e: (e.run_id, e.step, e.suite, e.plan_id))
    asked = [number for number, one in subjects.items() if stored.benchmark in (None, one.benchmark)]
    named = sorted(asked, key=lambda number: subjects[number])
    evaluation, is_known = _places(columns["evaluation"], [e.number for e in counted])
    subject, is_asked = _places(columns["subject"], named)
    is_kept = is_known & is_asked & _newest(counted, columns, subjects)
    order = np.lexsort((subject, evaluation))
    order = order[is_kept[order]]
    evaluation, subject = evaluation[order], subject[order]
    found: dict[str, Values] = {}
    for name in table.names:
        if name in columns:
            found[name] = _taken(columns.pop(name), order)
        elif name in RowSubject._fields:
            values = [getattr(subjects[number], name) for number in named]
            found[name] = _coded(subject, values)
        else:
            values = [getattr(one, _FIELDS.get(name, name)) for one in counted]
            found[name] = _coded(evaluation, values)
    return found


_FIELDS = {"run": "run_id"}


def _places(numbers: Sequence[object] | FloatArray, known: Sequence[int]) -> tuple[IntArray, BoolArray]:
    """Return for each number its place in `known`, and whether it is there."""
    wanted = np.asarray(numbers, dtype=np.int64)
    ordered = np.argsort(np.array(known, dtype=np.int64), kind="stable")
    values = np.array(known, dtype=np.int64)[ordered]
    if not values.size:
        return np.zeros(wanted.size, dtype=np.int64), np.zeros(wanted.size, dtype=bool)
    at = np.minimum(np.searchsorted(values, wanted), values.size - 1)
    return ordered[at], values[at] == wanted


def _newest(evaluations: Sequence[StoredEvaluation], columns: Columns, subjects: Mapping[int, RowSubject]) -> BoolArray:
    """Return which rows are of the newest evaluation of their benchmark at their step."""
    numbers, about_row = (np.asarray(columns[name], dtype=np.int64) for name in ("evaluation", "subject"))
    kept = np.ones(numbers.size, dtype=bool)
    for same in contested(evaluations):
        claimed = set[str]()
        for one in same:
            rows = range(*np.searchsorted(numbers, [one.number, one.number + 1]).tolist())
            about = [subjects[int(about_row[row])] for row in rows]
            own = set(_whole_benchmarks(about)) - claimed
            for row, subject in zip(rows, about, strict=True):
                kept[row] = subject.benchmark in own or (not subject.benchmark and bool(own))
            claimed |= own
    return kept


def _whole_benchmarks(subjects: Sequence[RowSubject]) -> Iterator[str]:
    for one in subjects:
        if one.benchmark and not one.subset and one.measure == Measure.SCORE:
            yield one.benchmark


def _taken(values: Sequence[object] | FloatArray, order: IntArray) -> Values:
    if isinstance(values, np.ndarray):
        taken: FloatArray = values[order]
        return taken
    return [values[row] for row in order.tolist()]


def _coded(codes: IntArray, values: Sequence[object]) -> Coded:
    return Coded(codes=codes, values=tuple(values))
