from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval_jobs.errors import BadData, StoreError
from eval_jobs.evaluate.data.files import read_data_digest
from eval_jobs.evaluate.data.mirror import open_mirror
from eval_jobs.types import Benchmark


def sums(path: Path, *answers: str) -> Benchmark:
    path.write_text("".join(json.dumps({"question": "q", "answer": a}) + "\n" for a in answers))
    return Benchmark(name="sums", adapter="exact", data=str(path), data_digest=read_data_digest(path))


def test_data_that_changed_since_it_was_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    benchmark = sums(path, "1")
    path.write_text('{"question": "q", "answer": "2"}\n')
    with pytest.raises(BadData, match="has changed since it was read at the start") as caught:
        open_mirror(benchmark, tmp_path / "mirrors")
    assert str(path) in caught.value.message


def test_a_copy_outlives_the_data_it_was_made_of(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    benchmark = sums(path, "1", "2")
    first = open_mirror(benchmark, tmp_path / "mirrors")
    path.unlink()
    assert open_mirror(benchmark, tmp_path / "mirrors") == first
    assert first is not None
    assert len((first.folder / "default_test.jsonl").read_text().splitlines()) == 2


def test_what_a_killed_copy_left_behind_is_not_used(tmp_path: Path) -> None:
    benchmark = sums(tmp_path / "a.jsonl", "1")
    mirror = open_mirror(benchmark, tmp_path / "mirrors")
    assert mirror is not None
    half = tmp_path / "others" / mirror.folder.parent.name
    (half.parent / ".new-abc" / "copy").mkdir(parents=True)
    again = open_mirror(benchmark, half.parent)
    assert again is not None
    assert (again.folder / "default_test.jsonl").is_file()


def test_subsets_get_a_file_each(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"question": "q", "answer": "a", "subset": subset} for subset in ("easy", "hard", "easy")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    mirror = open_mirror(Benchmark(name="b", adapter="exact", data=str(path)), tmp_path / "mirrors")
    assert mirror is not None
    assert mirror.subsets == ("easy", "hard")
    assert sorted(p.name for p in mirror.folder.iterdir()) == ["easy_test.jsonl", "hard_test.jsonl"]


def test_a_benchmark_without_data_has_no_copy(tmp_path: Path) -> None:
    assert open_mirror(Benchmark(name="b", adapter="gsm8k"), tmp_path) is None


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        open_mirror(sums(tmp_path / "a.jsonl", "1"), tmp_path / "file" / "mirrors")
