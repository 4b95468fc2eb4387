"""Results as DataFrames: the numbers of the history, types whatever the data, and messages for bad input."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sqlalchemy import text

from eval_jobs.errors import ConfigError, OtherSchema
from eval_jobs.queue.database_sql import open_database, transaction
from eval_jobs.types import Cost, EvalResult, ProbeResult
from tests.alerts import alert
from tests.records import RUN, forgetting_run
from tests.requires import PROJECT
from tests.stored import store_run
from tests.unit.tracker.domain.verdicts.test_rewind import GOOD, again, first_try
from tracker.adapters.history.store_sql import SqlHistory
from tracker.api.project import Project
from tracker.api.results import open as open_results
from tracker.api.results import schema
from tracker.cli.commands.to_inspect.forgetting import command as forgetting
from tracker.domain.records.alerts import AlertState
from tracker.domain.records.losses import Acceptance, Closing, Incident
from tracker.domain.scores.summary import summarise
from tracker.domain.tables.catalog import SCORES, TABLES, VERDICTS

RECORDED = forgetting_run(checkpoints=6, samples=20)
OTHER = forgetting_run(run_id="group/other", checkpoints=3, samples=10, trouble=False)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with two runs."""
    folder = tmp_path_factory.mktemp("project") / ".tracker"
    folder.mkdir()
    engine = open_database(f"sqlite:///{folder}/tracker.db")
    history = SqlHistory(engine, folder / "samples")
    for recorded in (RECORDED, OTHER):
        store_run(history, recorded)
    engine.dispose()
    return folder


@pytest.fixture(scope="module")
def project(state: Path) -> Project:
    return open_results(state)


def test_scores_are_those_of_the_records(project: Project) -> None:
    frame = project.scores()
    assert list(frame.columns) == list(SCORES.names)
    assert [str(dtype) for dtype in frame.dtypes] == [str(column.kind) for column in SCORES.columns]
    assert frame.index.equals(frame.reset_index(drop=True).index)
    assert len(frame) == 3 * (6 + 3)
    places = list(zip(frame["run"], frame["step"], frame["benchmark"], strict=True))
    assert places == sorted(places)
    by_place = {place: row for place, (_, row) in zip(places, frame.iterrows(), strict=True)}
    for record in (*RECORDED.records, *OTHER.records):
        checkpoint = record.plan.checkpoint
        for outcome in record.outcomes:
            row = by_place[checkpoint.run_id, checkpoint.step, outcome.benchmark]
            assert row["plan_id"] == record.plan.id
            assert row["finished_at"] == record.finished_at
            if isinstance(outcome, EvalResult):
                summary = summarise(outcome)
                assert (row["score"], row["planned"], row["scored"]) == (summary.mean, summary.planned, summary.scored)
                assert (row["failure"], row["metric"]) == ("", outcome.metric)
            else:
                assert row["failure"] == outcome.code
                assert row[["score", "planned", "duration_s"]].isna().all()


def test_verdicts_are_those_of_the_reports(project: Project) -> None:
    frame = project[RUN].verdicts()
    assert list(frame.columns) == list(VERDICTS.names)
    assert [str(dtype) for dtype in frame.dtypes] == [str(column.kind) for column in VERDICTS.columns]
    found = {
        (s, b): (w, d, p)
        for s, b, w, d, p in zip(*(frame[c] for c in ("step", "benchmark", "word", "delta", "p_worse")), strict=True)
    }
    for report in RECORDED.reports:
        for verdict in report.verdicts:
            word, delta, p_worse = found[report.step, verdict.benchmark]
            assert word == verdict.word
            for one in verdict.comparisons[:1]:
                assert (delta, p_worse) == (one.delta, one.p_worse)
    assert (frame["word"].min(), frame["word"].cat.ordered) == ("missing", True)


def test_runs_benchmarks_and_steps_narrow_what_is_read(project: Project) -> None:
    assert set(project["other"].scores()["run"]) == {"group/other"}
    assert set(project["*"].scores()["run"]) == {RUN, "group/other"}
    assert set(project[[RUN, "gr*"]].scores()["run"]) == {RUN, "group/other"}
    sums = project[RUN].scores("sums", steps=slice(200, 400))
    assert (sums["step"].tolist(), set(sums["benchmark"])) == ([200, 300, 400], {"sums"})
    assert project.scores(steps="latest").groupby("run")["step"].max().to_dict() == {RUN: 600, "group/other": 300}
    assert set(project.scores(steps=[100, 300])["step"]) == {100, 300}
    assert set(project.verdicts(steps=200)["step"]) == {200}
    assert set(project[RUN].scores(steps=project.scores()["step"].max())["step"]) == {600}
    assert set(project.scores(steps=np.array([100, 200]))["step"]) == {100, 200}  # type: ignore[arg-type]


def typed(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return the frame, whose columns and types are those of its definition."""
    table = TABLES[name]
    assert list(frame.columns) == list(table.names)
    assert [str(dtype) for dtype in frame.dtypes] == [str(column.kind) for column in table.columns]
    return frame


def test_checkpoints_are_contents_of_steps_and_gaps(project: Project) -> None:
    frame = typed(project[RUN].checkpoints(), "checkpoints")
    assert frame["step"].tolist() == [100, 200, 300, 400, 500, 550, 600]
    gap = frame[frame["gap"] != ""].iloc[0]
    assert (gap["step"], gap["gap"], gap["digest"]) == (550, RECORDED.gaps[0].code, "")
    assert gap["reason"] == RECORDED.gaps[0].message
    assert gap[["word", "ready_at", "judged_at"]].isna().all()
    assert frame["word"].tolist()[2] == "missing"
    assert project[RUN].checkpoints(steps=550)["gap"].tolist() == [RECORDED.gaps[0].code]


def test_costs_and_latency_are_those_of_the_records(project: Project) -> None:
    latency = typed(project[RUN].latency(), "latency")
    probes = {record.plan.checkpoint.step: record.probes for record in RECORDED.records}
    assert latency["step"].tolist() == sorted(probes)
    for _, row in latency.iterrows():
        (probe,) = probes[row["step"]]
        assert isinstance(probe, ProbeResult)
        assert probe.ttft_ms is not None
        assert (row["ttft_p50_ms"], row["completed"]) == (probe.ttft_ms.p50, probe.completed)
    requests = typed(project[RUN].latency(steps=[100, 200], requests=True), "requests")
    assert set(requests["side"]) <= {"candidate", "reference"}
    costs = typed(project.costs(), "costs")
    assert len(costs) == sum(record.cost is not None for record in (*RECORDED.records, *OTHER.records))


def test_losses_are_those_of_the_history(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/tracker.db")
    history = SqlHistory(engine, tmp_path / "samples")
    for record in RECORDED.records:
        history.append(record)
    open_one = Incident(
        run_id=RUN, suite="skills", benchmark="sums", opened_step=500, onset_step=400, opened_digest="d"
    )
    accepted = replace(open_one, benchmark="facts", closed_step=600, closed_by=Closing.ACCEPTED)
    for incident in (open_one, accepted):
        history.append_incident(incident)
    at = RECORDED.records[0].finished_at
    history.append_acceptance(
        Acceptance(run_id=RUN, step=600, benchmark="facts", from_step=400, reason="=new data", accepted_at=at)
    )
    history.append_alert(alert(step=500, state=AlertState.RESOLVED, run_id=RUN))
    engine.dispose()
    project = open_results(tmp_path)
    alerts = typed(project.alerts(), "alerts")
    assert alerts[["run", "step", "state", "benchmark"]].to_numpy().tolist() == [[RUN, 500, "resolved", "sums"]]
    losses = typed(project.losses(), "losses")
    assert losses[["benchmark", "series", "closed_by", "reason"]].to_numpy().tolist() == [
        ["facts", 1, "accepted", "=new data"],
        ["sums", 1, "", ""],
    ]
    assert losses["closed_step"].tolist() == [600, pd.NA]
    log = typed(project.log(), "log")
    assert log[["run", "step", "kind", "subject", "reason"]].to_numpy().tolist() == [
        [RUN, 600, "accepted", "facts", "=new data"]
    ]
    assert project.losses(still_open=True)["benchmark"].tolist() == ["sums"]


def settings_at(folder: Path, state: Path, phases: str) -> Path:
    """Write the settings of a project with another state folder."""
    settings = folder / "tracker.toml"
    own = f'[run]\nname = "{RUN}"\noutput_dir = "out"\nstate_dir = "{state}"\n[[benchmark]]\nbenchmark = "gsm8k"\n'
    settings.write_text(own + phases, encoding="utf-8")
    return settings


def test_forgetting_is_that_of_the_command(state: Path, tmp_path: Path) -> None:
    phases = "".join(f'[[phase]]\nname = "{p.name}"\nfrom_step = {p.from_step}\n' for p in RECORDED.phases)
    settings = settings_at(tmp_path, state, phases)
    shown = CliRunner().invoke(forgetting, [RUN, "--json", "--config", str(settings)])
    wanted = {one["benchmark"]: one["whole"] for one in json.loads(shown.stdout)["result"]["benchmarks"]}
    frame = typed(open_results(settings)[RUN].forgetting(), "forgetting")
    assert list(frame["benchmark"]) == sorted(wanted)
    for _, row in frame.iterrows():
        of_command = wanted[row["benchmark"]]
        found, flow = of_command["forgetting"], of_command["flow"]
        for name in ("forgetting", "ci_low", "ci_high", "p_value", "raw", "raw_by_chance"):
            assert row[name] == found[name]
        assert (row["peak"], row["now"]) == (found["peak"]["mean"], found["last"]["mean"])
        assert (row["peak_first"], row["peak_last"]) == (found["peak"]["first_step"], found["peak"]["last_step"])
        if flow is None:
            assert row[["lost", "gained", "net_lost", "lost_by_chance"]].isna().all()
        else:
            assert (row["lost"], row["net_lost"]) == (flow["lost"], flow["net_lost"])
            assert row["lost_by_chance"] == flow["expected_false"]
    by_subset = typed(open_results(state)[RUN].forgetting(subsets=True), "forgetting")
    assert set(frame["benchmark"]) == set(by_subset[by_subset["subset"] == ""]["benchmark"])


def test_the_matrix_of_a_run_has_its_change_from_the_best_and_its_levels_after_phases(
    project: Project, state: Path, tmp_path: Path
) -> None:
    scores = project[RUN].scores("facts").set_index("step")["score"]
    matrix = project[RUN].forgetting_matrix()
    assert (matrix.index.name, matrix.columns.name) == ("benchmark", "step")
    change = matrix.T["facts"].dropna()
    assert change.tolist() == pytest.approx((scores - scores.expanding().max()).loc[change.index].tolist())
    phases = '[[phase]]\nname = "early"\nfrom_step = 0\n[[phase]]\nname = "late"\nfrom_step = 300\n'
    levels = open_results(settings_at(tmp_path, state, phases))[RUN].forgetting_matrix(by="phase")
    assert (levels.index.tolist(), sorted(levels.columns)) == (["early", "late"], ["facts", "reversal", "sums"])
    assert levels.loc["late", "facts"] == pytest.approx(scores.loc[[500, 600]].mean())
    with pytest.raises(ConfigError, match=r"a matrix is of one run, and there are 2 \(hint: choose one"):
        project.forgetting_matrix()
    with pytest.raises(ConfigError, match='pass "step" or "phase"'):
        project[RUN].forgetting_matrix(by="run")  # type: ignore[arg-type]


def test_events_are_the_changes_of_single_samples(project: Project) -> None:
    frame = typed(project.events("facts"), "events")
    right: dict[tuple[str, str], bool] = {}
    wanted = []
    for record in (*OTHER.records, *RECORDED.records):
        checkpoint = record.plan.checkpoint
        (facts,) = (result for result in record.results if result.benchmark == "facts")
        is_whole = sum(sample.score is not None for sample in facts.samples) >= 0.95 * len(facts.samples)
        for sample in facts.samples if is_whole else ():
            place, was = (checkpoint.run_id, sample.sample_id), right.get((checkpoint.run_id, sample.sample_id))
            if sample.score is None or bool(sample.score) == bool(was):
                continue
            event = "forgotten" if was else ("learned" if was is None else "relearned")
            right[place] = bool(sample.score)
            wanted.append((checkpoint.run_id, checkpoint.step, "facts", sample.subset, event, sample.sample_id))
    assert list(frame.itertuples(index=False, name=None)) == sorted(wanted)


ASKED: dict[str, tuple[Callable[[Project], object], str]] = {
    "run": (lambda p: p["tiny-forgeting"], r"no run 'tiny-forgeting' \(hint: did you mean tiny-forgetting\?"),
    "pattern": (lambda p: p["sft-*"], r"no run 'sft-\*' \(hint: known runs: group/other, tiny-forgetting"),
    "number": (lambda p: p[7], "7 is not the name of a run"),  # type: ignore[index]
    "benchmark": (lambda p: p.scores("sum"), r"no benchmark 'sum' \(hint: did you mean sums\?"),
    "events": (lambda p: p.events("fact"), r"no benchmark 'fact' \(hint: did you mean facts\?"),
    "step": (lambda p: p.scores(steps=150), r"no evaluated checkpoint at step 150 \(hint: newest steps: 100, 200"),
    "truth": (lambda p: p.scores(steps=True), "True is not a step"),
    "text": (lambda p: p.scores(steps="600"), r"'600' is not a step \(hint: pass an integer"),  # type: ignore[arg-type]
    "fraction": (lambda p: p.scores(steps=600.0), "600.0 is not a step"),  # type: ignore[arg-type]
    "mixed": (lambda p: p.scores(steps=[600, "latest"]), "'latest' is not a step"),  # type: ignore[list-item]
    "ends": (lambda p: p.scores(steps=slice("a", "b")), "'a' is not a step"),
    "stride": (lambda p: p.scores(steps=slice(0, 300, 2)), "a slice of steps has no stride"),
    "no run": (lambda p: p[[]], "no run is named"),
    "another run": (lambda p: p[RUN]["group/other"], "no run 'group/other'"),
    "table": (lambda _: schema("score"), r"no table 'score' \(hint: did you mean scores\?"),
}


@pytest.mark.parametrize("case", ASKED)
def test_what_does_not_exist_is_refused_with_what_does(project: Project, case: str) -> None:
    ask, message = ASKED[case]
    with pytest.raises(ConfigError, match=message):
        ask(project)


def test_every_column_has_a_meaning() -> None:
    for name, table in TABLES.items():
        frame = schema(name)
        assert frame["column"].tolist() == list(table.names)
        assert frame["meaning"].str.endswith(".").all()


def test_of_a_step_that_was_evaluated_again_the_newest_counts(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/tracker.db")
    history = SqlHistory(engine, tmp_path / "samples")
    first = RECORDED.records[0]
    later = replace(first, plan=replace(first.plan, id="again"), finished_at=first.finished_at + timedelta(hours=1))
    for record in (replace(later, outcomes=later.outcomes[:1]), first):
        history.append(record)
    engine.dispose()
    found = open_results(tmp_path).scores()
    by_benchmark = dict(zip(found["benchmark"], found["plan_id"], strict=True))
    assert by_benchmark == {"facts": "again", "reversal": first.plan.id, "sums": first.plan.id}


def test_checkpoints_that_training_left_behind_have_no_scores(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/tracker.db")
    history = SqlHistory(engine, tmp_path / "samples")
    records = (*first_try(), *again([1200, 1300], GOOD))
    probes, cost = RECORDED.records[0].probes, Cost(loading_s=1.0, evaluating_s=2.0, probing_s=3.0)
    for record in records:
        history.append(replace(record, probes=probes, cost=cost))
    engine.dispose()
    project = open_results(tmp_path)
    found = project.scores()
    assert project.latency()["step"].tolist() == found["step"].tolist()
    costs = typed(project.costs(), "costs")
    assert (len(costs), set(costs["wall_s"])) == (len(records), {6.0})
    assert found["step"].tolist() == list(range(100, 1400, 100))
    assert found["plan_id"].tolist()[-2:] == [r.plan.id for r in again([1200, 1300], GOOD)]


def test_the_documentation_names_every_table_and_its_code_runs(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (PROJECT / "docs/how-to/python.md").read_text(encoding="utf-8")
    methods = set(re.findall(r"^\| `(\w+)\(\)`", page, re.MULTILINE))
    assert methods - {"forgetting_matrix"} | {"requests"} == set(TABLES)
    settings_at(state.parent, state, "")
    monkeypatch.chdir(state.parent)
    for file in ("docs/how-to/python.md", "README.md"):
        text_of = (PROJECT / file).read_text(encoding="utf-8")
        (code,) = re.findall(r"```python\n(.*?)```", text_of, re.DOTALL)
        exec(code.replace("my-run", RUN).replace("gsm8k", "sums"), {})  # noqa: S102 - our own page


def test_a_frame_is_the_callers(project: Project) -> None:
    changed = project.scores()
    changed["score"] = 7.0
    assert (project.scores()["score"] != 7.0).all()


def test_tables_of_an_older_version_are_left_to_a_command(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/tracker.db")
    SqlHistory(engine, tmp_path / "samples")
    with transaction(engine) as connection:
        connection.execute(text("UPDATE checkpoint_tracker_version SET version_num = '0002'"))
    engine.dispose()
    with pytest.raises(OtherSchema, match=r"schema version 0002.*run any `tracker` command once"):
        open_results(tmp_path)


PLACES = {
    "nothing": ("missing.toml", "missing.toml not found"),
    "a folder without results": (".", "no database"),
    "a password": ("postgresql://me:secret@host/name", "the database URL contains a password"),
    "another scheme": ("mysql://host/name", "invalid database URL"),
}


@pytest.mark.parametrize("case", PLACES)
def test_a_place_without_results_is_refused(tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    place, message = PLACES[case]
    with pytest.raises(ConfigError, match=message):
        open_results(place)


def test_settings_name_the_place(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = state.parent
    settings_at(folder, state, "")
    monkeypatch.chdir(folder)
    for place in ("tracker.toml", folder, f"sqlite:///{state}/tracker.db"):
        assert len(open_results(place).scores()) == 27
    (folder / "tracker.toml").write_text("[run]\nstate_dir = 7\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"run\.state_dir: Input is not a valid path"):
        open_results()
