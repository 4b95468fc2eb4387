"""Samples as DataFrames and record batches: those of the records, read when they are asked for."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pandas as pd
import pytest

from eval_jobs.errors import ConfigError, StoreError
from eval_jobs.queue.database_sql import open_database
from eval_jobs.types import BenchmarkFailure, EvalRecord, EvalResult, SampleScore
from tests.records import RUN, forgetting_run
from tracker.adapters.history.store_sql import SqlHistory
from tracker.adapters.samples.packed_parquet import SampleFiles
from tracker.api.project import Project
from tracker.api.results import open as open_results
from tracker.domain.tables.catalog import SAMPLES

RECORDED = forgetting_run(checkpoints=4, samples=12)
TEXTS = ("prompt", "target", "answer", "detail")


@pytest.fixture
def history(tmp_path: Path) -> SqlHistory:
    history = SqlHistory(open_database(f"sqlite:///{tmp_path}/tracker.db"), tmp_path / "samples")
    for record in RECORDED.records:
        history.append(record)
    return history


@pytest.fixture
def project(history: SqlHistory, tmp_path: Path) -> Project:
    del history
    return open_results(tmp_path)


def planned(record: EvalRecord) -> list[tuple[str, SampleScore]]:
    """Return the samples of a record with their benchmark, in the order of its benchmarks."""
    results = sorted(record.results, key=lambda result: result.benchmark)
    return [(result.benchmark, sample) for result in results for sample in result.samples]


def values_of(frame: pd.DataFrame, *names: str) -> list[tuple[object, ...]]:
    """Return the rows of some columns, None for what is missing."""
    plain = frame[list(names)].astype(object)
    return list(plain.where(plain.notna(), None).itertuples(index=False, name=None))


def test_samples_are_those_of_the_records_in_the_types_of_the_table(project: Project) -> None:
    frame = project.samples(texts=True).to_pandas()
    kinds = {column.name: str(column.kind) for column in SAMPLES.columns}
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == kinds
    names = ("sample_id", "subset", "repeat", "score", "status", "cluster_id", "output_tokens", *TEXTS)
    wanted = []
    for record in RECORDED.records:
        checkpoint, plan = record.plan.checkpoint, record.plan
        for benchmark, sample in planned(record):
            own = tuple(getattr(sample, name) for name in names)
            wanted.append((RUN, checkpoint.step, plan.suite.name, benchmark, plan.id, *own))
    assert values_of(frame, "run", "step", "suite", "benchmark", "plan_id", *names) == wanted
    assert list(frame["benchmark"].cat.categories) == sorted({row[3] for row in wanted})


def test_only_what_is_asked_for_is_read(project: Project, tmp_path: Path) -> None:
    everything = project.samples()
    assert set(TEXTS).isdisjoint(everything.columns)
    assert len(everything) == sum(len(planned(record)) for record in RECORDED.records)
    some = project.samples("sums", steps=slice(100, 200), status="scored").to_pandas(["step", "score"])
    assert list(some.columns) == ["step", "score"]
    assert set(some["step"]) == {100, 200}
    assert len(project.samples(status="error")) == sum(
        sample.status == "error" for record in RECORDED.records for _, sample in planned(record)
    )
    batches = list(project.samples().reader(["step", "benchmark"], rows=5))
    assert max(batch.num_rows for batch in batches) == 5
    assert sum(batch.num_rows for batch in batches) == len(everything)
    for path in (tmp_path / "samples").glob("*/answers-*.parquet"):
        path.write_bytes(b"never read")
    assert len(everything.to_pandas()) == len(everything)


def test_only_the_newest_evaluation_of_a_step_counts(history: SqlHistory, project: Project) -> None:
    old = RECORDED.records[-1]
    (sums,) = (result for result in old.results if result.benchmark == "sums")
    wrong = replace(sums, samples=tuple(replace(sample, score=0.0) for sample in sums.samples))
    others = tuple(one for one in old.outcomes if isinstance(one, EvalResult) and one.benchmark != "sums")
    later = old.finished_at + timedelta(hours=1)
    history.append(replace(old, plan=replace(old.plan, id="again"), outcomes=(*others, wrong), finished_at=later))
    frame = project.samples("sums", steps="latest").to_pandas()
    assert (len(frame), set(frame["plan_id"]), frame["score"].sum()) == (len(sums.samples), {"again"}, 0.0)


def test_deleted_answers_are_missing_with_one_warning(history: SqlHistory, project: Project) -> None:
    for record in RECORDED.records[:2]:
        history.forget_texts(record.plan.id)
    gone = sum(len(planned(record)) for record in RECORDED.records[:2])
    with pytest.warns(UserWarning, match=f"the answers of {gone} samples were deleted") as warned:
        frame = project.samples(texts=True).to_pandas()
    assert len(warned) == 1
    assert frame["answer"].isna().sum() == gone
    assert (frame["prompt"] != "").all()


def test_a_damaged_file_is_named_or_skipped(project: Project, tmp_path: Path) -> None:
    first, second = (record.plan.id for record in RECORDED.records[:2])
    (damaged,) = (tmp_path / "samples" / first).glob("scores-*.parquet")
    damaged.write_bytes(damaged.read_bytes()[:-9])
    for path in (tmp_path / "samples" / second).iterdir():
        path.unlink()
    with pytest.raises(StoreError, match=damaged.name):
        project.samples().to_pandas()
    samples = project.samples(errors="skip")
    assert sorted(set(samples.to_pandas()["step"])) == [300, 400]
    assert [name in text for name, text in zip((first, second), samples.skipped, strict=True)] == [True, True]


def test_samples_that_are_replaced_while_they_are_read_are_read_again(
    history: SqlHistory, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, tables = RECORDED.records[0], SampleFiles.tables
    results = tuple(replace(r, samples=r.samples[:5]) for r in record.results)
    writes = iter([replace(record, outcomes=results)])

    def replaced(files: SampleFiles, *asked: object) -> object:
        for newer in writes:
            history.append(newer)
        return tables(files, *asked)  # type: ignore[arg-type]

    monkeypatch.setattr(SampleFiles, "tables", replaced)
    assert len(project.samples(steps=100)) == 5 * len(results)


def test_no_samples_are_a_table_with_its_types(project: Project) -> None:
    frame = project.samples("sums", steps=100, status="unscored").to_pandas()
    assert [str(kind) for kind in frame.dtypes] == [str(column.kind) for column in SAMPLES.columns[:12]]
    assert len(frame) == 0


ASKED: dict[str, tuple[Callable[[Project], object], str]] = {
    "status": (lambda p: p.samples(status="score"), r"no status 'score' \(hint: did you mean scored\?"),
    "column": (lambda p: p.samples().to_pandas(["scor"]), r"no column 'scor' in these samples \(hint: did you mean"),
    "text": (lambda p: p.samples().to_pandas(["answer"]), r"no column 'answer' in these samples \(hint: pass texts="),
    "one column": (lambda p: p.samples().to_pandas("score"), "'score' is not a list of columns"),
    "no columns": (lambda p: p.samples().to_pandas([]), "is not a list of columns"),
    "benchmark": (lambda p: p.samples("sum"), r"no benchmark 'sum' \(hint: did you mean sums\?"),
    "errors": (lambda p: p.samples(errors="ignore"), 'pass "raise" or "skip"'),  # type: ignore[arg-type]
    "rows": (lambda p: p.samples().reader(rows=0), "rows=0 is not positive"),
}


@pytest.mark.parametrize("case", ASKED)
def test_what_does_not_exist_is_refused(project: Project, case: str) -> None:
    ask, message = ASKED[case]
    with pytest.raises(ConfigError, match=message):
        ask(project)


def test_a_database_elsewhere_needs_the_folder_of_the_samples(history: SqlHistory, tmp_path: Path) -> None:
    del history
    url = f"sqlite:///{tmp_path}/tracker.db"
    with pytest.raises(ConfigError, match=r"folder of the samples is unknown \(hint: pass samples= to tracker.open"):
        open_results(url).samples()
    with pytest.raises(ConfigError, match="no samples folder"):
        open_results(url, samples=tmp_path / "nothing").samples()
    assert len(open_results(url, samples=tmp_path / "samples").samples()) > 0


def test_scores_of_subsets_are_those_of_their_samples(tmp_path: Path) -> None:
    history = SqlHistory(open_database(f"sqlite:///{tmp_path}/tracker.db"), tmp_path / "samples")
    for record in RECORDED.records:
        history.append(in_subsets(record))
    project = open_results(tmp_path)
    frame = project.scores(subsets=True)
    assert list(map(str, frame.dtypes)) == list(map(str, project.scores().dtypes))
    whole = frame[frame["subset"] == ""].drop(columns="subset").reset_index(drop=True)
    pd.testing.assert_frame_equal(whole, project.scores().drop(columns="subset"))
    places = list(zip(frame["run"], frame["step"], frame["benchmark"], frame["subset"], strict=True))
    assert places == sorted(places)
    samples = project.samples().to_pandas()
    for (step, benchmark, subset), own in samples.groupby(["step", "benchmark", "subset"], observed=True):
        same = (frame["step"] == step) & (frame["benchmark"] == benchmark) & (frame["subset"] == subset)
        (_, row), known = next(iter(frame[same].iterrows())), own["score"].dropna()
        assert row["score"] == pytest.approx(known.mean(), nan_ok=True)
        assert row["stderr"] == pytest.approx(known.sem(), nan_ok=True)
        assert (row["planned"], row["scored"]) == (len(own), len(known))
        assert row["coverage"] == len(known) / len(own)
    assert set(frame["subset"]) == {"", "even", "odd"}
    with pytest.raises(ConfigError, match="no benchmark 'fact'"):
        project.scores("fact", subsets=True)


def in_subsets(record: EvalRecord) -> EvalRecord:
    """Return the record with two subsets of each benchmark; of `sums` a lower score is better."""
    found: list[EvalResult | BenchmarkFailure] = []
    for outcome in record.outcomes:
        if isinstance(outcome, EvalResult):
            samples = [replace(one, subset=("even", "odd")[i % 2]) for i, one in enumerate(outcome.samples)]
            higher = outcome.benchmark != "sums"
            found.append(replace(outcome, samples=tuple(samples), higher_is_better=higher))
        else:
            found.append(outcome)
    return replace(record, outcomes=tuple(found))
