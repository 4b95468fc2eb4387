"""Per-sample results in Parquet: one compact file for every benchmark of every plan.

    path = samples_path(folder, plan_id, "sums")     # folder/<plan id>/sums.parquet
    write_samples(path, result.samples)              # whole or not at all
    samples = read_samples(path)
    columns = read_columns(path, shared)             # what verdicts need, without one object a sample

The files are plain Parquet, for pandas and DuckDB as well: one row per sample and repeat.
"""

from __future__ import annotations

import errno
import hashlib
import os
import sys
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from eval_jobs.errors import DiskFull, StoreError
from eval_jobs.identity import content_hash
from eval_jobs.types import SampleScore, SampleStatus
from tracker.domain.regression.score_matrix import FloatArray, IntArray
from tracker.domain.sample_columns import STATUSES, Questions, SampleColumns, make_columns, object_array

_TEXTS = ("prompt", "target", "answer")
_SCHEMA = pa.schema(
    [
        pa.field("sample_id", pa.string(), nullable=False),
        pa.field("subset", pa.string(), nullable=False),
        pa.field("repeat", pa.int32(), nullable=False),
        pa.field("score", pa.float64()),
        pa.field("status", pa.string(), nullable=False),
        pa.field("cluster_id", pa.string(), nullable=False),
        pa.field("output_tokens", pa.int64()),
        pa.field("detail", pa.string(), nullable=False),
        *(pa.field(name, pa.string(), nullable=False) for name in _TEXTS),
    ]
)
_QUESTIONS = ("sample_id", "subset", "cluster_id")
_QUESTIONS_KEY = b"questions"
"""Names the hash of `_QUESTIONS` in a file's metadata: who knows it need not read them."""
_STATUS = {str(status): status for status in SampleStatus}
_NAME_CHARS = 100
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


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
    columns = {name: _column(samples, name) for name in _SCHEMA.names}
    digest = content_hash([columns[name] for name in _QUESTIONS])
    table = pa.table(columns, schema=_SCHEMA.with_metadata({_QUESTIONS_KEY: digest}))
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            pq.write_table(table, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True) if path.parent.is_dir() else None
        raise _write_error(path, error) from error


def read_samples(path: Path) -> tuple[SampleScore, ...]:
    """Read what `write_samples` wrote, in the same order.

    Raises:
        StoreError: the file is missing or damaged.
    """
    names = _SCHEMA.names
    with _reading(path):
        with pq.ParquetFile(path) as file:
            table = file.read(columns=names)
        columns = [_values(table, name) for name in names]
        return tuple(SampleScore(**dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True))


def read_columns(path: Path, shared: MutableMapping[str, Questions]) -> SampleColumns:
    """Read what `columns_of` makes of the samples that `write_samples` wrote.

    Args:
        path: of the file.
        shared: what other files asked, by a hash; where this one asked the same, it is neither read nor kept twice.

    Raises:
        StoreError: the file is missing or damaged.
    """
    with _reading(path), pq.ParquetFile(path, read_dictionary=["status"]) as file:
        digest = (file.metadata.metadata or {}).get(_QUESTIONS_KEY, b"").decode()
        questions = shared.get(digest) or _questions(file)
        if digest:
            shared[digest] = questions
        table = file.read(columns=["status", "score", "output_tokens"], use_threads=False)
        return make_columns(
            questions=questions,
            statuses=_status_codes(table.column("status").combine_chunks()),
            scores=_numbers(table.column("score")),
            output_tokens=_numbers(table.column("output_tokens")),
        )


# --- private

_RESTORE = "restore the file from a backup, or evaluate that checkpoint again: tracker run CHECKPOINT"


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise StoreError(f"the samples in {path} are missing", hint=_RESTORE) from error
    except (OSError, pa.ArrowException, KeyError) as error:
        raise StoreError(f"the samples in {path} are damaged: {error}", hint=_RESTORE) from error


def _questions(file: pq.ParquetFile) -> Questions:
    table = file.read(columns=list(_QUESTIONS), use_threads=False)
    sample_ids, subsets, cluster_ids = (table.column(name).to_pylist() for name in _QUESTIONS)
    return Questions(
        sample_ids=object_array(sample_ids),
        subsets=object_array([*map(sys.intern, subsets)]),  # few texts for many samples
        cluster_ids=object_array([*map(sys.intern, cluster_ids)]),
    )


def _status_codes(column: Any) -> IntArray:  # noqa: ANN401 - pyarrow has no types
    codes = np.array([STATUSES.index(_STATUS[text]) for text in column.dictionary.to_pylist()], dtype=np.int64)
    of_rows: IntArray = codes[np.from_dlpack(column.indices)]
    return of_rows


def _numbers(column: Any) -> FloatArray:  # noqa: ANN401 - pyarrow has no types
    """Return a column as floats, NaN for null; not by `to_numpy`, which takes longer to import pandas than to read."""
    array = column.combine_chunks().cast(pa.float64())
    if len(array) == 0:
        return np.zeros(0)
    numbers = np.frombuffer(array.buffers()[1], dtype=np.float64)[array.offset : array.offset + len(array)]
    if array.null_count:
        numbers = np.where(np.from_dlpack(array.is_valid().cast(pa.int8())), numbers, np.nan)
    return numbers


def _column(samples: Sequence[SampleScore], name: str) -> list[Any]:
    values = [getattr(sample, name) for sample in samples]
    if name in (*_TEXTS, "detail"):
        # A model can answer with half a surrogate pair, which no file in UTF-8 can hold.
        return [value.encode("utf-8", "replace").decode() for value in values]
    return values


def _values(table: Any, name: str) -> list[Any]:  # noqa: ANN401 - pyarrow has no types
    values: list[Any] = table.column(name).to_pylist()
    if name == "status":
        return [_STATUS[value] for value in values]
    return values


def _write_error(path: Path, error: OSError) -> StoreError:
    if error.errno in _NO_SPACE:
        return DiskFull(f"no space is left for the samples in {path}", hint="free some space")
    return StoreError(
        f"the samples cannot be written to {path}: {error.strerror or error}", hint="check the folder's permissions"
    )
