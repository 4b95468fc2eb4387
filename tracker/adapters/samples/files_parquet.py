"""Atomic writing of Parquet files, and columns between Python, Arrow and numpy."""

import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from eval_jobs.errors import StoreError
from eval_jobs.host.storage import write_error
from eval_jobs.types import SampleStatus
from tracker.domain.scores.matrix import FloatArray
from tracker.domain.scores.sample_columns import STATUSES, ObjectArray, StatusArray, object_array

STATUS_OF_TEXT = {str(status): status for status in SampleStatus}
_RESTORE = "restore the file from a backup, or evaluate the checkpoint again: tracker evaluate CHECKPOINT"


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Map errors of reading a file of samples to StoreError.

    Raises:
        StoreError: the file is missing or damaged.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise StoreError(f"missing samples file {path}", hint=_RESTORE) from error
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise StoreError(
            f"cannot read samples file {path}: {error}", hint=f"check access to it, or {_RESTORE}"
        ) from error


def parquet_bytes(
    table: Any,  # noqa: ANN401 - pyarrow has no types
    dictionaries: Sequence[str],
    encodings: dict[str, str] | None = None,
    metadata: dict[bytes, str] | None = None,
) -> bytes:
    """Return a table as the bytes of a Parquet file, without the parts that only pyarrow and query planners use.

    Args:
        table: a pyarrow table.
        dictionaries: columns with few distinct values.
        encodings: of other columns; the rest is plain.
        metadata: of the file.
    """
    file = io.BytesIO()
    with pq.ParquetWriter(
        file,
        table.schema,
        compression="zstd",
        use_dictionary=list(dictionaries),
        column_encoding=encodings or None,
        write_statistics=False,
        store_schema=False,
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(metadata or {})
    return file.getvalue()


def write_whole(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files by name, in order, replacing existing ones; a crash leaves each file old, new or absent.

    Raises:
        DiskFull: no space is left.
        StoreError: a file cannot be written.
    """
    partials = {name: folder / f".{name}.{os.getpid()}.tmp" for name in files}
    path = folder / next(iter(files))
    try:
        is_new = not folder.is_dir()
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            path = folder / name
            _write(partials[name], data)
        for name in files:
            path = folder / name
            partials[name].replace(path)
        _keep_names(folder)
        if is_new:
            _keep_names(folder.parent)
    except OSError as error:
        for partial in partials.values() if folder.is_dir() else ():
            partial.unlink(missing_ok=True)
        raise write_error(error, f"cannot write samples to {path}", hint="check the folder's permissions") from error


def field_of(items: Sequence[object], name: str) -> list[Any]:
    """Return the attribute `name` of each item."""
    return [*map(attrgetter(name), items)]


def text_array(values: Sequence[str]) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Return texts as an Arrow array; a lone surrogate, which UTF-8 cannot encode, becomes a question mark."""
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        return pa.array([value.encode("utf-8", "replace").decode() for value in values], pa.string())


def repeated(values: Sequence[str], counts: Sequence[int]) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Return each of `values` repeated by `counts`, as an Arrow array that stores it once."""
    indices = np.repeat(np.arange(len(values), dtype=np.int32), counts)
    return pa.DictionaryArray.from_arrays(pa.array(indices), text_array(values))


def shared_texts(column: Any) -> ObjectArray:  # noqa: ANN401 - pyarrow has no types
    """Return a column with few distinct texts, in which equal texts are one object."""
    return object_array([*map(sys.intern, column.to_pylist())])


def numbers(column: Any) -> FloatArray:  # noqa: ANN401 - pyarrow has no types
    """Return a column as floats, NaN for null; not by `to_numpy`, whose import of pandas takes longer than the read."""
    array = column.combine_chunks().cast(pa.float64())
    if len(array) == 0:
        return np.zeros(0)
    found = np.frombuffer(array.buffers()[1], dtype=np.float64)[array.offset : array.offset + len(array)]
    if array.null_count:
        found = np.where(np.from_dlpack(array.is_valid().cast(pa.int8())), found, np.nan)
    return found


def status_codes(column: Any) -> StatusArray:  # noqa: ANN401 - pyarrow has no types
    """Return a dictionary column of statuses as positions in `STATUSES`.

    Raises:
        KeyError: it contains an unknown status.
    """
    array = column.combine_chunks()
    codes = np.array([STATUSES.index(STATUS_OF_TEXT[text]) for text in array.dictionary.to_pylist()], dtype=np.int8)
    of_rows: StatusArray = codes[np.from_dlpack(array.indices)]
    return of_rows


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _keep_names(folder: Path) -> None:
    """Sync a folder, so that its file names survive a crash of the machine."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
