"""The reference of database tables, from the definitions that create them."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import MetaData, Table

from eval_jobs.queue import plans_sql
from tracker.adapters.database.tables import TRACKER_TABLES

HEAD = """# Database tables

The tracker keeps its state in SQLite (`tracker.db` in the state folder) or in PostgreSQL
([`[store]`](settings.md#store)).
Read these tables for your own dashboards, but do not write to them. Keys are bold; columns are text unless a type
follows. Columns may be added in any version.
"""

STORES: tuple[tuple[str, MetaData, str], ...] = (
    ("Plans and workers", plans_sql.METADATA, "eval_"),
    ("Results", TRACKER_TABLES.metadata, "history_"),
    ("Sweeps", TRACKER_TABLES.metadata, "sweep_"),
)
"""Title, tables, and the beginning of the names under it."""


def tables_page() -> str:
    """Return docs/reference/tables.md."""
    lines = [HEAD]
    for title, metadata, prefix in STORES:
        own = [table for table in metadata.sorted_tables if table.name.startswith(prefix)]
        lines += [f"## {title}\n", "| table | columns |", "|---|---|"]
        lines += [f"| `{table.name}` | {', '.join(_columns(table))} |" for table in own]
        lines.append("")
    return "\n".join(lines)


# --- private


def _columns(table: Table) -> Iterator[str]:
    for column in table.columns:
        name = f"**{column.name}**" if column.primary_key else column.name
        type_ = str(column.type).lower()
        is_text = type_ == "text" or type_.startswith("varchar")
        yield name if is_text else f"{name} {type_}"
