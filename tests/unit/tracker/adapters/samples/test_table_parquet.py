"""Samples in Parquet: whole or not at all, readable by anybody."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eval_jobs.errors import DiskFull, StoreError
from eval_jobs.types import SampleScore, SampleStatus
from tracker.adapters.samples.table_parquet import read_columns, read_samples, samples_path, write_samples
from tracker.domain.scores.sample_columns import Questions, SampleColumns, columns_of

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
)
FAILED = replace(
    SAMPLE, sample_id="s1", repeat=1, score=None, status=SampleStatus.ERROR, output_tokens=None, detail="cut"
)


def test_samples_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "sums.parquet"
    write_samples(path, (SAMPLE, FAILED))
    assert read_samples(path) == (SAMPLE, FAILED)


def test_nothing_but_the_file_is_left(tmp_path: Path) -> None:
    path = tmp_path / "sums.parquet"
    for samples in ((SAMPLE, FAILED), (SAMPLE,)):
        write_samples(path, samples)
    assert read_samples(path) == (SAMPLE,)
    assert [p.name for p in tmp_path.iterdir()] == ["sums.parquet"]


def test_anybody_can_read_the_file_with_pandas(tmp_path: Path) -> None:
    path = tmp_path / "sums.parquet"
    write_samples(path, (SAMPLE, FAILED))
    frame = pq.read_table(path).to_pandas()
    assert frame["score"].isna().tolist() == [False, True]
    assert frame["status"].tolist() == ["scored", "error"]


def test_ten_thousand_graded_answers_are_small(tmp_path: Path) -> None:
    path = tmp_path / "sums.parquet"
    samples = [replace(SAMPLE, sample_id=f"{i:032x}", prompt=f"What is {i} + {i}?") for i in range(10_000)]
    write_samples(path, samples)
    assert path.stat().st_size < 500_000


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.lists(st.tuples(st.text(), st.floats(allow_nan=False) | st.none(), st.sampled_from(SampleStatus))))
def test_any_text_and_number_survives(tmp_path: Path, rows: list[tuple[str, float | None, SampleStatus]]) -> None:
    samples = tuple(replace(SAMPLE, answer=text, score=score, status=status) for text, score, status in rows)
    write_samples(tmp_path / "x.parquet", samples)
    assert read_samples(tmp_path / "x.parquet") == samples


def test_not_a_number_stays_what_it_is_and_is_not_taken_for_missing(tmp_path: Path) -> None:
    write_samples(tmp_path / "x.parquet", (replace(SAMPLE, score=math.nan),))
    (sample,) = read_samples(tmp_path / "x.parquet")
    assert sample.score is not None
    assert math.isnan(sample.score)


def test_half_a_surrogate_pair_in_an_answer_loses_that_character_and_nothing_else(tmp_path: Path) -> None:
    write_samples(tmp_path / "x.parquet", (replace(SAMPLE, answer="4\ud83d!"),))
    assert read_samples(tmp_path / "x.parquet")[0].answer == "4?!"


@pytest.mark.parametrize(
    "name", ["sums", "../../etc/passwd", "..", "a/b", "mmlu: 历史 50%", ".hidden", "x" * 5000, "\n"]
)
def test_any_benchmark_name_becomes_one_file_in_the_plans_folder(tmp_path: Path, name: str) -> None:
    path = samples_path(tmp_path, "plan", name)
    assert path.resolve().parent == tmp_path / "plan"
    write_samples(path, (SAMPLE,))
    assert read_samples(path) == (SAMPLE,)


def test_different_names_never_share_a_file(tmp_path: Path) -> None:
    names = ["a/b", "a%2Fb", "a b", "a%20b", "x" * 200, "x" * 201, "A", "a"]
    assert len({samples_path(tmp_path, "plan", name) for name in names}) == len(names)


def test_a_missing_file_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as caught:
        read_samples(tmp_path / "gone.parquet")
    assert caught.value.message == f"the samples in {tmp_path}/gone.parquet are missing"
    assert "backup" in caught.value.hint
    assert "tracker run" in caught.value.hint


def test_a_cut_file_is_reported_as_damaged(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    write_samples(path, (SAMPLE,) * 100)
    whole = path.read_bytes()
    for size in (0, 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(StoreError, match="damaged"):
            read_samples(path)


def test_somebody_elses_parquet_file_is_reported_as_damaged(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    with pytest.raises(StoreError, match="damaged"):
        read_samples(tmp_path / "x.parquet")


def test_a_full_disk_is_called_a_full_disk_and_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    write_samples(path, (SAMPLE,))
    partial = tmp_path / f".x.parquet.{os.getpid()}.tmp"
    partial.symlink_to("/dev/full")  # a device on which every write fails for want of space
    with pytest.raises(DiskFull, match="No space left"):
        write_samples(path, (FAILED,) * 10_000)
    assert read_samples(path) == (SAMPLE,)
    assert [p.name for p in tmp_path.iterdir()] == ["x.parquet"]


def test_a_folder_that_cannot_be_made_is_an_error_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "samples").write_text("a file where the folder should be")
    with pytest.raises(StoreError, match=r"samples/plan/sums\.parquet"):
        write_samples(samples_path(tmp_path / "samples", "plan", "sums"), (SAMPLE,))


def assert_equal_columns(found: SampleColumns, wanted: SampleColumns) -> None:
    for name in ("sample_ids", "subsets", "cluster_ids", "scores", "truncated", "output_tokens"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    st.lists(
        st.builds(
            SampleScore,
            sample_id=st.text(max_size=3),
            subset=st.text(max_size=3),
            repeat=st.integers(0, 3),
            score=st.none() | st.floats(),
            status=st.sampled_from(SampleStatus),
            cluster_id=st.text(max_size=3),
            output_tokens=st.none() | st.integers(0, 10**6),
        )
    )
)
def test_columns_are_those_of_the_samples(tmp_path: Path, samples: list[SampleScore]) -> None:
    write_samples(tmp_path / "x.parquet", samples)
    assert_equal_columns(read_columns(tmp_path / "x.parquet", {}), columns_of(samples))


def test_questions_that_were_read_before_are_shared(tmp_path: Path) -> None:
    other = replace(FAILED, score=0.5, status=SampleStatus.TRUNCATED, answer="3")
    for name, samples in (("a", (SAMPLE, FAILED)), ("b", (SAMPLE, other)), ("c", (FAILED, SAMPLE))):
        write_samples(tmp_path / name, samples)
    shared: dict[str, Questions] = {}
    first, second, turned = (read_columns(tmp_path / name, shared) for name in "abc")
    assert first.questions is second.questions
    assert turned.questions is not first.questions
    assert_equal_columns(second, columns_of((SAMPLE, other)))
    assert_equal_columns(turned, columns_of((FAILED, SAMPLE)))


def test_columns_of_a_missing_or_damaged_file_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="missing"):
        read_columns(tmp_path / "gone.parquet", {})
    path = tmp_path / "x.parquet"
    write_samples(path, (SAMPLE,) * 100)
    whole = path.read_bytes()
    for size in (0, 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(StoreError, match="damaged"):
            read_columns(path, {})
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(StoreError, match="damaged"):
        read_columns(path, {})


def test_reading_columns_does_not_import_pandas(tmp_path: Path) -> None:
    write_samples(tmp_path / "x.parquet", (SAMPLE, FAILED))
    program = (
        "import sys; from pathlib import Path; from tracker.adapters.samples.table_parquet import read_columns;"
        f"assert read_columns(Path({str(tmp_path / 'x.parquet')!r}), {{}}).coverage == 0.5;"
        "sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
