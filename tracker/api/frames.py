"""Tables as pandas DataFrames, with the types of their definition whatever the data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from tracker.domain.tables.columns import Coded, Column, Kind, Rows, TableDefinition, Values


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
