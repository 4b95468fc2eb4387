"""Tables as pandas DataFrames, with the types of their definition whatever the data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tracker.api.formats.arrow import array_of, arrow_schema
from tracker.domain.tables.columns import Column, Kind, Rows, TableDefinition

_EXTENSIONS = {Kind.TEXT: pd.StringDtype("pyarrow", na_value=np.nan), Kind.OPTIONAL_INTEGER: pd.Int64Dtype()}


def frame_of(table: TableDefinition, rows: Rows) -> pd.DataFrame:
    """Return the rows as a DataFrame with a RangeIndex; they are taken out, so that millions are not held twice."""
    found = {}
    for column in table.columns:
        found[column.name] = _series(column, pa.chunked_array([array_of(column, rows.pop(column.name))]))
    return pd.DataFrame(found, copy=False)


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
        found[column.name] = _series(column, table.column(column.name))
        table = table.drop_columns([column.name])  # not in memory twice
    return pd.DataFrame(found, copy=False)


def _series(column: Column, values: pa.ChunkedArray) -> pd.Series[Any]:
    if column.kind is Kind.CATEGORY:
        found = pd.Series(values.unify_dictionaries().to_pandas())
        known = column.categories or sorted(found.cat.categories)
        return found.cat.set_categories(pd.Index(known, dtype="str"), ordered=bool(column.categories))
    if column.kind in _EXTENSIONS:
        return pd.Series(values.to_pandas(types_mapper=lambda _: _EXTENSIONS[column.kind]))
    if column.kind is Kind.TIME:
        return pd.Series(values.to_pandas())
    return pd.Series(values.to_numpy())
