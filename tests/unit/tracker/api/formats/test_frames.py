"""The types of frames and record batches are those of the table's definition, whatever the data."""

import io
import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.api.formats.arrow import arrow_schema, batch_of
from tracker.api.formats.files import Format, write_batches
from tracker.api.formats.frames import frame_of
from tracker.domain.tables.answers import ANSWERS
from tracker.domain.tables.catalog import TABLES
from tracker.domain.tables.columns import Coded, Column, Kind, Rows, TableDefinition, Values

ALL = {**TABLES, **ANSWERS}
TIMES = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - bounds are naive
VALUES = {
    Kind.TEXT: st.text(st.characters(exclude_categories=["Cs"])),
    Kind.INTEGER: st.integers(-(2**53), 2**53),
    Kind.OPTIONAL_INTEGER: st.none() | st.integers(-(2**53), 2**53),
    Kind.NUMBER: st.none() | st.floats() | st.integers(-9, 9),
    Kind.FLAG: st.booleans(),
    Kind.TIME: st.none() | TIMES,
}


def values_of(column: Column) -> st.SearchStrategy[object]:
    if column.kind is Kind.CATEGORY:
        return st.none() | (st.sampled_from(column.categories) if column.categories else st.text(max_size=3))
    return VALUES[column.kind]


@st.composite
def columns_of(draw: st.DrawFn, column: Column, length: int) -> Values:
    """Draw a column, as a list or as codes of few values; numbers also as an array."""
    values: list[object] = draw(st.lists(values_of(column), min_size=length, max_size=length))
    form: str = draw(st.sampled_from(["list", "array", "codes"]))
    if column.kind is Kind.NUMBER and form == "array":
        return np.array(values, dtype=np.float64)
    if values and form == "codes":
        codes: list[int] = draw(st.lists(st.integers(0, length - 1), min_size=length, max_size=length))
        return Coded(codes=np.array(codes, dtype=np.int64), values=tuple(values))
    return values


@pytest.mark.parametrize("name", ALL)
@given(data=st.data(), length=st.integers(0, 4))
def test_types_do_not_depend_on_the_data(name: str, data: st.DataObject, length: int) -> None:
    table: TableDefinition = ALL[name]
    rows: Rows = {}
    for column in table.columns:
        rows[column.name] = data.draw(columns_of(column, length))
    batch = batch_of(table, rows)
    assert batch.schema == arrow_schema(table.columns)
    assert batch.num_rows == length
    frame = frame_of(table, dict(rows))
    assert {column: str(kind) for column, kind in frame.dtypes.items()} == {c.name: str(c.kind) for c in table.columns}
    assert len(frame) == length
    for column in table.columns:
        wanted = [None if pd.isna(value) else value for value in plain_values(rows[column.name])]
        found = frame[column.name].astype(object)
        assert found.where(found.notna(), None).tolist() == wanted
        assert frame[column.name].notna().all() or column.kind not in (Kind.TEXT, Kind.INTEGER, Kind.FLAG)
        if column.categories:
            assert frame[column.name].cat.ordered
            assert tuple(frame[column.name].cat.categories) == column.categories
        _same(batch.column(column.name), wanted)


def plain_values(values: Values) -> list[Any]:
    return list(values)


def _same(array: pa.Array, wanted: list[object]) -> None:
    """Compare with the record batch; NaN is null."""
    plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    assert plain.to_pylist() == wanted


@pytest.mark.parametrize("kind", [Format.JSON, Format.JSONL, Format.CSV])
def test_what_is_not_finite_is_empty_in_every_text(kind: Format) -> None:
    table = TABLES["curves"]
    rows: Rows = {"run": ["a", "a", "a"], "step": [1, 2, 3], "key": ["loss"] * 3, "value": [math.nan, math.inf, 0.5]}
    file = io.BytesIO()
    assert write_batches([batch_of(table, rows)], arrow_schema(table.columns), kind, file) == 3
    text = file.getvalue().decode().lower()
    assert "inf" not in text
    assert "nan" not in text
    assert "0.5" in text
