"""The reference of database tables, from the definitions that create them."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import MetaData, Table

from eval_jobs.queue import plans_sql
from tracker.adapters.alerts import tables_sql as alerts
from tracker.adapters.database import lead_sql
from tracker.adapters.history import sweeps_sql
from tracker.adapters.history import tables_sql as history
from tracker.adapters.tracking import tables_sql

HEAD = """# Database tables

The tracker keeps its state in SQLite (`tracker.db` in the state folder) or in PostgreSQL
([`[store]`](settings.md#store)).
Read these tables for your own dashboards, but do not write to them. Columns may be added in any version.
"""

STORES: tuple[tuple[str, MetaData], ...] = (
    ("Plans and workers", plans_sql.METADATA),
    ("Results", history.METADATA),
    ("Sweeps", sweeps_sql.METADATA),
    ("Pending MLflow writes", tables_sql.METADATA),
    ("Alerts", alerts.METADATA),
    ("Active watcher", lead_sql.METADATA),
)


def tables_page() -> str:
    """Return docs/reference/tables.md."""
    lines = [HEAD]
    for title, metadata in STORES:
        lines += [f"## {title}\n", "| table | columns (key in bold) |", "|---|---|"]
        lines += [f"| `{table.name}` | {', '.join(_columns(table))} |" for table in metadata.sorted_tables]
        lines.append("")
    return "\n".join(lines)


# --- private


def _columns(table: Table) -> Iterator[str]:
    for column in table.columns:
        name = f"**{column.name}**" if column.primary_key else column.name
        yield f"{name} {str(column.type).lower()}"
