"""Sweep results as tables for a terminal."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from zoneinfo import ZoneInfo

from rich.console import RenderableType
from rich.table import Column, Table
from rich.text import Text

from tracker.cli.tables.render import number_columns, plain_table
from tracker.domain.records.display import NOTHING, count_text, one_line, score_text
from tracker.domain.sweeps.board import Board, BoardScore, LoadRow, first_text, load_rows, score_change_text
from tracker.domain.sweeps.cron import next_time
from tracker.domain.sweeps.types import Sweep, Turn, TurnState


@dataclass(frozen=True, kw_only=True)
class LastSweepRun:
    """The newest sweep run of a sweep."""

    due_at: datetime
    state: TurnState
    is_on_demand: bool
    evaluations: int
    finished: int
    text: str


@dataclass(frozen=True, kw_only=True)
class ListedSweep:
    """One sweep of `tracker sweep list`."""

    name: str
    cron: str | None
    """None: on demand only."""
    time_zone: str
    next_at: datetime | None
    last: LastSweepRun | None


def listed(sweep: Sweep, last: Turn | None, finished: int, now: datetime) -> ListedSweep:
    """Return a sweep with its next time and its last run; `finished`: evaluations of that run with a result."""
    run = None
    if last is not None:
        run = LastSweepRun(
            due_at=last.due_at,
            state=last.state,
            is_on_demand=last.by_hand,
            evaluations=len(last.plans),
            finished=finished,
            text=turn_text(last, finished),
        )
    cron, zone, next_at = None, "UTC", None
    if sweep.timetable is not None:
        cron, zone, next_at = sweep.timetable.cron, sweep.timetable.time_zone, next_time(sweep.timetable, now)
    return ListedSweep(name=sweep.name, cron=cron, time_zone=zone, next_at=next_at, last=run)


def board_lines(board: Board) -> Iterator[RenderableType]:
    """Yield the printed results of a sweep run."""
    yield Text(f"{one_line(board.sweep)}, sweep run of {time_text(board.due_at)}: {turn_state_text(board)}", "bold")
    if board.rows:
        yield ""
        yield score_table(board)
    for target, loads in groupby(load_rows(board), key=lambda row: row.target):
        yield ""
        yield Text(f"latency of {target}", "bold")
        yield _load_table(loads)
    yield ""
    for line in _remarks(board):
        yield Text(one_line(line), "dim")


def score_table(board: Board) -> Table:
    """Return the leaderboard: one line for each target and variant, the best mean first."""
    axes = tuple(dict.fromkeys(axis for row in board.rows for axis, _ in row.variant))
    table = plain_table("target", *axes)
    for name in board.benchmarks:
        table.add_column(Text(one_line(name)), justify="right")
    has_mean = len(board.benchmarks) > 1
    if has_mean:
        table.add_column("mean", justify="right")
    for row in board.rows:
        values = dict(row.variant)
        names = [row.target, *(values.get(axis, NOTHING) for axis in axes)]
        cells = [*map(Text, map(one_line, names)), *(_score(row.score_of(name)) for name in board.benchmarks)]
        if has_mean:
            cells.append(Text(score_text(row.mean), "bold"))
        table.add_row(*cells)
    return table


def turn_state_text(board: Board) -> str:
    """Return the state of a sweep run with the number of its evaluations."""
    asked = len(board.rows) or len(board.curves) + board.unanswered
    if board.unanswered:
        return f"{board.state}, {count_text(board.unanswered, 'evaluation')} pending"
    return f"{board.state}, {count_text(asked, 'evaluation')}"


def list_table(sweeps: Sequence[ListedSweep]) -> Table:
    """Return one line for each sweep: its schedule and its last run."""
    table = plain_table("sweep", "schedule", "last sweep run")
    for sweep in sweeps:
        zone, when, came = sweep.time_zone, ["on demand"], [NOTHING]
        if sweep.cron is not None:
            comes = NOTHING if sweep.next_at is None else time_text(sweep.next_at, zone)
            when = [f"{sweep.cron} {zone}", f"next {comes}"]
        if sweep.last is not None:
            came = [time_text(sweep.last.due_at, zone), sweep.last.text]
        table.add_row(Text(sweep.name), _cell(when), _cell(came))
    return table


def turn_text(turn: Turn, answered: int) -> str:
    """Return the state of a sweep run as text."""
    by_hand = "on demand, " if turn.by_hand else ""
    missed = f", covers {count_text(turn.missed + 1, 'scheduled time')}" if turn.missed else ""
    note = f": {turn.note}" if turn.note else ""
    if turn.state is TurnState.RUNNING:
        return f"{by_hand}running, {answered} of {count_text(len(turn.plans), 'evaluation')}{missed}{note}"
    if turn.state is TurnState.DONE and turn.plans:
        return f"{by_hand}done, {count_text(len(turn.plans), 'evaluation')}{missed}{note}"
    return f"{by_hand}{turn.state}{missed}{note}"


def turn_change_text(turn: Turn) -> str:
    """Return the latest change of a sweep run: that it started, ended or was skipped."""
    if turn.state is not TurnState.RUNNING:
        return turn_text(turn, 0)
    note = f"; not evaluated: {turn.note}" if turn.note else ""
    return f"started, {count_text(len(turn.plans), 'evaluation')}{note}"


def time_text(time: datetime, zone: str = "UTC") -> str:
    """Return a time to the minute, with the abbreviated name of its zone."""
    return f"{time.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M %Z}"


def _cell(lines: Sequence[str]) -> Text:
    return Text("\n".join(map(one_line, lines)))


def _score(score: BoardScore | None) -> Text:
    if score is None:
        return Text(NOTHING, "dim")
    if score.mean is None:
        return Text("failed", "red")
    text = Text(score_text(score.mean))
    if score.low is not None and score.high is not None:
        text.append(f" {score.low:.2f}-{score.high:.2f}", "dim")
    if score.partly:
        text.append(f" {score.partly}", "yellow")
    if score.change is not None:
        text.append(f"\n{score_change_text(score.change)}")
    return text


def _load_table(loads: Iterable[LoadRow]) -> Table:
    names = number_columns("requests/s", "tokens/s", "TTFT, ms", "TPOT, ms", "failed")
    table = plain_table(Column("load", no_wrap=True), *names)
    for row in loads:
        failed = Text(row.failed, "" if row.failed.isdecimal() else "red")
        table.add_row(row.load, row.requests_per_s, row.tokens_per_s, row.ttft, row.tpot, failed)
    return table


def _remarks(board: Board) -> Iterator[str]:
    scores = [score for row in board.rows for score in row.scores]
    if any(score.low is not None for score in scores):
        yield "scores: mean and 95 % CI"
    if first := first_text(board):
        change = f"paired difference from {first} (positive is better)"
        yield f"second line: {change} and 95 % CI from samples alone (contains 0: not significant)"
    if board.curves:
        yield "TTFT, TPOT: median / 95th percentile"
    yield from dict.fromkeys(f"{score.benchmark}: {score.failure}" for score in scores if score.failure)
    if board.note:
        yield f"not evaluated: {board.note}"
