"""Results of a run's sweeps as the report shows them: a leaderboard and latency by load. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from tracker.domain.records.display import NOTHING, count_text, one_line, score_text
from tracker.domain.sweeps.board import (
    Board,
    BoardRow,
    BoardScore,
    LoadCurve,
    LoadRow,
    first_text,
    load_rows,
    score_change_text,
)


@dataclass(frozen=True, kw_only=True)
class ScoreCell:
    """A score of a leaderboard."""

    score: str
    interval: str = ""
    change: str = ""
    """Difference from the first row, with its interval."""
    note: str = ""
    """Why there is no score, or the share of samples that have one."""


@dataclass(frozen=True, kw_only=True)
class RankRow:
    """One target in one variant."""

    target: str
    settings: tuple[str, ...]
    """One for each axis of the matrix."""
    scores: tuple[ScoreCell, ...]
    mean: str


@dataclass(frozen=True, kw_only=True)
class SweepView:
    """The newest run of one sweep."""

    name: str
    headline: str
    axes: tuple[str, ...]
    benchmarks: tuple[str, ...]
    rows: tuple[RankRow, ...]
    first: str
    """Row that the others are compared with; empty: none."""
    ident: str
    """Unique on the page."""
    curves: tuple[LoadCurve, ...]
    """One for each target; () if none has at least two loads."""
    loads: tuple[LoadRow, ...]
    note: str


def sweep_views(boards: Sequence[Board]) -> tuple[SweepView, ...]:
    """Return the contents for each sweep."""
    return tuple(_view(board, f"sweep-{index}") for index, board in enumerate(boards))


def _view(board: Board, ident: str) -> SweepView:
    axes = tuple(dict(chain.from_iterable(row.variant for row in board.rows)))
    left = f", {count_text(board.unanswered, 'evaluation')} pending" if board.unanswered else ""
    return SweepView(
        name=one_line(board.sweep),
        headline=f"Sweep run of {board.due_at:%Y-%m-%d %H:%M} UTC: {board.state}{left}.",
        axes=axes,
        benchmarks=tuple(map(one_line, board.benchmarks)),
        rows=tuple(_rank(row, axes, board.benchmarks) for row in board.rows),
        first=one_line(first_text(board)),
        ident=ident,
        curves=board.curves if any(len(curve.probes) > 1 for curve in board.curves) else (),
        loads=load_rows(board),
        note=one_line(board.note),
    )


def _rank(row: BoardRow, axes: Sequence[str], benchmarks: Sequence[str]) -> RankRow:
    settings = dict(row.variant)
    return RankRow(
        target=one_line(row.target),
        settings=tuple(one_line(settings.get(axis, NOTHING)) for axis in axes),
        scores=tuple(_cell(row.score_of(name)) for name in benchmarks),
        mean=score_text(row.mean),
    )


def _cell(score: BoardScore | None) -> ScoreCell:
    if score is None:
        return ScoreCell(score=NOTHING, note="not evaluated yet")
    if score.mean is None:
        return ScoreCell(score=NOTHING, note=one_line(score.failure))
    return ScoreCell(
        score=score_text(score.mean),
        interval="" if score.low is None else f"{score_text(score.low)} to {score_text(score.high)}",
        change="" if score.change is None else score_change_text(score.change),
        note=score.partly,
    )
