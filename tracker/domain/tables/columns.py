"""What a table of results is: its rows, and the name, type, unit and meaning of each column. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tracker.domain.scores.matrix import FloatArray, IntArray


class Kind(StrEnum):
    """Type of a column, as pandas names it. It never depends on the data."""

    TEXT = "str"
    CATEGORY = "category"
    INTEGER = "int64"
    OPTIONAL_INTEGER = "Int64"
    """May be missing."""
    NUMBER = "float64"
    """NaN: missing."""
    FLAG = "bool"
    TIME = "datetime64[us, UTC]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One column."""

    name: str
    kind: Kind
    unit: str = ""
    meaning: str
    categories: tuple[str, ...] = ()
    """Of a category whose values have an order: all values, in this order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TableDefinition:
    """One table."""

    name: str
    row: str
    """What one row is about."""
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in their order."""
        return tuple(column.name for column in self.columns)


@dataclass(frozen=True, kw_only=True, eq=False)
class Coded:
    """Values that repeat: row i has `values[codes[i]]`."""

    codes: IntArray
    values: tuple[object, ...]

    def __len__(self) -> int:
        return int(self.codes.size)

    def __iter__(self) -> Iterator[object]:
        return (self.values[code] for code in self.codes.tolist())


Values = Sequence[object] | FloatArray | Coded
"""One column: None or NaN is missing."""

Rows = dict[str, Values]
"""A table by column, all of the same length."""


def text(name: str, meaning: str) -> Column:
    """Return a column of texts; never missing, but may be empty."""
    return Column(name=name, kind=Kind.TEXT, meaning=meaning)


def category(name: str, meaning: str, *, ordered: Sequence[str] = ()) -> Column:
    """Return a column of few texts; `ordered`: all of them, if they have an order."""
    return Column(name=name, kind=Kind.CATEGORY, meaning=meaning, categories=tuple(ordered))


def count(name: str, meaning: str, unit: str = "") -> Column:
    """Return a column of integers."""
    return Column(name=name, kind=Kind.INTEGER, unit=unit, meaning=meaning)


def optional_count(name: str, meaning: str, unit: str = "") -> Column:
    """Return a column of integers that may be missing."""
    return Column(name=name, kind=Kind.OPTIONAL_INTEGER, unit=unit, meaning=meaning)


def number(name: str, meaning: str, unit: str = "") -> Column:
    """Return a column of numbers."""
    return Column(name=name, kind=Kind.NUMBER, unit=unit, meaning=meaning)


def flag(name: str, meaning: str) -> Column:
    """Return a column of truth values."""
    return Column(name=name, kind=Kind.FLAG, meaning=meaning)


def moment(name: str, meaning: str) -> Column:
    """Return a column of points in time."""
    return Column(name=name, kind=Kind.TIME, meaning=meaning)


RUN = text("run", "Name of the run.")
STEP = count("step", "Step of the checkpoint.")
