"""Comparison of two checkpoints -> terminal output (rich). Pure."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from tracker.cli.tables.render import STYLES, number_columns, plain_table, quoted, sample_grid, unfit_lines
from tracker.domain.calibration.repetition_text import not_calibrated_text, repetition_text
from tracker.domain.compare.beside_run import differences_from_run
from tracker.domain.compare.examples import Example
from tracker.domain.compare.view import ComparedBenchmark, ComparisonView, Side
from tracker.domain.overview.run import SYMBOLS
from tracker.domain.records.display import one_line, p_value_text, percent_text, score_text, signed_text
from tracker.domain.records.reason_text import neutral_lines, samples_alone_text, shown_p


def comparison_table(view: ComparisonView) -> RenderableType:
    """Return two checkpoints side by side: scores, changes with their uncertainty, and changed samples."""
    parts: list[RenderableType] = [_sides(view.before, view.after), _compared_table(view.benchmarks)]
    if any(min(one.before.coverage, one.after.coverage) < 1 for one in view.benchmarks):
        parts.append(Text("percentages: share of samples with a score", style="bold yellow"))
    parts += map(Text, differences_from_run(view))
    parts += [Text(one_line(line), style="dim") for line in neutral_lines(view.neutral)]
    parts += repetition_lines(view.benchmarks)
    for refused in view.refused:
        reasons = "; ".join(one_line(reason) for reason in refused.reasons)
        parts.append(Text.assemble((f"cannot compare {one_line(refused.benchmark)}: ", "magenta"), reasons))
    for compared in view.benchmarks:
        parts += _examples(compared)
    return Group(*parts)


def repetition_lines(benchmarks: Sequence[ComparedBenchmark]) -> Iterable[Text]:
    """Yield the noise that differences must be compared with, and the benchmarks for which it is unknown."""
    for one in benchmarks:
        if one.repetition is not None:
            yield Text(f"{one_line(one.benchmark)}: {one_line(repetition_text(one.repetition))}", style="dim")
    yield from unfit_lines(one.repetition for one in benchmarks)
    if missing := not_calibrated_text(one.benchmark for one in benchmarks if one.repetition is None):
        yield Text(missing, style="dim")
    if alone := samples_alone_text([one.benchmark for one in benchmarks if one.is_jitter_unknown]):
        yield Text(alone, style="dim")


def example_grid(example: Example) -> Table:
    """Return one changed sample: its prompt, what was expected, and both answers."""
    return sample_grid(
        [
            ("prompt", quoted(example.prompt)),
            ("expected", quoted(example.target)),
            ("before", quoted(example.answer_before)),
            ("after", quoted(example.answer_after)),
        ]
    )


def _sides(before: Side, after: Side) -> Text:
    runs = dict.fromkeys(one_line(side.run_id) for side in (before, after))
    if len(runs) == 1:
        return Text.assemble((next(iter(runs)), "bold"), f"  step {after.step} compared with step {before.step}")
    new, old = (f"{one_line(side.run_id)} step {side.step}" for side in (after, before))
    return Text.assemble((new, "bold"), f" compared with {old}")


def _compared_table(benchmarks: Sequence[ComparedBenchmark]) -> Table:
    table = plain_table(
        Column("benchmark", overflow="fold", min_width=9),
        *number_columns("scores", "change, 95 % CI\none-sided p", "lost/gained"),
        Column("verdict", no_wrap=True),
        padding=(0, 1, 0, 0),
    )
    for one in benchmarks:
        change = one.comparison
        interval = f"{signed_text(change.ci_low)}, {signed_text(change.ci_high)}"
        p, side = shown_p(change)
        table.add_row(
            Text(one_line(one.benchmark)),
            Text.assemble(f"{score_text(one.before.mean)} → {score_text(one.after.mean)}\n", _answered(one)),
            Text.assemble(f"{signed_text(change.delta)} [{interval}]\n", (f"{p_value_text(p)} ({side})", "dim")),
            f"{change.n_lost}/{change.n_gained}",
            Text(f"{SYMBOLS[one.word]} {one.word}", style=STYLES[one.word]),
        )
    return table


def _answered(one: ComparedBenchmark) -> tuple[str, str]:
    """Return the coverage of both scores with its style; if both are complete, the number of samples, dimmed."""
    before, after = one.before, one.after
    if before.coverage == after.coverage == 1:
        return f"n = {after.planned}", "dim"
    return f"{percent_text(before.coverage)} → {percent_text(after.coverage)}", "bold yellow"


def _examples(compared: ComparedBenchmark) -> Iterable[RenderableType]:
    for title, style, examples in (("lost", "red", compared.lost), ("gained", "green", compared.gained)):
        if examples:
            yield Text("")
            yield Text(f"{one_line(compared.benchmark)}, {title} samples:", style=f"bold {style}")
        for example in examples:
            yield example_grid(example)
