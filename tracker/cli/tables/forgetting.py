"""The forgetting ledger -> terminal output (rich)."""

import math
from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from tracker.cli.tables.render import number_columns, plain_table, quoted, run_title, sample_grid
from tracker.domain.forgetting import wording
from tracker.domain.forgetting.levels import Forgetting
from tracker.domain.forgetting.types import BenchmarkLedger, LedgerRow, LostSample, RunLedger
from tracker.domain.records.display import (
    NOTHING,
    change_interval_text,
    count_text,
    one_line,
    percent_text,
    score_text,
    signed_text,
    span_text,
)


def ledger_tables(ledger: RunLedger, *, subsets: int) -> RenderableType:
    """Return the summary, what remained of each phase, and lost samples.

    `subsets`: number of subsets to show per benchmark.
    """
    remarks = [Text(note, "dim") for benchmark in ledger.benchmarks for note in wording.notes(benchmark)]
    if not ledger.steps:
        return Group(Text(f"{one_line(ledger.run_id)}: not enough scores yet"), *remarks)
    parts: list[RenderableType] = [
        run_title(ledger.run_id, ledger.steps, "scored checkpoint"),
        _summary(ledger.benchmarks, subsets),
        *remarks,
    ]
    transfers = wording.transfer_sentences(ledger)
    parts += [Text(""), *map(Text, transfers)] if transfers else []
    for benchmark in ledger.benchmarks:
        parts += _lost(benchmark)
    return Group(*parts)


def _summary(benchmarks: Iterable[BenchmarkLedger], subsets: int) -> Table:
    names = number_columns("best", "steps", "now", "change,\n95 % CI", "retained", "lost", "lost\nnow", "by\nchance")
    table = plain_table(Column("benchmark", overflow="fold", min_width=8), *names, padding=(0, 1, 0, 0))
    for benchmark in benchmarks:
        table.add_row(Text(one_line(benchmark.benchmark), "bold"), *_cells(benchmark.whole))
        for row in benchmark.subsets[:subsets]:
            table.add_row(Text(f"  {one_line(row.subset)}", "dim"), *_cells(row))
        more = len(benchmark.subsets) - subsets
        if subsets and more > 0:
            table.add_row(Text(f"  +{more} more", "dim"))
    return table


def _cells(row: LedgerRow) -> tuple[Text | str, ...]:
    found = row.forgetting
    if found is None:
        newest = next((mean for mean in reversed(row.means) if mean is not None), None)
        return (NOTHING, "", score_text(newest), NOTHING, NOTHING, *_flow_cells(row))
    return (
        score_text(found.peak.mean),
        span_text((found.peak.first_step, found.peak.last_step)).replace(" to ", "-"),
        score_text(found.last.mean),
        Text(_change_text(found), "red" if found.ci_low > 0 else ""),
        NOTHING if found.retention is None else percent_text(found.retention),
        *_flow_cells(row),
    )


def _change_text(found: Forgetting) -> str:
    """Return `-0.825 ± 0.113`; an interval that ends at -1 or 1 has two halves of other lengths."""
    change, above, below = -found.forgetting, found.ci_high - found.forgetting, found.forgetting - found.ci_low
    if math.isclose(above, below, abs_tol=1e-9):
        return f"{signed_text(change)} ± {score_text(above)}"
    return f"{signed_text(change)}\n{change_interval_text(-found.ci_high, -found.ci_low)}"


def _flow_cells(row: LedgerRow) -> tuple[str, str, str]:
    now = NOTHING if row.newest is None else str(row.newest.lost)
    if row.flow is None:
        return NOTHING, now, NOTHING
    return str(row.flow.lost), now, wording.chance_text(row.flow.expected_false)


def _lost(benchmark: BenchmarkLedger) -> Iterator[RenderableType]:
    window, flow = benchmark.window, benchmark.whole.flow
    if window is None or flow is None or not benchmark.details:
        return
    now = wording.newest_text(benchmark.whole)
    yield Text("")
    yield Text.assemble(
        (
            f"{one_line(benchmark.benchmark)}: {count_text(flow.lost, 'lost sample')}{f', {now}' if now else ''}",
            "bold red",
        ),
        f" ({wording.chance_text(flow.expected_false)} expected by chance), {wording.window_text(window)}",
    )
    for sample in benchmark.details:
        yield _sample_grid(sample, window.before_steps[-1], window.after_steps[-1])
    if flow.lost > len(benchmark.details):
        yield Text(f"and {flow.lost - len(benchmark.details)} more (use --samples or --json)", "dim")


def _sample_grid(sample: LostSample, before: int, after: int) -> Table:
    texts, life = sample.texts, Text(wording.events_text(sample.events), "dim")
    if texts is None:
        missing = Text(f"{one_line(sample.sample_id)} (text not kept)")
        return sample_grid([("sample", missing), ("history", life)])
    return sample_grid(
        [
            ("prompt", quoted(texts.prompt)),
            ("expected", quoted(texts.target)),
            (_place(before, right=texts.right_before), quoted(texts.answer_before)),
            (_place(after, right=texts.right_after), quoted(texts.answer_after)),
            ("history", life),
        ]
    )


def _place(step: int, *, right: bool) -> Text:
    if right:
        return Text(f"✓ {step}", "green")
    return Text(f"✗ {step}", "red")
