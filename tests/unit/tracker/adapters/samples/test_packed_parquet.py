"""Samples in files: scores apart from texts, questions shared by all checkpoints, whole or not at all."""

import math
import multiprocessing
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eval_jobs.errors import StoreError
from eval_jobs.types import EvalRecord, EvalResult, SampleScore, SampleStatus
from tests.records import forgetting_run
from tracker.adapters.samples.packed_parquet import PackedSamples, SampleFiles, pack
from tracker.domain.scores.sample_columns import SampleColumns, columns_of

RECORD = forgetting_run(checkpoints=4, samples=6).records[0]
SAMPLE = SampleScore(
    sample_id="s0",
    subset="algebra",
    score=1.0,
    status=SampleStatus.SCORED,
    cluster_id="passage 1",
    prompt="2 + 2 =",
    target="4",
    answer="4",
    output_tokens=3,
    answer_ms=1234,
)
FAILED = replace(
    SAMPLE, sample_id="s1", repeat=1, score=None, status=SampleStatus.ERROR, output_tokens=None, detail="cut"
)

ANY_TEXT = st.text(max_size=3)
ANY_SAMPLE = st.builds(
    SampleScore,
    sample_id=ANY_TEXT,
    subset=ANY_TEXT,
    repeat=st.integers(0, 3),
    score=st.none() | st.floats(allow_nan=False),
    status=st.sampled_from(SampleStatus),
    cluster_id=ANY_TEXT,
    prompt=st.text(),
    target=st.text(),
    answer=st.text(),
    output_tokens=st.none() | st.integers(0, 2**40),
    detail=st.text(),
)


def record_of(*benchmarks: tuple[str, Sequence[SampleScore]], plan_id: str = "plan") -> EvalRecord:
    results = tuple(
        EvalResult(benchmark=name, fingerprint="f", metric="accuracy", samples=tuple(samples), duration_s=1.0)
        for name, samples in benchmarks
    )
    return replace(RECORD, plan=replace(RECORD.plan, id=plan_id), outcomes=results)


def written(folder: Path, *benchmarks: tuple[str, Sequence[SampleScore]], plan_id: str = "plan") -> PackedSamples:
    packed = pack(record_of(*benchmarks, plan_id=plan_id))
    SampleFiles(folder).write(packed)
    return packed


def samples_in(folder: Path, packed: PackedSamples) -> dict[str, tuple[SampleScore, ...]]:
    found = SampleFiles(folder).samples(packed.plan_id, packed.version)
    return {name: stored.samples for name, stored in found.items()}


def columns_in(folder: Path, packed: PackedSamples) -> dict[str, SampleColumns]:
    return dict(SampleFiles(folder).columns(packed.plan_id, packed.version))


def assert_equal_columns(found: SampleColumns, wanted: SampleColumns) -> None:
    for name in ("sample_ids", "subsets", "cluster_ids"):
        np.testing.assert_array_equal(getattr(found.questions, name), getattr(wanted.questions, name))
    for name in ("scores", "truncated", "output_tokens"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))


def graded(n: int, seed: int) -> list[SampleScore]:
    rng = np.random.default_rng(seed)
    return [
        replace(SAMPLE, sample_id=f"{i:032x}", score=float(right), output_tokens=int(tokens), answer=f"answer {i}")
        for i, (right, tokens) in enumerate(zip(rng.random(n) < 0.7, rng.integers(1, 257, n), strict=True))
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.text(max_size=4), st.lists(ANY_SAMPLE, max_size=5), max_size=3))
def test_whatever_was_answered_comes_back(tmp_path: Path, benchmarks: dict[str, list[SampleScore]]) -> None:
    packed = written(tmp_path, *benchmarks.items())
    if not any(benchmarks.values()):
        assert (samples_in(tmp_path, packed), columns_in(tmp_path, packed)) == ({}, {})
        return
    assert samples_in(tmp_path, packed) == {name: tuple(samples) for name, samples in benchmarks.items()}
    columns = columns_in(tmp_path, packed)
    assert list(columns) == list(benchmarks)
    for name, samples in benchmarks.items():
        assert_equal_columns(columns[name], columns_of(samples))


def test_the_time_of_an_answer_comes_back_too(tmp_path: Path) -> None:
    files, packed = SampleFiles(tmp_path), pack(record_of(("facts", (SAMPLE, FAILED))))
    files.write(packed)
    stored = files.samples("plan", packed.version)["facts"].samples
    assert [sample.answer_ms for sample in stored] == [1234, 1234]


def test_what_has_no_samples_has_no_files_and_may_be_replaced_by_what_has_some(tmp_path: Path) -> None:
    means = written(tmp_path / "samples", ("sums", []))
    assert not (tmp_path / "samples").exists()
    assert not SampleFiles(tmp_path / "samples").has_other_files("plan", means.version)
    scored = written(tmp_path / "samples", ("sums", [SAMPLE]))
    assert scored.version != means.version
    assert not SampleFiles(tmp_path / "samples").has_other_files("plan", scored.version)
    assert SampleFiles(tmp_path / "samples").has_other_files("plan", means.version)


def test_not_a_number_stays_what_it_is_and_is_not_taken_for_missing(tmp_path: Path) -> None:
    packed = written(tmp_path, ("sums", [replace(SAMPLE, score=math.nan)]))
    (sample,) = samples_in(tmp_path, packed)["sums"]
    assert sample.score is not None
    assert math.isnan(sample.score)


def test_half_a_surrogate_pair_in_an_answer_loses_that_character_and_nothing_else(tmp_path: Path) -> None:
    packed = written(tmp_path, ("sums", [SAMPLE, replace(SAMPLE, answer="4\ud83d!")]))
    assert [s.answer for s in samples_in(tmp_path, packed)["sums"]] == ["4", "4?!"]


def test_twenty_benchmarks_of_a_thousand_samples_take_less_than_three_bytes_a_sample(tmp_path: Path) -> None:
    benchmarks = [(f"benchmark {k}", graded(1000, seed=k)) for k in range(20)]
    packed = written(tmp_path, *benchmarks)
    (scores,) = (tmp_path / "plan").glob("scores-*")
    blocks = math.ceil(scores.stat().st_size / 4096) + 1  # and the plan's folder
    assert blocks * 4096 < 3 * 20_000
    assert samples_in(tmp_path, packed)["benchmark 7"] == tuple(benchmarks[7][1])


def test_what_was_asked_is_stored_once_and_not_with_each_checkpoint(tmp_path: Path) -> None:
    first = written(tmp_path, ("sums", graded(50, 1)), ("facts", [SAMPLE]), plan_id="first")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "questions").iterdir()}
    second = written(tmp_path, ("sums", graded(50, 2)), ("facts", [FAILED]), plan_id="second")
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "questions").iterdir()}
    assert len(before) == 2
    assert before.items() < after.items()
    assert len(after) == 3  # FAILED asks something else than SAMPLE
    assert samples_in(tmp_path, first)["sums"] == tuple(graded(50, 1))
    assert samples_in(tmp_path, second)["sums"] == tuple(graded(50, 2))
    files = SampleFiles(tmp_path)
    one, other = files.columns("first", first.version), files.columns("second", second.version)
    assert one["sums"].questions is other["sums"].questions


@pytest.mark.parametrize("field", ["sample_id", "subset", "repeat", "cluster_id", "prompt", "target"])
def test_questions_that_differ_anywhere_are_not_the_same(field: str) -> None:
    other = replace(SAMPLE, **{field: 1 if field == "repeat" else "other"})  # type: ignore[arg-type]
    (one,), (two,) = (pack(record_of(("sums", [s]))).asked for s in (SAMPLE, other))
    assert one.digest != two.digest


def test_texts_that_are_cut_at_other_places_are_not_the_same_questions() -> None:
    texts = [("ab", "c"), ("a", "bc")]
    found = {
        pack(record_of(("sums", [replace(SAMPLE, prompt=a), replace(SAMPLE, prompt=b)]))).asked[0].digest
        for a, b in texts
    }
    assert len(found) == 2


def test_deleted_texts_leave_scores_and_questions(tmp_path: Path) -> None:
    packed = written(tmp_path, ("sums", [SAMPLE, FAILED]))
    for path in tmp_path.glob("plan/answers-*"):
        path.unlink()
    stored = SampleFiles(tmp_path).samples("plan", packed.version)["sums"]
    assert stored.has_texts is False
    assert stored.samples == tuple(replace(s, answer="", detail="") for s in (SAMPLE, FAILED))
    assert_equal_columns(columns_in(tmp_path, packed)["sums"], columns_of([SAMPLE, FAILED]))


def test_another_version_stands_beside_the_old_one_until_it_is_removed(tmp_path: Path) -> None:
    old = written(tmp_path, ("sums", [SAMPLE]))
    new = written(tmp_path, ("sums", [FAILED]))
    (tmp_path / "plan" / f".scores-{old.version}.parquet.1.tmp").write_bytes(b"cut off")
    assert samples_in(tmp_path, old)["sums"] == (SAMPLE,)
    assert samples_in(tmp_path, new)["sums"] == (FAILED,)
    files = SampleFiles(tmp_path)
    assert files.has_other_files("plan", new.version)
    files.remove_others("plan", new.version)
    assert not files.has_other_files("plan", new.version)
    assert samples_in(tmp_path, new)["sums"] == (FAILED,)
    assert sorted(p.name for p in (tmp_path / "plan").iterdir()) == [
        f"answers-{new.version}.parquet",
        f"scores-{new.version}.parquet",
    ]


def test_a_missing_file_is_named_with_what_to_do(tmp_path: Path) -> None:
    packed = written(tmp_path, ("sums", [SAMPLE]))
    for path in (tmp_path / "plan" / f"scores-{packed.version}.parquet", *tmp_path.glob("questions/*")):
        aside = path.rename(tmp_path / "aside")
        for read in (samples_in, columns_in):
            with pytest.raises(StoreError, match="missing samples file") as caught:
                read(tmp_path, packed)
            assert str(path) in caught.value.message
            assert "tracker evaluate" in caught.value.hint
        aside.rename(path)


def test_a_cut_file_is_reported_as_damaged(tmp_path: Path) -> None:
    packed = written(tmp_path, ("sums", graded(100, 1)))
    for path in (p for p in tmp_path.rglob("*.parquet")):
        whole = path.read_bytes()
        for size in (0, 3, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:size])
            with pytest.raises(StoreError, match="cannot read samples file"):
                samples_in(tmp_path, packed)
        path.write_bytes(whole)
    assert samples_in(tmp_path, packed)["sums"] == tuple(graded(100, 1))


def test_somebody_elses_parquet_file_is_reported_as_damaged(tmp_path: Path) -> None:
    packed = written(tmp_path, ("sums", [SAMPLE]))
    path = tmp_path / "plan" / f"scores-{packed.version}.parquet"
    pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)
    for read in (samples_in, columns_in):
        with pytest.raises(StoreError, match="cannot read samples file"):
            read(tmp_path, packed)


def test_questions_that_were_cut_are_written_again_with_the_next_checkpoint(tmp_path: Path) -> None:
    packed = written(tmp_path, ("sums", graded(100, 1)))
    (path,) = (tmp_path / "questions").iterdir()
    path.write_bytes(path.read_bytes()[:40])
    written(tmp_path, ("sums", graded(100, 2)), plan_id="next")
    assert samples_in(tmp_path, packed)["sums"] == tuple(graded(100, 1))


def test_questions_that_vanished_meanwhile_are_written_again_by_the_same_process(tmp_path: Path) -> None:
    files = SampleFiles(tmp_path)
    for plan_id in ("first", "second"):
        packed = pack(record_of(("sums", [SAMPLE]), plan_id=plan_id))
        files.write(packed)
        assert samples_in(tmp_path, packed)["sums"] == (SAMPLE,)
        for path in (tmp_path / "questions").iterdir():
            path.unlink()


def write_all(folder: Path, worker: int) -> None:
    for k in range(20):
        samples = [replace(SAMPLE, sample_id=f"{k} {i}", prompt="x" * 500, score=float(worker)) for i in range(100)]
        SampleFiles(folder).write(pack(record_of(("sums", samples), plan_id=f"{worker}-{k}")))


@pytest.mark.slow
def test_processes_that_write_the_same_questions_at_once_leave_them_whole(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=write_all, args=(tmp_path, worker)) for worker in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert len(list((tmp_path / "questions").iterdir())) == 20
    for worker in range(2):
        for k in range(20):
            (scores,) = (tmp_path / f"{worker}-{k}").glob("scores-*")
            version = scores.stem.removeprefix("scores-")
            stored = SampleFiles(tmp_path).samples(f"{worker}-{k}", version)["sums"].samples
            assert {s.score for s in stored} == {float(worker)}
            assert {s.sample_id for s in stored} == {f"{k} {i}" for i in range(100)}


def test_anybody_can_join_the_files_with_pandas(tmp_path: Path) -> None:
    written(tmp_path, ("sums", [SAMPLE, FAILED]), ("facts", [SAMPLE]))
    (scores,) = tmp_path.glob("plan/scores-*.parquet")
    (answers,) = tmp_path.glob("plan/answers-*.parquet")
    frame = pq.read_table(scores).to_pandas()
    assert frame["score"].isna().tolist() == [False, True, False]
    assert frame["step"].unique().tolist() == [RECORD.plan.checkpoint.step]
    asked = pq.ParquetDataset(sorted(tmp_path.glob("questions/*.parquet"))).read().to_pandas()
    told = frame.merge(asked, on=["questions", "position"]).merge(
        pq.read_table(answers).to_pandas(), on=["benchmark", "questions", "position"]
    )
    assert told[["benchmark", "sample_id", "status", "prompt", "answer"]].to_numpy().tolist() == [
        ["sums", "s0", "scored", "2 + 2 =", "4"],
        ["sums", "s1", "error", "2 + 2 =", "4"],
        ["facts", "s0", "scored", "2 + 2 =", "4"],
    ]
