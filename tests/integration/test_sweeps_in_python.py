"""Results of sweeps as DataFrames: the rows of their leaderboards, with a column for each axis."""

from dataclasses import replace
from pathlib import Path

import pytest

from eval_jobs.errors import ConfigError
from eval_jobs.queue.database_sql import open_database
from tests.records import RUN
from tests.unit.tracker.cli.tables.test_sweep import RECORDS as SWEEP_RECORDS
from tests.unit.tracker.cli.tables.test_sweep import TURN as SWEEP_RUN
from tracker.adapters.history.sweeps_sql import SqlSweeps
from tracker.api.results import open as open_results
from tracker.domain.sweeps.board import board_of
from tracker.domain.tables.catalog import TABLES


def test_sweeps_are_the_rows_of_the_leaderboard_with_their_axes(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/tracker.db")
    store = SqlSweeps(engine, RUN)
    for turn in (SWEEP_RUN, replace(SWEEP_RUN, sweep="other")):
        store.add(turn)
    for record in SWEEP_RECORDS.values():
        store.append(record)
    engine.dispose()
    project = open_results(tmp_path)
    frame, board = project.sweeps("nightly"), board_of(SWEEP_RUN, SWEEP_RECORDS)
    axes = [f"set_{axis}" for axis, _ in board.rows[0].variant]
    assert axes
    fixed = frame.drop(columns=axes)
    assert {name: str(kind) for name, kind in fixed.dtypes.items()} == {
        c.name: c.kind for c in TABLES["sweeps"].columns
    }
    assert frame.columns[5 : 5 + len(axes)].tolist() == sorted(axes)
    of_plan = {
        (plan, name): row for plan, name, row in zip(frame["plan_id"], frame["benchmark"], frame.index, strict=True)
    }
    for row in board.rows:
        for score in row.scores:
            found = frame.loc[of_plan[row.plan_id, score.benchmark]]
            assert (found["target"], found["failure"]) == (row.target, score.failure)
            assert [found[axis] for axis in axes] == [value for _, value in row.variant]
            assert (found["mean"] == score.mean) or score.mean is None
    (pending,) = (row for row in board.rows if not row.scores)
    assert set(frame[frame["plan_id"] == pending.plan_id]["failure"]) == {"not evaluated yet"}
    assert set(project.sweeps()["sweep"]) == {"nightly", "other"}
    with pytest.raises(ConfigError, match=r"no sweep 'nightl' \(hint: did you mean nightly\?"):
        project.sweeps("nightl")
