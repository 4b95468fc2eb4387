"""`tracker export`: the tables of the Python API as files, and texts that spreadsheets would calculate."""

import csv
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from eval_jobs.errors import ConfigError
from eval_jobs.queue.database_sql import open_database
from eval_jobs.types import BenchmarkFailure, EvalRecord, EvalResult, SampleScore
from tests.records import RUN, forgetting_run
from tests.stored import store_run
from tracker.adapters.history.store_sql import SqlHistory
from tracker.api.project import Project
from tracker.api.results import open as open_results
from tracker.cli.commands.to_inspect.export import command
from tracker.domain.tables.catalog import TABLES

RECORDED = forgetting_run(checkpoints=6, samples=20)
OTHER = forgetting_run(run_id="group/other", checkpoints=3, samples=10, trouble=False)
ANSWERS = ("=1+1", "@sum", "+1", "-2+3", "-5", "-1e-5", "", '"quoted", text', "two\nlines", "四十二")
HARMLESS = ("'=1+1", "'@sum", "'+1", "'-2+3", *ANSWERS[4:])


def with_answers(record: EvalRecord) -> EvalRecord:
    """Return the record with answers that are hard to write."""
    results: list[EvalResult | BenchmarkFailure] = []
    for one in record.outcomes:
        if isinstance(one, EvalResult):
            results.append(replace(one, samples=tuple(map(_with_answer, range(len(one.samples)), one.samples))))
        else:
            results.append(one)
    return replace(record, outcomes=tuple(results))


def _with_answer(position: int, sample: SampleScore) -> SampleScore:
    return replace(sample, answer=ANSWERS[position % len(ANSWERS)])


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with two runs."""
    folder = tmp_path_factory.mktemp("export")
    engine = open_database(f"sqlite:///{folder}/tracker.db")
    history = SqlHistory(engine, folder / "samples")
    for recorded in (RECORDED, OTHER):
        store_run(history, replace(recorded, records=tuple(map(with_answers, recorded.records))))
    engine.dispose()
    return folder


def export(place: Path, *arguments: str) -> Result:
    found = CliRunner().invoke(command, [*arguments, "--config", str(place)], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found


def events(project: Project) -> pd.DataFrame:
    """Return the events of all benchmarks, in the order of the table."""
    found = pd.concat([project.events(one) for one in sorted(set(project.scores()["benchmark"]))])
    return found.sort_values(list(found.columns), ignore_index=True, key=lambda column: column.astype(str))


WHOLE: Mapping[str, Callable[[Project], pd.DataFrame]] = {
    "checkpoints": lambda project: project.checkpoints(left_behind=True),
    "forgetting": lambda project: project.forgetting(subsets=True),
    "requests": lambda project: project.latency(requests=True),
    "samples": lambda project: project.samples().to_pandas(),
    "events": events,
}
"""How Python shows tables with all their rows, where the method alone does not."""


def frame_of(name: str, place: Path) -> pd.DataFrame:
    project = open_results(place)
    if name in WHOLE:
        return WHOLE[name](project)
    found = getattr(project, name)()
    assert isinstance(found, pd.DataFrame)
    return found


def cells(frame: pd.DataFrame, name: str) -> list[object]:
    """Return the values of a column, times as text and None for what is missing or empty."""
    values: list[object] = []
    for value in frame[name].astype(object).where(frame[name].notna(), None).tolist():
        if isinstance(value, pd.Timestamp):
            values.append(value.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
        else:
            values.append(None if value == "" else value)
    return values


READERS: Mapping[str, Callable[[Path], pd.DataFrame]] = {
    "csv": pd.read_csv,
    "parquet": pd.read_parquet,
    "json": lambda path: pd.DataFrame(json.loads(path.read_text())),
    "jsonl": lambda path: pd.DataFrame([json.loads(line) for line in path.read_text().splitlines()]),
}


@pytest.mark.parametrize("kind", ["csv", "parquet", "json", "jsonl"])
def test_files_have_the_rows_of_the_frames(state: Path, tmp_path: Path, kind: str) -> None:
    shown = export(state, "--format", kind, "--output", str(tmp_path)).stdout
    schema = json.loads((tmp_path / "schema.json").read_text())
    assert list(schema) == list(TABLES)
    for name in TABLES:
        path, frame = tmp_path / f"{name}.{kind}", frame_of(name, state)
        assert f"{path}: {len(frame)} rows" in shown
        assert [column["name"] for column in schema[name]] == list(frame.columns)
        read = READERS[kind](path)
        assert len(read) == len(frame)
        for column in frame.columns if len(frame) else ():
            assert cells(read, column) == cells(frame, column), (name, column)
    assert {len(frame_of(name, state)) > 0 for name in ("runs", "scores", "samples", "forgetting")} == {True}


def test_one_table_goes_to_standard_output_or_a_file_named_by_its_format(state: Path, tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(export(state, "scores", "--run", "other").stdout)))
    assert {row["run"] for row in rows} == {"group/other"}
    export(state, "scores", "--output", str(tmp_path / "new" / "scores.parquet"))
    assert len(pd.read_parquet(tmp_path / "new" / "scores.parquet")) == len(open_results(state).scores())
    lines = export(state, "verdicts", "--format", "jsonl", "--run", RUN).stdout.splitlines()
    assert all(json.loads(line)["run"] == RUN for line in lines)
    assert json.loads(export(state, "alerts", "--format", "json").stdout) == []


def test_spreadsheets_do_not_calculate_answers(state: Path) -> None:
    shown = export(state, "samples", "--texts", "--run", "other").stdout
    answers = {row["answer"] for row in csv.DictReader(io.StringIO(shown))}
    assert answers == set(HARMLESS)
    lines = export(state, "samples", "--texts", "--run", "other", "--format", "jsonl").stdout.splitlines()
    assert {json.loads(line)["answer"] for line in lines} == set(ANSWERS)


def test_deleted_answers_are_a_note(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/tracker.db")
    history = SqlHistory(engine, tmp_path / "samples")
    for record in OTHER.records:
        history.append(record)
    history.forget_texts(OTHER.records[0].plan.id)
    found = export(tmp_path, "samples", "--texts")
    assert "note: the answers of 30 samples were deleted" in found.stderr


def test_what_needs_the_samples_is_left_out_without_them(state: Path, tmp_path: Path) -> None:
    (tmp_path / "tracker.db").write_bytes((state / "tracker.db").read_bytes())
    found = export(tmp_path, "--output", str(tmp_path / "out"))
    left = [line for line in found.stderr.splitlines() if line.startswith("left out ")]
    assert [line.split(":")[0] for line in left] == ["left out samples", "left out forgetting", "left out events"]
    assert (tmp_path / "out/scores.csv").is_file()
    assert not (tmp_path / "out/samples.csv").exists()
    assert list(json.loads((tmp_path / "out/schema.json").read_text())) == [
        name for name in TABLES if name not in ("samples", "forgetting", "events")
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("scores", "verdicts", "--output", "-"), "several tables cannot be written to stdout"),
        (("scores", "verdicts", "--output", "both.csv"), r"both\.csv is the name of one file"),
        (
            ("scores", "--output", "scores.xlsx"),
            r"unknown format \.xlsx \(hint: pass --format, or a name that ends in \.csv",
        ),
        (("scores", "--run", "nope"), "no run 'nope'"),
        (("samples", "--run", "group/*", "--run", "x"), "no run 'x'"),
    ],
)
def test_what_cannot_be_exported_is_refused(state: Path, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CliRunner().invoke(command, [*arguments, "--config", str(state)], catch_exceptions=False)


def test_an_unknown_table_is_refused_with_the_known_ones(state: Path) -> None:
    found = CliRunner().invoke(command, ["score", "--config", str(state)])
    assert found.exit_code == 2
    assert "'score' is not one of 'runs', 'checkpoints', 'scores'" in found.stderr
