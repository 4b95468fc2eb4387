"""Samples as one table with every text in it, one Parquet file for each benchmark: for people, and as it once was.

    write_samples(path, result.samples)              # what MLflow gets beside the report
    samples = read_samples(path)
    FirstSampleFiles(folder)                         # histories were stored so before texts and scores lay apart

The first form of a history: folder/<plan id>/<benchmark>.parquet
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from eval_jobs.identity import content_hash
from eval_jobs.types import EvalRecord, EvalResult, SampleScore
from tracker.adapters.samples.files_parquet import (
    STATUS_OF_TEXT,
    encoded,
    numbers,
    reading,
    shared_texts,
    status_codes,
    text_array,
    write_whole,
)
from tracker.domain.scores.sample_columns import Questions, SampleColumns, make_columns, object_array

_NUMBERS = {"repeat": pa.int32(), "score": pa.float64(), "output_tokens": pa.int64()}
_FIELDS = (
    "sample_id",
    "subset",
    "repeat",
    "score",
    "status",
    "cluster_id",
    "output_tokens",
    "detail",
    "prompt",
    "target",
    "answer",
)
_QUESTIONS = ("sample_id", "subset", "cluster_id")
_QUESTIONS_KEY = b"questions"
"""Names the hash of `_QUESTIONS` in a file's metadata: who knows it need not read them."""
_NAME_CHARS = 100


class FirstSampleFiles:
    """The samples below `folder` that are stored in the first form."""

    def __init__(self, folder: Path) -> None:
        """Nothing is read yet."""
        self._folder = folder
        self._shared: dict[str, Questions] = {}

    def columns(self, record: EvalRecord) -> Mapping[str, SampleColumns]:
        """Return what `columns_of` makes of the samples of every result of `record`.

        Raises:
            StoreError: a file is missing or damaged.
        """
        return {o.benchmark: read_columns(path, self._shared) for o, path in self._files(record)}

    def with_samples(self, record: EvalRecord, benchmarks: Collection[str] | None = None) -> EvalRecord:
        """Return `record` with the samples of every result, or of those of `benchmarks`.

        Raises:
            StoreError: a file is missing or damaged.
        """
        files = {o.benchmark: path for o, path in self._files(record)}
        found = {name: read_samples(path) for name, path in files.items() if benchmarks is None or name in benchmarks}
        outcomes = tuple(
            replace(o, samples=found[o.benchmark]) if isinstance(o, EvalResult) and o.benchmark in found else o
            for o in record.outcomes
        )
        return replace(record, outcomes=outcomes)

    # --- private

    def _files(self, record: EvalRecord) -> Iterator[tuple[EvalResult, Path]]:
        for outcome in record.outcomes:
            if isinstance(outcome, EvalResult):
                yield outcome, samples_path(self._folder, record.plan.id, outcome.benchmark)


def samples_path(folder: Path, plan_id: str, benchmark: str) -> Path:
    """Return where the samples of one benchmark of one plan lie, whatever characters its name has."""
    name = quote(benchmark, safe=" ()[]+,=@")
    if len(name) > _NAME_CHARS:
        name = f"{name[:_NAME_CHARS]}-{hashlib.sha256(benchmark.encode()).hexdigest()[:16]}"
    return folder / plan_id / f"{name}.parquet"


def write_samples(path: Path, samples: Sequence[SampleScore]) -> None:
    """Write samples, replacing what was there; a crash leaves the old file or the new one.

    Raises:
        DiskFull: no space is left.
        StoreError: the file cannot be written.
    """
    values = {name: [getattr(sample, name) for sample in samples] for name in _FIELDS}
    columns = {
        name: pa.array(column, _NUMBERS[name]) if name in _NUMBERS else text_array(column)
        for name, column in values.items()
    }
    digest = content_hash([values[name] for name in _QUESTIONS])
    data = encoded(pa.table(columns), _FIELDS, metadata={_QUESTIONS_KEY: digest})
    write_whole(path.parent, {path.name: data})


def read_samples(path: Path) -> tuple[SampleScore, ...]:
    """Return the samples in a file, in their order.

    Raises:
        StoreError: the file is missing or damaged.
    """
    with reading(path):
        with pq.ParquetFile(path) as file:
            table = file.read(columns=list(_FIELDS))
        columns = [_values(table, name) for name in _FIELDS]
        return tuple(SampleScore(**dict(zip(_FIELDS, row, strict=True))) for row in zip(*columns, strict=True))


def read_columns(path: Path, shared: MutableMapping[str, Questions]) -> SampleColumns:
    """Return what `columns_of` makes of the samples in a file.

    Args:
        path: of the file.
        shared: what other files asked, by a hash; where this one asked the same, it is neither read nor kept twice.

    Raises:
        StoreError: the file is missing or damaged.
    """
    with reading(path), pq.ParquetFile(path, read_dictionary=["status"]) as file:
        digest = (file.metadata.metadata or {}).get(_QUESTIONS_KEY, b"").decode()
        questions = shared.get(digest) or _questions(file)
        if digest:
            shared[digest] = questions
        table = file.read(columns=["status", "score", "output_tokens"], use_threads=False)
        return make_columns(
            questions=questions,
            statuses=status_codes(table.column("status")),
            scores=numbers(table.column("score")),
            output_tokens=numbers(table.column("output_tokens")),
        )


# --- private


def _questions(file: pq.ParquetFile) -> Questions:
    table = file.read(columns=list(_QUESTIONS), use_threads=False)
    return Questions(
        sample_ids=object_array(table.column("sample_id").to_pylist()),
        subsets=shared_texts(table.column("subset")),
        cluster_ids=shared_texts(table.column("cluster_id")),
    )


def _values(table: Any, name: str) -> list[Any]:  # noqa: ANN401 - pyarrow has no types
    values: list[Any] = table.column(name).to_pylist()
    return [STATUS_OF_TEXT[value] for value in values] if name == "status" else values
