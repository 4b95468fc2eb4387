"""A sweep's results in a terminal: everything is said at any width, and no name disturbs it."""

from dataclasses import replace

import pytest
from rich.console import Console

from eval_jobs.errors import ServerDied
from eval_jobs.run import record_of_failure
from tests.sweeping import CHECKPOINTS, LOADS, NOW, OTHER, RECORDED, answered, sweep_of
from tracker.cli.tables.sweep import board_lines, list_table, listed, turn_change_text, turn_text
from tracker.domain.sweeps.board import Board, board_of
from tracker.domain.sweeps.matrix import plans_of
from tracker.domain.sweeps.types import Turn, TurnState

SWEEP = sweep_of(loads=LOADS, endpoints=(OTHER,))
PLANS = plans_of(SWEEP, CHECKPOINTS[-1:], run=RECORDED.run_id, due_at=NOW)
TURN = Turn(sweep="nightly", due_at=NOW, state=TurnState.RUNNING, plans=PLANS, note="best: nothing has a score")
DIED = record_of_failure(PLANS[2], ServerDied("the server is gone", hint="look"), started_at=NOW, finished_at=NOW)
RECORDS = {plan.id: answered(plan, right=9 - n) for n, plan in enumerate(PLANS[:2])} | {PLANS[2].id: DIED}


def printed(board: Board, width: int = 110) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        for line in board_lines(board):
            console.print(line)
    return captured.get()


def test_scores_intervals_loads_failures_and_what_was_not_asked_are_said() -> None:
    said = " ".join(printed(board_of(TURN, RECORDS)).split())
    for words in (
        "nightly, sweep run of 2026-11-22 01:00 UTC: running, 1 evaluation pending",
        "0.900 0.55-1.00",
        "−0.100, −0.",  # noqa: RUF001 - a true minus sign
        "scores: mean and 95 % CI",
        "second line: paired difference from",
        "(positive is better) and 95 % CI from samples alone (contains 0: not significant)",
        "failed",
        "E-SERVE-DIED: the server is gone",
        "latency of other",
        "concurrency 1",
        "not evaluated: best: nothing has a score",
    ):
        assert words in said


@pytest.mark.parametrize("width", [80, 110])
def test_no_width_takes_a_latency_away(width: int) -> None:
    said = " ".join(printed(board_of(TURN, RECORDS), width).split())
    assert "80.0 / 80.0" in said


def test_a_name_that_would_clear_the_screen_is_shown_and_not_obeyed() -> None:
    board = board_of(TURN, RECORDS)
    rows = tuple(replace(row, target="\x1b[2J[bold]x[/bold]\n\x07") for row in board.rows)
    said = printed(replace(board, rows=rows, note="\x1b[31mred", sweep="\x1b]0;title\x07"))
    assert "\x1b[2J" not in said
    assert "\x1b[31mred" not in said
    assert "\x07" not in said
    assert "[bold]x[/bold]" in said


def test_a_turn_in_words() -> None:
    assert turn_text(TURN, 3) == "running, 3 of 4 evaluations: best: nothing has a score"
    assert turn_change_text(TURN) == "started, 4 evaluations; not evaluated: best: nothing has a score"
    done = replace(TURN, state=TurnState.DONE, by_hand=True, note="", missed=4)
    assert turn_text(done, 4) == "on demand, done, 4 evaluations, covers 5 scheduled times"
    assert turn_change_text(replace(done, state=TurnState.SKIPPED, missed=0, note="no")) == "on demand, skipped: no"


def test_the_list_says_when_each_comes_and_what_became_of_it() -> None:
    console = Console(width=80)
    with console.capture() as captured:
        console.print(
            list_table([listed(SWEEP, TURN, 3, NOW), listed(sweep_of("other", timetable=None), None, 0, NOW)])
        )
    said = captured.get()
    for words in ("next 2026-11-22 02:00 UTC", "running, 3 of 4 evaluations", "on demand"):
        assert words in said


def test_of_two_sweeps_at_one_time_each_has_its_own_number() -> None:
    console, waits = Console(width=80), Turn(sweep="other", due_at=NOW)
    with console.capture() as captured:
        console.print(list_table([listed(SWEEP, TURN, 3, NOW), listed(sweep_of("other"), waits, 0, NOW)]))
    assert "running, 3 of 4 evaluations" in captured.get()
