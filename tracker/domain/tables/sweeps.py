"""The table of the results of sweeps, with a column for each axis. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from tracker.domain.sweeps.board import Board, BoardRow, BoardScore
from tracker.domain.tables.catalog import SWEEPS
from tracker.domain.tables.columns import Rows, TableDefinition, category

PENDING = "not evaluated yet"

_AFTER = SWEEPS.names.index("benchmark") + 1


def sweeps_table(boards: Iterable[tuple[str, Board]]) -> tuple[TableDefinition, Rows]:
    """Return the table `sweeps` of (run, results of a sweep run), and its definition with the axes."""
    rows = [row for run, board in boards for row in _of_board(run, board)]
    axes = sorted({name for row in rows for name in row} - set(SWEEPS.names))
    added = tuple(category(name, "Value of this axis; NaN: another sweep.") for name in axes)
    table = replace(SWEEPS, columns=(*SWEEPS.columns[:_AFTER], *added, *SWEEPS.columns[_AFTER:]))
    return table, {name: [row.get(name) for row in rows] for name in table.names}


def _of_board(run: str, board: Board) -> Iterator[Mapping[str, object]]:
    known = {"run": run, "sweep": board.sweep, "due_at": board.due_at}
    for row in board.rows:
        place = {**known, "target": row.target, "plan_id": row.plan_id}
        place |= {f"set_{axis}": value for axis, value in row.variant}
        for score in _scores(row, board):
            yield {**place, **_values(score)}


def _scores(row: BoardRow, board: Board) -> Iterator[BoardScore]:
    if row.scores:
        yield from row.scores
        return
    for name in board.benchmarks:
        yield BoardScore(benchmark=name, mean=None, failure=PENDING)


def _values(score: BoardScore) -> dict[str, object]:
    values: dict[str, object] = {"benchmark": score.benchmark, "mean": score.mean, "low": score.low, "high": score.high}
    if score.change is not None:
        values |= {"delta": score.change.delta, "delta_low": score.change.low, "delta_high": score.change.high}
    return {**values, "coverage": score.coverage, "failure": score.failure}
