"""Tables as Arrow record batches, with the types of their definition whatever the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
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


def batch_of(table: TableDefinition, rows: Rows) -> pa.RecordBatch:
    """Return the rows as a record batch; missing numbers are null."""
    arrays = [array_of(column, rows[column.name]) for column in table.columns]
    return pa.record_batch(arrays, schema=arrow_schema(table.columns))


def array_of(column: Column, values: Values) -> pa.Array:
    """Return one column; missing numbers are null."""
    kind = column.kind
    if isinstance(values, Coded):
        return array_of(column, values.values).take(pa.array(values.codes))
    if kind is Kind.TEXT:
        values = ["" if value is None else str(value) for value in values]
    if kind is Kind.CATEGORY:
        texts = [None if value is None else str(value) for value in values]
        return pa.array(texts, pa.string()).dictionary_encode().cast(_CATEGORY)
    if kind is Kind.OPTIONAL_INTEGER:
        values = np.array(values, dtype=np.float64)
    return pa.array(values, from_pandas=True).cast(_ARROW[kind])


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
