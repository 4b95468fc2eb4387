"""Texts of a sweep's leaderboard, for terminal and page. Pure."""

from eval_jobs.types import ProbeLoad
from tracker.domain.records.display import signed_text
from tracker.domain.sweeps.board import Board, ScoreDifference, variant_text


def load_size_text(load: ProbeLoad) -> str:
    """Return the size of a load."""
    if load.request_rate is None:
        return f"concurrency {load.concurrency}"
    return f"{load.request_rate:g} requests/s"


def signed_interval_text(change: ScoreDifference) -> str:
    """Return the difference and its interval, each with its sign."""
    return f"{signed_text(change.delta)}, {signed_text(change.low)} to {signed_text(change.high)}"


def first_text(board: Board) -> str:
    """Return the name of the row that the others are compared with; empty if no difference is known."""
    if not any(score.change is not None for row in board.rows for score in row.scores):
        return ""
    row = next(row for row in board.rows if row.plan_id == board.first)
    if row.variant:
        return f"{row.target}, {variant_text(row.variant)}"
    return row.target
