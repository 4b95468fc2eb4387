"""Two runs side by side -> terminal output (rich). Pure."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tracker.cli.tables.render import plain_table
from tracker.domain.compare.run_pairs import PairedDifference, ScoreAt
from tracker.domain.compare.run_text import SCOPE, remarks, summary_rows
from tracker.domain.compare.runs import BenchmarkOfRuns, By, RunComparison, SideBySide
from tracker.domain.overview.costs import cost_rows, tokens_text
from tracker.domain.records.display import NOTHING, one_line, score_text, signed_text

SHOWN = 30
"""Maximum checkpoints of a benchmark; earlier ones are counted."""


def runs_table(found: RunComparison) -> RenderableType:
    """Return both runs side by side: scores and differences by step, best checkpoints, latency and cost."""
    parts: list[RenderableType] = []
    for letter, run in (("A", found.a), ("B", found.b)):
        parts.append(Text.assemble((f"{letter}  ", "bold"), one_line(run.run_id)))
    for one in found.benchmarks:
        parts += ["", Text.assemble((one_line(one.benchmark), "bold"), f"  {one_line(one.metric)}")]
        parts += [*_earlier(one), _benchmark_table(one, found.by)]
    parts += ["", _summary(found), "", Text(SCOPE, style="dim")]
    return Group(*parts, *(Text(remark, style="magenta") for remark in remarks(found)))


# --- private


def _earlier(one: BenchmarkOfRuns) -> Iterator[Text]:
    if len(one.rows) > SHOWN:
        yield Text(f"… {len(one.rows) - SHOWN:,} earlier rows: --json prints all", style="dim")


def _benchmark_table(one: BenchmarkOfRuns, by: By) -> Table:
    table = plain_table()
    for head in (by.value, "A", "B", "B − A, 95 % CI", "n"):  # noqa: RUF001 - a minus as in the cells
        table.add_column(head, justify="right", no_wrap=True)
    for row in one.rows[-SHOWN:]:
        table.add_row(*_cells(_place(row, by), row, with_steps=by is By.TOKENS))
    table.add_section()
    table.add_row("mean", "", "", *_difference(one.mean))
    table.add_row(*_cells("best", one.best, with_steps=True))
    return table


def _place(row: SideBySide, by: By) -> str:
    known = row.a or row.b
    if known is None:
        return NOTHING
    if by is By.STEP:
        return str(known.step)
    return tokens_text(None if known.tokens is None else round(known.tokens))


def _cells(place: str, row: SideBySide, *, with_steps: bool) -> tuple[str, ...]:
    return (place, *(_score(one, with_step=with_steps) for one in (row.a, row.b)), *_difference(row.difference))


def _score(one: ScoreAt | None, *, with_step: bool) -> str:
    if one is None:
        return NOTHING
    return f"@{one.step}  {score_text(one.score)}" if with_step else score_text(one.score)


def _difference(found: PairedDifference | None) -> tuple[str, str]:
    if found is None:
        return NOTHING, NOTHING
    return f"{signed_text(found.delta)} [{signed_text(found.ci_low)}, {signed_text(found.ci_high)}]", str(found.n)


def _summary(found: RunComparison) -> Table:
    table = plain_table()
    for name in ("", "A", "B"):
        table.add_column(name, justify="right" if name else "left", no_wrap=bool(name))
    runs = (found.a, found.b)
    for name, cells in (*summary_rows(runs), *cost_rows([run.cost for run in runs])):
        table.add_row(name, *cells)
    return table
