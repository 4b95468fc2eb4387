"""Runs as DataFrames: their counts, their findings, what waits for them, and their training curves."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from eval_jobs.errors import ConfigError
from eval_jobs.queue.database_sql import open_database
from eval_jobs.queue.sql_queue import SqlQueue
from tests.fakes.curves import FakeCurves
from tests.records import RUN, checkpoint_of, forgetting_run
from tests.stored import store_run
from tracker.adapters.database.lead_sql import SqlLead
from tracker.adapters.health.store_sql import SqlHealthStore
from tracker.adapters.history.store_sql import SqlHistory
from tracker.api.following import followed
from tracker.api.project import Project
from tracker.api.results import open as open_results
from tracker.app.steps.best_of_run import best_of_run
from tracker.app.steps.curves import keep_curves
from tracker.domain.health.run_state import RunState
from tracker.domain.health.stored import ReadNow
from tracker.domain.overview.run import overview
from tracker.domain.overview.standings import headline
from tracker.domain.records.types import CurvePoint
from tracker.domain.tables.catalog import TABLES

RECORDED = forgetting_run(checkpoints=6, samples=20)
OTHER = forgetting_run(run_id="group/other", checkpoints=3, samples=10, trouble=False)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with two runs."""
    folder = tmp_path_factory.mktemp("project")
    engine = open_database(f"sqlite:///{folder}/tracker.db")
    history = SqlHistory(engine, folder / "samples")
    for recorded in (RECORDED, OTHER):
        store_run(history, recorded)
    engine.dispose()
    return open_results(folder)


def test_runs_are_counted(project: Project) -> None:
    frame = project.runs()
    assert frame["run"].tolist() == ["group/other", RUN]
    assert frame["checkpoints"].tolist() == [3, 6]
    assert (frame["gaps"].tolist(), frame["first_step"].tolist()) == ([0, 1], [100, 100])
    assert list(frame["last_at"]) == [recorded.records[-1].finished_at for recorded in (OTHER, RECORDED)]
    assert project[RUN].runs()["last_step"].tolist() == [600]
    assert project.runs(headlines=False)["headline"].tolist() == ["", ""]
    assert frame["headline"].tolist() == [headline(overview(one.reports, one.gaps)) for one in (OTHER, RECORDED)]
    assert project.runs(best=False)["best_step"].isna().all()
    for run, step in zip(frame["run"], frame["best_step"], strict=True):
        best = best_of_run(run, project._runs.history)
        assert best is not None
        assert step == best.checkpoint.step
    unknown = open_results(f"sqlite:///{project.place}/tracker.db").runs()
    assert unknown["best_step"].isna().all(), "without the folder of the samples, all else is known"
    assert unknown["headline"].tolist() == frame["headline"].tolist()
    assert (repr(project), repr(project[RUN])) == tuple(f"Project({project.place}: {n})" for n in ("all runs", RUN))


def test_what_waits_and_the_watched_folder_are_those_of_the_run(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/tracker.db")
    history, queue = SqlHistory(engine, tmp_path / "samples"), SqlQueue(engine)
    now = RECORDED.records[0].finished_at
    for record in (*RECORDED.records[:3], *OTHER.records[:1]):
        queue.add(record.plan, now=now)
    history.append(OTHER.records[0])
    history.append(RECORDED.records[0])
    assert queue.claim(worker="one", now=now, lease_until=now + timedelta(seconds=60)) is not None
    lead = SqlLead(engine, "group", "/data/out")
    assert lead.take(now)
    lead.release()
    frame = open_results(tmp_path).runs().set_index("run")
    assert frame[["waiting", "running"]].sum().tolist() == [3, 1]
    assert frame.loc[RUN, ["waiting", "running"]].sum() == 3
    assert frame["output_dir"].to_dict() == {"group/other": "/data/out/other", RUN: ""}


def test_curves_need_no_tracking_and_leave_out_what_a_restart_discarded(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/tracker.db")
    history = SqlHistory(engine, tmp_path / "samples")
    history.append(RECORDED.records[0])
    log = (*((step, 4.0 - step / 10) for step in (10, 20, 30)), (20, 1.5))  # the last one after a restart
    lines = [CurvePoint(key="train/loss", step=step, value=value) for step, value in log]
    logs = SqlHealthStore(engine, "group/other")
    reader, now = logs.read_so_far().reader, RECORDED.records[0].finished_at
    run = {"group/other": RunState()}
    new = ReadNow(reader=reader, read_at=now, runs=run, streams={}, incidents=(), points={"group/other": lines})
    assert logs.save(new)
    saved = FakeCurves(
        [CurvePoint(key="train/loss", step=10, value=2.5), CurvePoint(key="train/lr", step=10, value=0.1)]
    )
    for _ in range(2):  # what is found again is not stored again
        keep_curves(checkpoint_of(RUN, 100), saved, history)
    assert len(history.stated_points(RUN)) == 2
    project = open_results(tmp_path)
    frame = project.curves()
    assert [str(kind) for kind in frame.dtypes] == ["str", "int64", "category", "float64"]
    assert list(frame.itertuples(index=False, name=None)) == [
        ("group/other", 10, "train/loss", 3.0),
        ("group/other", 20, "train/loss", 1.5),
        (RUN, 10, "train/loss", 2.5),
        (RUN, 10, "train/lr", 0.1),
    ]
    only = project[RUN].curves("train/lr")
    pd.testing.assert_frame_equal(
        only, frame[frame["key"] == "train/lr"].reset_index(drop=True), check_categorical=False
    )
    with pytest.raises(ConfigError, match=r"no curve 'train/los' .*did you mean train/loss\?"):
        project.curves(["train/los"])


def test_a_project_without_results_has_every_table_with_its_columns(tmp_path: Path) -> None:
    SqlHistory(open_database(f"sqlite:///{tmp_path}/tracker.db"), tmp_path / "samples")
    (tmp_path / "samples").mkdir(exist_ok=True)
    project = open_results(tmp_path)
    frames = {name: getattr(project, name)() for name in TABLES if name not in ("samples", "requests", "events")}
    frames |= {"requests": project.latency(requests=True), "samples": project.samples().to_pandas()}
    for name, frame in frames.items():
        known = {column.name: str(column.kind) for column in TABLES[name].columns if column.name in frame.columns}
        assert {column: str(kind) for column, kind in frame.dtypes.items()} == known, name
        assert len(frame) == 0
    with pytest.raises(ConfigError, match=r"no benchmark 'x' \(hint: none is known yet|no benchmark 'x'"):
        project.events("x")
    with pytest.raises(ConfigError, match="there is nothing to plot yet"):
        project.plot_scores()
    assert "<table" in project._repr_html_()


class Turns:
    """A clock of which each wait does the next thing."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self._steps = list(steps)

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self._steps.pop(0)()

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        return 0.0


def test_following_waits_for_a_database_that_is_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    database = tmp_path / "tracker.db"
    engine = open_database(f"sqlite:///{database}")
    history = SqlHistory(engine, tmp_path / "samples")

    def judged(number: int) -> None:
        history.append(RECORDED.records[number])
        history.append_reports(RECORDED.reports[number])

    judged(0)
    project = open_results(tmp_path)
    away = partial(database.rename, tmp_path / "away.db")
    back = partial((tmp_path / "away.db").rename, database)
    clock = Turns(partial(judged, 1), away, lambda: None, back, partial(judged, 2))
    found = followed(project._runs, None, clock)
    assert next(found)["step"].unique().tolist() == [200]
    assert next(found)["step"].unique().tolist() == [300]
    assert [record.message.partition(":")[0] for record in caplog.records] == ["cannot read verdicts, trying again"]
    found.close()
    earlier = followed(project._runs, 200, Turns())
    assert [next(earlier)["step"].iloc[0] for _ in range(2)] == [200, 300]
