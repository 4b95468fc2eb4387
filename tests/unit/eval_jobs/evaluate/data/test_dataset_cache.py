import json
from pathlib import Path

import pytest

from eval_jobs.errors import BadData, StoreError
from eval_jobs.evaluate.data.dataset_cache import open_cached_dataset
from eval_jobs.evaluate.data.files import read_data_digest
from eval_jobs.types import Benchmark


def sums(path: Path, *answers: str) -> Benchmark:
    path.write_text("".join(json.dumps({"question": "q", "answer": a}) + "\n" for a in answers))
    return Benchmark(name="sums", adapter="exact", data=str(path), data_digest=read_data_digest(path))


def test_data_that_changed_since_it_was_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    benchmark = sums(path, "1")
    path.write_text('{"question": "q", "answer": "2"}\n')
    with pytest.raises(BadData, match="changed since startup") as caught:
        open_cached_dataset(benchmark, tmp_path / "cache")
    assert str(path) in caught.value.message


def test_a_copy_outlives_the_data_it_was_made_of(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    benchmark = sums(path, "1", "2")
    first = open_cached_dataset(benchmark, tmp_path / "cache")
    path.unlink()
    assert open_cached_dataset(benchmark, tmp_path / "cache") == first
    assert first is not None
    assert len((first.folder / "default_test.jsonl").read_text().splitlines()) == 2


def test_what_a_killed_copy_left_behind_is_not_used(tmp_path: Path) -> None:
    benchmark = sums(tmp_path / "a.jsonl", "1")
    cached = open_cached_dataset(benchmark, tmp_path / "cache")
    assert cached is not None
    half = tmp_path / "others" / cached.folder.parent.name
    (half.parent / ".new-abc" / "copy").mkdir(parents=True)
    again = open_cached_dataset(benchmark, half.parent)
    assert again is not None
    assert (again.folder / "default_test.jsonl").is_file()


def test_subsets_get_a_file_each(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"question": "q", "answer": "a", "subset": subset} for subset in ("easy", "hard", "easy")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    cached = open_cached_dataset(Benchmark(name="b", adapter="exact", data=str(path)), tmp_path / "cache")
    assert cached is not None
    assert cached.subsets == ("easy", "hard")
    assert sorted(p.name for p in cached.folder.iterdir()) == ["easy_test.jsonl", "hard_test.jsonl"]


def test_a_benchmark_without_data_has_no_copy(tmp_path: Path) -> None:
    assert open_cached_dataset(Benchmark(name="b", adapter="gsm8k"), tmp_path) is None


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write to"):
        open_cached_dataset(sums(tmp_path / "a.jsonl", "1"), tmp_path / "file" / "cache")
