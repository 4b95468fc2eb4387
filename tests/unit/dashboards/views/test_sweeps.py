"""What the report shows of sweeps: all that was measured, in words and numbers, and nothing that could run."""

from dataclasses import replace

import pytest

from dashboards.charts.load_curve import draw_curves
from dashboards.page.html import render_page
from dashboards.page.run import newest_boards
from dashboards.views.run import build_view
from dashboards.views.sweeps import sweep_views
from eval_jobs.errors import ServerDied
from eval_jobs.run import record_of_failure
from eval_jobs.types import ProbeResult
from tests.fakes.sweeps import FakeSweeps
from tests.records import forgetting_run
from tests.reports import run_data
from tests.sweeping import CHECKPOINTS, LOADS, NOW, OTHER, RECORDED, answered, sweep_of
from tests.unit.dashboards.page.test_html import parsed
from tracker.domain.sweeps.board import Board, LoadCurve, board_of
from tracker.domain.sweeps.matrix import plans_of
from tracker.domain.sweeps.types import Turn, TurnState

SWEEP = sweep_of(loads=LOADS, endpoints=(OTHER,))
PLANS = plans_of(SWEEP, CHECKPOINTS[-1:], run=RECORDED.run_id, due_at=NOW)
TURN = Turn(sweep="nightly", due_at=NOW, state=TurnState.RUNNING, plans=PLANS, note="best: nothing has a score")
DIED = record_of_failure(PLANS[2], ServerDied("the server is gone", hint="look"), started_at=NOW, finished_at=NOW)
RECORDS = {plan.id: answered(plan, right=9 - n) for n, plan in enumerate(PLANS[:2])} | {PLANS[2].id: DIED}
RUN = forgetting_run(checkpoints=3, samples=4)


def html_of(*boards: Board) -> str:
    return render_page(build_view(replace(run_data(RUN), boards=boards)), version="0.1.0")


def test_a_leaderboard_names_targets_settings_scores_with_intervals_and_why_one_is_missing() -> None:
    (view,) = sweep_views([board_of(TURN, RECORDS)])
    assert (view.axes, view.benchmarks) == (("temperature",), ("facts", "sums", "reversal"))
    assert [(row.target, row.settings, row.mean) for row in view.rows] == [
        (f"{RECORDED.run_id}@400", ("0",), "0.900"),
        (f"{RECORDED.run_id}@400", ("0.7",), "0.800"),
        ("other", ("0",), "-"),
        ("other", ("0.7",), "-"),
    ]
    assert (view.rows[0].scores[0].score, view.rows[0].scores[0].interval) == ("0.900", "0.555 to 0.997")
    assert view.first == f"{RECORDED.run_id}@400, temperature 0"
    assert [row.scores[0].change.partition(",")[0] for row in view.rows] == ["", "−0.100", "", ""]  # noqa: RUF001
    assert view.rows[2].scores[0].note == "E-SERVE-DIED: the server is gone"
    assert view.rows[3].scores[0].note == "not evaluated yet"
    assert view.headline == "Sweep run of 2026-11-22 01:00 UTC: running, 1 evaluation pending."


def test_the_page_has_a_section_with_everything_and_none_without_sweeps() -> None:
    texts = " ".join(" ".join(parsed(html_of(board_of(TURN, RECORDS))).texts).split())
    for words in (
        "Leaderboard of nightly",
        "Change: paired difference from",
        "best: nothing has a score",
        "concurrency 1",
        "concurrency 4",
        "gone",
    ):
        assert words in texts
    assert "Sweeps" not in " ".join(parsed(html_of()).texts)


def test_a_curve_has_a_line_for_each_target_and_a_point_for_each_load() -> None:
    probes = tuple(p for p in answered(PLANS[0]).probes if isinstance(p, ProbeResult))
    curves = (LoadCurve(target="a", probes=probes), LoadCurve(target="b", probes=probes))
    drawn = draw_curves("one", curves, width=900)
    assert drawn.count('class="line s0"') == drawn.count('class="line s1"') == 2
    assert drawn.count('class="m s0"') == 4
    assert "a, concurrency 4" in drawn
    lone = (LoadCurve(target="a", probes=probes[:1]),)
    board = board_of(TURN, RECORDS)
    assert [view.curves for view in sweep_views([replace(board, curves=one) for one in (curves, lone)])] == [curves, ()]


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "\x1b[31m\u202e"])
def test_no_name_and_no_message_changes_the_page(text: str) -> None:
    plain, hostile = (board_of(replace(TURN, note=note), RECORDS) for note in ("note", text))
    rows = tuple(replace(row, target=text) for row in hostile.rows)
    curves = tuple(replace(curve, target=text) for curve in hostile.curves)
    changed = replace(hostile, sweep=text, rows=rows, curves=curves)
    assert parsed(html_of(changed)).shape == parsed(html_of(plain)).shape


def test_of_each_sweep_the_newest_turn_that_asked_something_is_shown() -> None:
    store = FakeSweeps()
    for turn in (TURN, replace(TURN, due_at=NOW.replace(hour=0)), Turn(sweep="nightly", due_at=NOW.replace(hour=3))):
        store.add(turn)
    store.append(RECORDS[PLANS[0].id])
    (board,) = newest_boards(store, ["nightly", "never"])
    assert (board.due_at, board.unanswered) == (NOW, 3)
