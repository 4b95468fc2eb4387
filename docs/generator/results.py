"""The reference of the tables of results, from the definitions that Python and exports use."""

from __future__ import annotations

from collections.abc import Iterator

from tracker.domain.tables.answers import ANSWERS
from tracker.domain.tables.catalog import TABLES
from tracker.domain.tables.columns import TableDefinition

HEAD = """# Tables of results

What [Python](../how-to/python.md) and `tracker export` give, sorted by the first columns. NaN and empty: missing.
"""


def results_page() -> str:
    """Return docs/reference/results.md."""
    return "\n".join([HEAD, *(line for table in (*TABLES.values(), *ANSWERS.values()) for line in _section(table))])


def _section(table: TableDefinition) -> Iterator[str]:
    yield f"## {table.name}\n"
    yield f"One row for each {table.row}.\n"
    yield "| column | type | meaning |"
    yield "|---|---|---|"
    for column in table.columns:
        unit = f", {column.unit}" if column.unit else ""
        yield f"| `{column.name}` | {column.kind}{unit} | {column.meaning} |"
    yield ""
