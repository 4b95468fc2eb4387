"""Samples as one table: whole or not at all, readable by anybody."""

import math
import os
from dataclasses import fields, replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eval_jobs.errors import DiskFull, StoreError
from eval_jobs.types import SampleScore, SampleStatus
from tests.unit.tracker.adapters.samples.test_packed_parquet import FAILED, SAMPLE
from tracker.adapters.samples.table_parquet import write_samples


def read(path: Path) -> tuple[SampleScore, ...]:
    """Return the samples of a file as anybody reads them."""
    names = [f.name for f in fields(SampleScore)]
    rows = pq.read_table(path).select(names).to_pylist()
    return tuple(SampleScore(**row | {"status": SampleStatus(row["status"])}) for row in rows)


def test_a_file_holds_all_that_is_known_of_the_newest_samples_and_stands_alone(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "sums.parquet"
    for samples in ((SAMPLE,), (SAMPLE, FAILED)):
        write_samples(path, samples)
        assert read(path) == samples
    assert [p.name for p in path.parent.iterdir()] == ["sums.parquet"]
    frame = pq.read_table(path).to_pandas()
    assert frame["score"].isna().tolist() == [False, True]
    assert frame["status"].tolist() == ["scored", "error"]


def test_ten_thousand_graded_answers_are_small(tmp_path: Path) -> None:
    path = tmp_path / "sums.parquet"
    samples = [replace(SAMPLE, sample_id=f"{i:032x}", prompt=f"What is {i} + {i}?") for i in range(10_000)]
    write_samples(path, samples)
    assert path.stat().st_size < 500_000


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.text(), st.floats(allow_nan=False) | st.none(), st.sampled_from(SampleStatus))))
def test_any_text_and_number_survives(tmp_path: Path, rows: list[tuple[str, float | None, SampleStatus]]) -> None:
    samples = tuple(replace(SAMPLE, answer=text, score=score, status=status) for text, score, status in rows)
    write_samples(tmp_path / "x.parquet", samples)
    assert read(tmp_path / "x.parquet") == samples


def test_not_a_number_and_half_a_surrogate_pair_are_written_as_far_as_they_can_be(tmp_path: Path) -> None:
    write_samples(tmp_path / "x.parquet", (replace(SAMPLE, score=math.nan, answer="4\ud83d!"),))
    (sample,) = read(tmp_path / "x.parquet")
    assert sample.score is not None
    assert math.isnan(sample.score)
    assert sample.answer == "4?!"


def test_a_full_disk_is_called_a_full_disk_and_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    write_samples(path, (SAMPLE,))
    partial = tmp_path / f".x.parquet.{os.getpid()}.tmp"
    partial.symlink_to("/dev/full")  # a device on which every write fails for want of space
    with pytest.raises(DiskFull, match="No space left"):
        write_samples(path, (FAILED,) * 10_000)
    assert read(path) == (SAMPLE,)
    assert [p.name for p in tmp_path.iterdir()] == ["x.parquet"]


def test_a_folder_that_cannot_be_made_is_an_error_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "samples").write_text("a file where the folder should be")
    with pytest.raises(StoreError, match=r"samples/sums\.parquet"):
        write_samples(tmp_path / "samples" / "sums.parquet", (SAMPLE,))
