"""Tables as pandas DataFrames, with the types of their definition whatever the data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tracker.domain.tables.catalog import SAMPLES
from tracker.domain.tables.columns import Coded, Column, Kind, Rows, TableDefinition, Values

_CATEGORY = pa.dictionary(pa.int32(), pa.string())
_ARROW = {
    Kind.TEXT: pa.large_string(),  # as pandas has them
    Kind.CATEGORY: _CATEGORY,
    Kind.INTEGER: pa.int64(),
    Kind.OPTIONAL_INTEGER: pa.int64(),
    Kind.NUMBER: pa.float64(),
    Kind.FLAG: pa.bool_(),
    Kind.TIME: pa.timestamp("us", "UTC"),
}

_EXTENSIONS = {
    Kind.TEXT: pd.StringDtype("pyarrow", na_value=np.nan),
    Kind.OPTIONAL_INTEGER: pd.Int64Dtype(),
}


def frame_of(table: TableDefinition, rows: Rows) -> pd.DataFrame:
    """Return the rows as a DataFrame with a RangeIndex; they are taken out, so that millions are not held twice."""
    return pd.DataFrame({column.name: _series(column, rows.pop(column.name)) for column in table.columns}, copy=False)


def schema_of(tables: Iterable[TableDefinition]) -> pd.DataFrame:
    """Return the columns of tables: table, column, dtype, unit, meaning."""
    lines = [
        (table.name, column.name, str(column.kind), column.unit, column.meaning)
        for table in tables
        for column in table.columns
    ]
    return pd.DataFrame(lines, columns=["table", "column", "dtype", "unit", "meaning"], dtype="str")


def frame_of_batches(columns: Sequence[Column], batches: Iterable[pa.RecordBatch]) -> pd.DataFrame:
    """Return record batches of these columns as a DataFrame."""
    table = pa.Table.from_batches(batches, schema=arrow_schema(columns))
    found = {}
    for column in columns:
        found[column.name] = _of_arrow(column, table.column(column.name))
        table = table.drop_columns([column.name])  # not in memory twice
    return pd.DataFrame(found, copy=False)


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the Arrow types of these columns."""
    return pa.schema([(column.name, _ARROW[column.kind]) for column in columns])


def arrow_batch(names: Sequence[str], table: pa.Table, repeated: Mapping[str, str | int]) -> pa.RecordBatch:
    """Return a record batch of the columns `names` of `table`, and of values that are the same in each row."""
    length, types = table.num_rows, {column.name: _ARROW[column.kind] for column in SAMPLES.columns}
    arrays = []
    for name in names:
        if name in repeated:
            arrays.append(_repeated(repeated[name], length, types[name]))
            continue
        column = table.column(name).combine_chunks()
        arrays.append(column.dictionary_encode() if pa.types.is_dictionary(types[name]) else column.cast(types[name]))
    return pa.record_batch(arrays, schema=pa.schema([(name, types[name]) for name in names]))


@lru_cache(maxsize=256)
def _repeated(value: str | int, length: int, kind: pa.DataType) -> pa.Array:
    """Return an array of one value; the benchmarks of an evaluation share it."""
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(length, dtype=np.int32)), [value])
    return pa.repeat(pa.scalar(value, kind), length)


def _of_arrow(column: Column, values: pa.ChunkedArray) -> pd.Series[Any]:
    if column.kind is Kind.CATEGORY:
        found = pd.Series(values.unify_dictionaries().to_pandas())
        return found.cat.set_categories(_categories(column, found.cat.categories.tolist()))
    if column.kind in _EXTENSIONS:
        return pd.Series(values.to_pandas(types_mapper=lambda _: _EXTENSIONS[column.kind]))
    return pd.Series(values.to_numpy())


def _series(column: Column, values: Values) -> pd.Series[Any]:
    if isinstance(values, Coded):
        return _of_codes(column, values)
    if column.kind is Kind.CATEGORY:
        dtype = pd.CategoricalDtype(_categories(column, values), ordered=bool(column.categories))
        return pd.Series(list(values), dtype=dtype)
    return _plain(column.kind, values)


def _of_codes(column: Column, values: Coded) -> pd.Series[Any]:
    if column.kind is Kind.CATEGORY:
        dtype = pd.CategoricalDtype(_categories(column, values.values), ordered=bool(column.categories))
        place = {str(value): code for code, value in enumerate(dtype.categories)}
        codes = np.array([place.get(str(value), -1) for value in values.values], dtype=np.int64)
        return pd.Series(pd.Categorical.from_codes(codes[values.codes], dtype=dtype))
    whole = _plain(column.kind, values.values)
    return whole.take(values.codes).reset_index(drop=True)


def _plain(kind: Kind, values: Values) -> pd.Series[Any]:
    if kind is Kind.TEXT:
        return pd.Series(["" if value is None else str(value) for value in values], dtype="str")
    if kind is Kind.OPTIONAL_INTEGER:
        return _optional_integers(values)
    if kind is Kind.TIME:
        return pd.Series(list(values), dtype="datetime64[us, UTC]")
    if kind is Kind.NUMBER:
        return pd.Series(np.array(values if len(values) else [], dtype=np.float64))
    if kind is Kind.FLAG:
        return pd.Series(list(values), dtype="bool")
    return pd.Series(list(values), dtype="int64")


def _optional_integers(values: Values) -> pd.Series[Any]:
    numbers = np.array([] if not len(values) else values, dtype=np.float64)
    missing = np.isnan(numbers)
    return pd.Series(pd.arrays.IntegerArray(np.where(missing, 0, numbers).astype(np.int64), missing))


def _categories(column: Column, values: Values) -> pd.Index[str]:
    known = column.categories or sorted({str(value) for value in values if value is not None})
    return pd.Index(known, dtype="str")
