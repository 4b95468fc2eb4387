"""The commands, Python and exported files give the same numbers, to the digit, on both databases.

The project has everything that is unusual: gaps, failures, a rewind, screens, imported means, two suites, subsets,
repeats, a metric where lower is better, and names that are hard to write.
"""

import gc
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner

from eval_jobs.queue.database_sql import open_database
from eval_jobs.types import EvalRecord
from tests.alerts import alert
from tests.log_reading import read_incident
from tests.postgres import PostgresServer
from tests.records import forgetting_run
from tests.shared_servers import shared
from tests.unit.tracker.domain.judging import run_of
from tests.unit.tracker.domain.making import plan_of, suite_of
from tests.unit.tracker.domain.verdicts.test_bad_input import means
from tests.unit.tracker.domain.verdicts.test_rewind import GOOD, Followed, again, first_try
from tests.unit.tracker.domain.verdicts.test_screening import parts_of, whole_record
from tracker.adapters.health.store_sql import SqlHealthStore
from tracker.adapters.history.store_sql import SqlHistory
from tracker.api.project import Project
from tracker.api.results import open as open_results
from tracker.cli.main import cli
from tracker.domain.health.run_state import RunState
from tracker.domain.health.stored import ReadNow
from tracker.domain.records.display import score_text, steps_text
from tracker.domain.records.types import CurvePoint, Report

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

HOSTILE = '训练 "=1+1", <img src=x onerror=alert(1)>\t'.strip()
MIXED = forgetting_run(run_id=HOSTILE, checkpoints=8, samples=20)


def of_run(name: str, records: Iterable[EvalRecord]) -> list[EvalRecord]:
    """Return the records as those of another run, with plans of their own."""
    found = []
    for record in records:
        checkpoint = replace(record.plan.checkpoint, run_id=name)
        plan = plan_of(checkpoint.step, record.plan.suite, run_id=name, digest=f"{name}-{checkpoint.digest}"[:64])
        plan = replace(record.plan, id=plan.id[::-1], checkpoint=replace(checkpoint, digest=plan.checkpoint.digest))
        found.append(replace(record, plan=plan))
    return found


def unusual() -> Iterator[Sequence[EvalRecord]]:
    """Yield the records of runs, in the order of their evaluation."""
    yield [*first_try(), *again(range(1200, 1500, 100), GOOD)]  # training went back
    screen, rest = parts_of(whole_record(400))
    yield of_run("screened", [whole_record(100), whole_record(200), whole_record(300), screen, rest])
    yield of_run("imported", means((0.5, 0.02), (0.6, None), (0.2, 0.01)))
    yield of_run("gruppe/niedriger", [fewer_is_better(one) for one in run_of(180, 150, 190, 170)])
    twice = run_of(150, 160, 40, 150)
    second = [replace(one, plan=plan_of(one.plan.checkpoint.step, suite_of(["sums"], name="zweite"))) for one in twice]
    yield of_run("two suites", [one for pair in zip(twice, second, strict=True) for one in pair])


def fewer_is_better(record: EvalRecord) -> EvalRecord:
    """Return the record with four answers to each question, in two subsets, of a metric where 0 is best."""
    found = []
    for result in record.results:
        samples = []
        for place, one in enumerate(result.samples):
            samples.append(replace(one, sample_id=f"q{place // 4}", repeat=place % 4, subset=f"s{place % 8 // 4}"))
        found.append(replace(result, samples=tuple(samples), higher_is_better=False, metric="wer"))
    return replace(record, outcomes=tuple(found))


@dataclass(frozen=True, kw_only=True)
class Place:
    """A project: its settings, and what Python reads of it."""

    settings: Path
    project: Project

    def asked(self, *command: str) -> Any:
        """Return what a command prints as JSON."""
        found = CliRunner().invoke(cli, [*command, "--json", "--config", str(self.settings)], catch_exceptions=False)
        assert found.exit_code == 0, found.output
        return json.loads(found.stdout)["result"]

    def exported(self, table: str) -> list[dict[str, Any]]:
        """Return what is exported of a table."""
        arguments = ["export", table, "--format", "jsonl", "--config", str(self.settings)]
        found = CliRunner().invoke(cli, arguments, catch_exceptions=False)
        assert found.exit_code == 0, found.output
        return [json.loads(line) for line in found.stdout.splitlines()]

    def report(self, run: str) -> str:
        """Return the text of the report on a run."""
        page = self.settings.parent / "report.html"
        arguments = ["report", run, "--output", str(page), "--config", str(self.settings)]
        found = CliRunner().invoke(cli, arguments, catch_exceptions=False)
        assert found.exit_code == 0, found.output
        return unescape(page.read_text(encoding="utf-8"))

    def rows(self, table: str, frame: pd.DataFrame) -> list[dict[str, Any]]:
        """Return the rows of a frame, None for what is missing; they are those of the exported file."""
        plain = frame.copy()
        for name in plain.columns:
            if str(plain[name].dtype).startswith("datetime"):
                plain[name] = plain[name].dt.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        plain = plain.astype(object).where(frame.notna(), None)
        exported = self.exported(table)
        assert plain.to_dict("records") == exported
        return exported


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("same")
    (folder / ".tracker").mkdir()
    own = f'[run]\nname = {json.dumps(HOSTILE)}\noutput_dir = "out"\n[[benchmark]]\nbenchmark = "gsm8k"\n'
    own += "[tracking]\nenabled = false\n"
    if request.param == "sqlite":
        yield filled(folder, own, f"sqlite:///{folder}/.tracker/tracker.db")
    else:
        with shared(PostgresServer) as server:
            url = server.new_database()
            found = filled(folder, f'{own}[store]\ndatabase = "{url}"\n', url)
            yield found
            found.project._runs.opened.database.dispose()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()  # connections of the commands, which ran in this process and not in one of their own


def filled(folder: Path, settings: str, url: str) -> Place:
    """Write the results of all runs."""
    (folder / "tracker.toml").write_text(settings, encoding="utf-8")
    engine = open_database(url)
    history = SqlHistory(engine, folder / ".tracker/samples")
    store(history, MIXED.records, MIXED.reports)
    for gap in MIXED.gaps:
        history.append_gap(gap)
    own = replace(alert(), run_id=HOSTILE)
    history.append_alert(own)
    for records in unusual():
        run = Followed()
        for record in records:
            run.take(record)
        store(history, records, run.reports)
        for one in run.alerts:
            history.append_alert(one)
    followed(SqlHealthStore(engine, HOSTILE))
    engine.dispose()
    return Place(settings=folder / "tracker.toml", project=open_results(folder / "tracker.toml"))


def followed(logs: SqlHealthStore) -> None:
    """Write what the logs of the training show."""
    state, at = RunState(run_id=HOSTILE), datetime(2026, 1, 1, tzinfo=UTC)
    state.steps.last = 1198
    incident = replace(read_incident("RuntimeError: CUDA error: an illegal memory access"), run_id=HOSTILE)
    points = {HOSTILE: [CurvePoint(key="train/loss", step=step, value=2.0 / step) for step in (10, 20, 30)]}
    new = ReadNow(
        reader=logs.read_so_far().reader,
        read_at=at,
        runs={HOSTILE: state},
        streams={},
        incidents=[incident],
        points=points,
    )
    assert logs.save(new)


def store(history: SqlHistory, records: Iterable[EvalRecord], reports: Iterable[Report]) -> None:
    for record in records:
        history.append(record)
    for report in reports:
        history.append_reports(report)
        for incident in report.incidents:
            history.append_incident(incident)


def test_verdicts_are_those_of_the_history(place: Place) -> None:
    rows = {}
    for row in place.rows("verdicts", place.project.verdicts()):
        rows[row["plan_id"], row["benchmark"], row["subset"], row["measure"]] = row
    found = 0
    for report in place.asked("history")["reports"]:
        for verdict in (*report["verdicts"], *report["findings"]):
            key = (report["plan_id"], verdict["benchmark"], verdict["subset"], verdict["measure"])
            if key not in rows:
                continue  # of a checkpoint that training left behind, or replaced by a later evaluation
            row = rows[key]
            found += 1
            assert (row["word"], row["reason"]) == (verdict["word"], verdict["reason"])
            assert (row["score"], row["coverage"]) == (verdict["score"], verdict["coverage"])
            for comparison in verdict["comparisons"][:1]:
                names = (
                    "baseline",
                    "delta",
                    "ci_low",
                    "ci_high",
                    "p_worse",
                    "p_better",
                    "n_common",
                    "n_lost",
                    "n_gained",
                )
                expected = {name: comparison[name] for name in names}
                if verdict["drop"] and verdict["word"] not in ("recovered", "transient"):  # an open loss
                    of_loss = verdict["drop"].keys() & set(names) - {"p_worse"}  # p is that of the deciding test
                    expected |= {name: verdict["drop"][name] for name in of_loss}
                assert {name: row[name] for name in names} == expected
    assert found == len(rows) > 30
    assert {row["run"] for row in rows.values()} == set(place.project.runs()["run"])


def test_scores_are_those_of_the_verdicts_and_of_the_samples(place: Place) -> None:
    rows = place.rows("scores", place.project.scores())
    samples = place.project.samples().to_pandas()
    by_place = samples.groupby(["plan_id", "benchmark"], observed=True)["score"]
    means, counts = by_place.mean(), by_place.count()
    compared = 0
    for row in rows:
        key = (row["plan_id"], row["benchmark"])
        if key in means.index and row["score"] is not None:
            compared += 1
            assert row["score"] == pytest.approx(means[key], rel=1e-12)
            assert (
                row["scored"]
                == counts[key]
                - (samples["status"] == "truncated")[
                    (samples["plan_id"] == key[0]) & (samples["benchmark"] == key[1])
                ].sum()
            )
    assert compared > 25
    assert {row["metric"] for row in rows if not row["higher_is_better"]} == {"wer"}
    assert {row["failure"] for row in rows} > {""}


def test_gaps_costs_alerts_and_forgetting_are_those_of_the_commands(place: Place) -> None:
    gaps = [row for row in place.rows("checkpoints", place.project.checkpoints(left_behind=True)) if row["gap"]]
    wanted = place.asked("history")["gaps"]
    assert [(row["run"], row["step"], row["gap"]) for row in gaps] == [
        (one["run_id"], one["step"], one["code"]) for one in wanted
    ]
    costs = {row["plan_id"]: row for row in place.rows("costs", place.project.costs())}
    asked = [row for run in place.asked("costs") for row in run["checkpoints"]]
    assert len(costs) == len(asked)
    alerts = place.rows("alerts", place.project.alerts())
    firing = {row["fingerprint"]: row["message"] for row in alerts if row["run"] == HOSTILE}
    assert firing == {one["fingerprint"]: one["message"] for one in place.asked("alerts", "list")["open"]}
    assert (len(firing), len(alerts)) == (1, 4)
    log = [row for row in place.rows("log", place.project.log()) if row["run"] == HOSTILE]
    names = ("number", "kind", "step", "subject", "before", "after", "reason")
    assert [[row[name] for name in names] for row in log] == [
        [one[name] for name in names] for one in place.asked("log", "--last", "0") if one["run_id"] == HOSTILE
    ]
    assert [row["kind"] for row in log] == ["gap", "alert"]
    frame = place.project.forgetting(subsets=True)
    rows: Mapping[tuple[str, str, str], dict[str, Any]] = {
        (row["run"], row["benchmark"], row["subset"]): row for row in place.rows("forgetting", frame)
    }
    for run in place.project.runs()["run"]:
        for benchmark in place.asked("forgetting", run)["benchmarks"]:
            for line in (benchmark["whole"], *benchmark["subsets"]):
                row = rows[run, benchmark["benchmark"], line["subset"]]
                assert row["samples"] == line["samples"]
                known = line["forgetting"] or dict.fromkeys(("forgetting", "ci_low", "ci_high", "p_value", "raw"))
                for name in ("forgetting", "ci_low", "ci_high", "p_value", "raw"):
                    assert row[name] == known[name]


def test_losses_are_those_of_the_report_the_history_and_the_ledger(place: Place) -> None:
    rows = place.rows("losses", place.project.losses())
    assert {(row["run"], row["closed_by"]) for row in rows} >= {("run", "superseded"), ("two suites", "")}
    compared = 0
    for run in place.project.runs()["run"]:
        page = place.report(run)
        newest: dict[tuple[str, str, str], dict[str, Any]] = {}
        for report in place.asked("history", run)["reports"]:
            for verdict in (*report["verdicts"], *report["findings"]):
                newest[verdict["benchmark"], verdict["subset"], verdict["measure"]] = verdict
        for row in rows:
            if row["run"] != run or row["closed_by"] or row["before"] is None:
                continue
            drop = newest[row["benchmark"], row["subset"], row["measure"]]["drop"]
            for name in ("before", "now", "delta", "ci_low", "ci_high", "n_common", "n_lost", "n_gained"):
                assert row[name] == drop[name], name
            assert (row["baseline_first"], row["newest_step"]) == (drop["baseline_steps"][0], drop["newest_steps"][-1])
            first = f"{score_text(row['before'])} at {steps_text(drop['baseline_steps'])}"
            assert f"{first} -> {score_text(row['now'])} since step {row['onset_step']}" in page
            compared += 1
    assert compared


def test_incidents_progress_and_points_are_those_of_the_commands_and_the_report(place: Place) -> None:
    (row,) = place.rows("incidents", place.project.incidents())
    (shown,) = place.asked("incidents", "--all")["incidents"]
    assert (row["id"], row["step"], row["lines"], row["text"]) == (
        shown["id"],
        shown["cause"]["step"],
        shown["lines"],
        shown["cause"]["text"],
    )
    page = place.report(HOSTILE)
    assert row["text"] in page
    assert f"step {row['step']}" in page
    (progress,) = place.rows("progress", place.project.progress())
    assert (progress["run"], progress["last_step"]) == (HOSTILE, 1198)
    points = place.rows("points", place.project.points())
    assert [(one["step"], one["value"]) for one in points] == [(10, 0.2), (20, 0.1), (30, 2.0 / 30)]
    assert place.rows("curves", place.project.curves()) == points
