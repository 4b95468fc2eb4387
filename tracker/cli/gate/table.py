"""Gate result -> terminal output (rich). Pure: the caller's Console determines width and colour."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from tracker.cli.tables.comparison import example_grid, repetition_lines
from tracker.cli.tables.render import number_columns, plain_table
from tracker.domain.gate import text as words
from tracker.domain.gate.types import GateReport, GateWord

GATE_STYLES: Mapping[GateWord, str] = {
    GateWord.REGRESSION: "bold red",
    GateWord.MISSING: "magenta",
    GateWord.INCOMPARABLE: "magenta",
    GateWord.INCONCLUSIVE: "yellow",
    GateWord.PASS: "green",
}


def gate_table(report: GateReport) -> RenderableType:
    """Return the result, each check with its evidence, and examples of lost samples."""
    head = Text.assemble(
        (report.word.upper(), GATE_STYLES[report.word]),
        "  ",
        (words.sides_text(report), "bold"),
        f": {words.deciding_text(report)}",
    )
    compared = [
        replace(check.compared, benchmark=words.name_text(check.benchmark))
        for check in report.benchmarks
        if check.compared is not None
    ]
    lost = (line for check in words.checks_of(report) for line in _lost(check))
    return Group(
        head,
        *(Text(line) for line in words.changed_lines(report)),
        "",
        _Checks(report=report),
        *(Text(line, style="yellow") for line in words.warning_lines(report)),
        *repetition_lines(compared),
        Text(words.alpha_text(report), style="dim"),
        *lost,
    )


_WIDE = 110
"""Minimum width, in columns, for reasons next to the numbers."""
_NARROW = 76
"""Minimum width, in columns, for numbers next to each other: on narrower terminals rich would drop names."""


@dataclass(frozen=True, kw_only=True)
class _Checks:
    """The checks: reasons are in the table if they fit, otherwise below it; a narrow terminal gets a list."""

    report: GateReport

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        is_wide = options.max_width >= _WIDE
        checks = words.checks_of(self.report)
        if options.max_width < _NARROW:
            yield from (line for check in checks for line in _stacked(check))
            return
        yield _table(checks, is_wide=is_wide)
        if not is_wide:
            for check in checks:
                yield Text.assemble((f"{check.name}: ", GATE_STYLES[check.word]), check.reason)


def _stacked(check: words.GateCheck) -> Iterable[RenderableType]:
    yield Text.assemble(f"{check.name} ({check.kind}): ", _word(check.word), (f" {check.gain}".rstrip(), "green"))
    yield Padding(Text(check.reason), (0, 0, 0, 2))
    one = check.compared
    if one is not None:
        for numbers in (
            f"{words.scores_text(one)}, {words.answered_text(one, check.contexts)}",
            f"{words.gate_change_text(one)}, {words.level_text(one, check.alpha_test)}",
        ):
            yield Padding(Text(numbers, style="dim"), (0, 0, 0, 2))


def _table(checks: Iterable[words.GateCheck], *, is_wide: bool) -> Table:
    table = plain_table(
        Column("check", overflow="fold", min_width=8),
        *number_columns("scores", "change, 95 % CI\none-sided p, level", "lost/gained"),
        Column("result", no_wrap=True),
        padding=(0, 1, 0, 0),
    )
    if is_wide:
        table.add_column("reason", overflow="fold")
    for check in checks:
        why = (Text(check.reason),) if is_wide else ()
        named = Text.assemble(check.name, (f"\n{check.kind}", "dim"))
        result = Text("\n").join(filter(None, (_word(check.word), Text(check.gain, style="green"))))
        table.add_row(named, *_numbers(check), result, *why)
    return table


def _numbers(check: words.GateCheck) -> tuple[RenderableType, ...]:
    one = check.compared
    if one is None:
        return "", "", ""
    style = "bold yellow" if min(one.before.coverage, one.after.coverage) < 1 else "dim"
    return (
        Text.assemble(f"{words.scores_text(one)}\n", (words.answered_text(one, check.contexts, between="\n"), style)),
        Text.assemble(f"{words.gate_change_text(one)}\n", (words.short_level_text(one, check.alpha_test), "dim")),
        words.lost_and_gained_text(one),
    )


def _word(word: GateWord) -> Text:
    return Text(f"{words.GATE_SYMBOLS[word]} {word}", style=GATE_STYLES[word])


def _lost(check: words.GateCheck) -> Iterable[RenderableType]:
    for number, example in enumerate(words.loss_examples(check)):
        yield Text("")
        if number == 0:
            yield Text(f"{check.name}, lost samples:", style="bold red")
        yield example_grid(example)
