"""Two runs side by side -> terminal output (rich). Pure."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tracker.cli.tables.render import plain_table
from tracker.domain.compare.run_text import SCOPE, Row, checkpoint_rows, remarks, summary_rows, total_rows
from tracker.domain.compare.runs import BenchmarkOfRuns, By, RunComparison
from tracker.domain.records.display import one_line

SHOWN = 30
"""Maximum checkpoints of a benchmark; earlier ones are counted."""


def both_runs_table(found: RunComparison) -> RenderableType:
    """Return both runs side by side: scores and differences, best checkpoints, latency and cost."""
    parts: list[RenderableType] = [Text(f"A  {one_line(found.a.run_id)}"), Text(f"B  {one_line(found.b.run_id)}")]
    for one in found.benchmarks:
        parts += ["", Text.assemble((one_line(one.benchmark), "bold"), f"  {one_line(one.metric)}")]
        parts.append(_benchmark_table(one, found.by))
    rows = ((name, *cells) for name, cells in summary_rows((found.a, found.b)))
    parts += ["", _table(("", "A", "B"), rows), "", Text(SCOPE, style="dim")]
    for remark in remarks(found):
        parts.append(Text(remark, style="magenta"))
    return Group(*parts)


def _benchmark_table(one: BenchmarkOfRuns, by: By) -> RenderableType:
    rows = checkpoint_rows((one,), by)
    cells = map(_cells, (*rows[-SHOWN:], *total_rows((one,))))
    table = _table((by.value, "A", "B", "B − A, 95 % CI"), cells)  # noqa: RUF001 - a minus as in the cells
    if len(rows) > SHOWN:
        return Group(Text(f"… {len(rows) - SHOWN:,} earlier rows: --json prints all", style="dim"), table)
    return table


def _cells(row: Row) -> tuple[str, ...]:
    a, b, difference = row.cells
    change = difference.text
    if difference.note:
        change = f"{change} [{difference.note}]"
    return row.name, f"{a.note}  {a.text}".strip(), f"{b.note}  {b.text}".strip(), change


def _table(heads: Iterable[str], rows: Iterable[tuple[str, ...]]) -> Table:
    table = plain_table()
    for head in heads:
        table.add_column(head, justify="right" if head else "left", no_wrap=bool(head))
    for row in rows:
        table.add_row(*map(Text, row))
    return table
