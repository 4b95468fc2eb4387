"""Tables as files: CSV, Parquet, JSON and JSON lines, written one record batch after the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from tracker.domain.tables.columns import Column, TableDefinition

_ROWS = 16_384
"""Rows that are Python objects at the same time."""

_FORMULA = r"(?s)^([=+@\t\r]|-(?:[+-]|.*[^0-9.eE+-]|.*[0-9.][+-]))"
"""What a spreadsheet would calculate instead of showing it; a negative number is none."""


class Format(StrEnum):
    """Format of a file."""

    CSV = "csv"
    PARQUET = "parquet"
    JSON = "json"
    JSONL = "jsonl"


def write_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema, kind: Format, file: BinaryIO) -> int:
    """Write record batches of one table, and return the number of rows.

    Missing numbers and NaN are null: empty in CSV. Outside Parquet, times are ISO 8601.
    """
    return _WRITERS[kind](batches, schema, file)


def schema_text(tables: Iterable[TableDefinition]) -> str:
    """Return the columns of tables as JSON: name, type, unit and meaning of each."""
    document = {table.name: [_column(column) for column in table.columns] for table in tables}
    return json.dumps(document, indent=2) + "\n"


def _column(column: Column) -> dict[str, str]:
    return {"name": column.name, "dtype": str(column.kind), "unit": column.unit, "meaning": column.meaning}


def _to_parquet(batches: Iterable[pa.RecordBatch], schema: pa.Schema, file: BinaryIO) -> int:
    from pyarrow.parquet import ParquetWriter

    rows = 0
    with ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(_mapped(batch, _finite))
            rows += batch.num_rows
    return rows


def _to_csv(batches: Iterable[pa.RecordBatch], schema: pa.Schema, file: BinaryIO) -> int:
    from pyarrow.csv import CSVWriter

    rows, plain = 0, _mapped(pa.RecordBatch.from_pylist([], schema), _as_text)
    with CSVWriter(file, plain.schema) as writer:
        for batch in batches:
            writer.write(_mapped(batch, _as_text))
            rows += batch.num_rows
    return rows


def _to_lines(batches: Iterable[pa.RecordBatch], schema: pa.Schema, file: BinaryIO) -> int:
    del schema
    rows = 0
    for line in _documents(batches):
        file.write(line + b"\n")
        rows += 1
    return rows


def _to_json(batches: Iterable[pa.RecordBatch], schema: pa.Schema, file: BinaryIO) -> int:
    del schema
    rows = 0
    for line in _documents(batches):
        file.write((b",\n" if rows else b"[\n") + line)
        rows += 1
    file.write(b"\n]\n" if rows else b"[]\n")
    return rows


_WRITERS: Mapping[Format, Callable[[Iterable[pa.RecordBatch], pa.Schema, BinaryIO], int]] = {
    Format.CSV: _to_csv,
    Format.PARQUET: _to_parquet,
    Format.JSON: _to_json,
    Format.JSONL: _to_lines,
}


def _documents(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    for batch in batches:
        for start in range(0, batch.num_rows, _ROWS):
            part = _mapped(batch.slice(start, _ROWS), _plain)
            for row in part.to_pylist():
                yield json.dumps(row, ensure_ascii=False, allow_nan=False).encode()


def _mapped(batch: pa.RecordBatch, change: Callable[[pa.Array], pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([change(column) for column in batch.columns], names=batch.schema.names)


def _finite(values: pa.Array) -> pa.Array:
    """Return null for NaN and infinities, of which JSON has neither."""
    if pa.types.is_floating(values.type):
        return pc.if_else(pc.is_finite(values), values, pa.scalar(None, values.type))
    return values


def _plain(values: pa.Array) -> pa.Array:
    """Return what JSON has: categories are texts, times are ISO 8601, and what is not finite is null."""
    if pa.types.is_dictionary(values.type):
        return values.dictionary_decode()
    if pa.types.is_timestamp(values.type):
        return pc.strftime(values, format="%Y-%m-%dT%H:%M:%SZ")
    return _finite(values)


def _as_text(values: pa.Array) -> pa.Array:
    """Return the same for CSV, where spreadsheets take texts that begin with `=` for formulas: they get a quote."""
    plain = _plain(values)
    if pa.types.is_string(plain.type) or pa.types.is_large_string(plain.type):
        return pc.replace_substring_regex(plain, _FORMULA, r"'\1")
    return plain
