"""Records -> terminal output (rich). Pure: the caller's Console determines width and colour."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from tracker.domain.calibration.repetition_text import is_unfit, short_text, unfit_text
from tracker.domain.overview.costs import cost_text
from tracker.domain.overview.noise import range_text
from tracker.domain.overview.run import SYMBOLS, Overview, overview
from tracker.domain.overview.standings import headline
from tracker.domain.records.alerts import subject_text
from tracker.domain.records.calibration import Repetition
from tracker.domain.records.display import clean, count_text, one_line, percent_text, score_text, shortened
from tracker.domain.records.reason_text import latency_reason_text, reason_text
from tracker.domain.records.reasons import Failed
from tracker.domain.records.types import IS_BACK, WORSE, Gap, LatencyVerdict, Report, Verdict, VerdictWord
from tracker.domain.verdicts.screening import mean_text, savings_text

STYLES: Mapping[VerdictWord, str] = {
    VerdictWord.MISSING: "magenta",
    VerdictWord.INCOMPARABLE: "magenta",
    VerdictWord.FORGOTTEN: "bold red",
    VerdictWord.REGRESSED: "red",
    VerdictWord.BELOW_GUESSING: "red",
    VerdictWord.RECOVERED: "green",
    VerdictWord.TRANSIENT: "green",
    VerdictWord.IMPROVED: "green",
    VerdictWord.EQUIVALENT: "",
    VerdictWord.SUSPECT: "yellow",
    VerdictWord.RISING: "green",
    VerdictWord.INCONCLUSIVE: "dim",
    VerdictWord.NOT_LEARNED: "dim",
    VerdictWord.FIRST: "dim",
}

DIGEST_SHOWN = 8
"""Characters of a digest that distinguish checkpoints of the same step."""

_BETWEEN_COLUMNS = 3
"""Cells between two columns of a plain table."""

_TEXT_CHARS = 300
"""Maximum length of a prompt or an answer, in characters."""

_MAX_FINDINGS = 10
"""Maximum findings listed under the table of a run."""


def history_table(reports: Sequence[Report], gaps: Sequence[Gap] = (), *, last: int = 0) -> RenderableType:
    """Return scores and verdicts of one run by step, with its name above and a one-sentence finding below.

    Args:
        reports: all of the run; older ones may be outlines.
        gaps: those of the run, for the finding.
        last: number of newest steps to show; 0: all. The finding is that of the whole run.
    """
    return _HistoryView(reports=tuple(reports), gaps=tuple(gaps), last=last)


def report_lines(report: Report, title: str = "") -> tuple[Text, ...]:
    """Return the verdicts on one checkpoint, one line each: benchmarks, findings, changed latencies.

    `title` names the checkpoint; default: its step.
    """
    cost = f"  {cost_text(report.cost)}" if report.cost is not None else ""
    is_scored = any(verdict.score is not None for verdict in report.verdicts)
    word = ("evaluated", "dim") if is_scored else ("   failed", "red")
    head = Text.assemble(word, " ", title or f"step {report.step}", (cost, "dim"))
    verdicts = (*report.verdicts, *report.findings)
    width = max((len(_subject(v)) for v in verdicts), default=0)
    lines = [
        Text.assemble(
            " " * 10, f"{_subject(verdict):<{width}}", "  ", _score(verdict), "  ", _word(verdict.word),
            _coverage(verdict, " scored"), (f"{_remark(verdict)}{_repeated(verdict)}", "dim"),
        )
        for verdict in verdicts
    ]  # fmt: skip
    return (
        head,
        *lines,
        *(Text.assemble(" " * 10, line) for line in unfit_lines(v.repetition for v in verdicts)),
        *(_latency_line(v) for v in report.latency if v.word in _LATENCY_NEWS),
    )


def unfit_lines(found: Iterable[Repetition | None]) -> Iterable[Text]:
    """Yield one line for each benchmark that is too noisy to show the smallest effect that counts."""
    for one in found:
        if one is not None and is_unfit(one):
            yield Text(one_line(unfit_text(one)), style="bold red")


def gaps_table(gaps: Sequence[Gap], *, last: int = 0) -> RenderableType:
    """Return the checkpoints that were not evaluated, with reasons and hints: a row for each series of equal ones.

    Args:
        gaps: ordered by step.
        last: number of newest ones to show; 0: all.
    """
    shown = gaps[-last:]
    hint = Column("hint", style="dim", overflow="fold")
    table = plain_table(*number_columns("not evaluated"), Column("reason", overflow="fold"), hint)
    for (code, message, hint), series in groupby(shown, key=lambda gap: (gap.code, gap.message, gap.hint)):
        spans = [gap.steps for gap in series]
        count = sum(map(len, spans))
        which = f"{spans[0][0]} to {spans[-1][-1]} ({count:,})" if count > 1 else str(spans[0][0])
        table.add_row(which, Text(f"{one_line(message)} [{code}]"), Text(one_line(hint)))
    return Group("", *_earlier(len(gaps) - len(shown), "checkpoint"), table)


def plain_table(*columns: Column | str, padding: tuple[int, int, int, int] = (0, 1, 0, 1)) -> Table:
    """Return a table whose only line is below its header."""
    return Table(*columns, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=padding)


def number_columns(*names: str) -> tuple[Column, ...]:
    """Return columns of numbers: aligned to the right, and never wrapped."""
    return tuple(Column(name, justify="right", no_wrap=True) for name in names)


def sample_grid(rows: Iterable[tuple[str | Text, Text]]) -> Table:
    """Return a grid for one sample: names on the left, texts on the right."""
    names = Column(style="dim", no_wrap=True, justify="right", min_width=10)
    grid = Table.grid(names, Column(overflow="fold"), padding=(0, 1, 0, 0))
    for name, text in rows:
        grid.add_row(name, text)
    return grid


def quoted(text: str | None) -> Text:
    """Return a prompt or an answer on one line of bounded length."""
    if text is None:
        return Text("(not kept)", style="dim")
    return Text(shortened(one_line(text), _TEXT_CHARS) or "(empty)")


def run_title(run_id: str, steps: Sequence[int], noun: str = "checkpoint") -> Text:
    """Return the name of a run, with the number and the range of its steps."""
    span = f"steps {steps[0]} to {steps[-1]}" if len(steps) > 1 else f"step {steps[0]}"
    return Text.assemble((one_line(run_id), "bold"), f"  {count_text(len(steps), noun)}, {span}")


def print_line(console: Console, word: str, text: str, style: str = "dim") -> None:
    """Print one event: its name, and a text."""
    console.print(Text.assemble((f"{word:>9} ", style), " ".join(clean(text).splitlines())), soft_wrap=True)


@dataclass(frozen=True, kw_only=True)
class _HistoryView:
    """Uses the widest form that fits: words, then symbols only, then several tables below each other."""

    reports: tuple[Report, ...]
    gaps: tuple[Gap, ...]
    last: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        view = overview(self.reports, self.gaps)
        if not view.steps:
            yield Text("no results yet")
            return
        yield run_title(self.reports[0].run_id, view.steps)
        shown = replace(view, steps=view.steps[-self.last :])
        yield from _earlier(len(view.steps) - len(shown.steps), "step")
        full = _table(shown, view.benchmarks)
        if Measurement.get(console, options.update(max_width=100_000), full).maximum <= options.max_width:
            yield full
        else:
            yield from _compact_tables(shown, options.max_width)
            yield _legend(shown)
        yield from _answered_legend(shown)
        yield from _missing(shown)
        if savings := savings_text(view.verdicts.values()):
            yield Text(savings, style="dim")
        for beyond in filter(None, map(range_text, view.noise)):
            yield Text(beyond, style="yellow")
        yield from _findings(view)
        yield from _left(view)
        yield Text("")
        yield Text(f"{headline(view)}.", style="bold")


def _missing(view: Overview) -> Iterable[Text]:
    """Yield why results are missing, one line for each error, with its newest case."""
    found: dict[str, list[tuple[int, Verdict]]] = {}
    for step in reversed(view.steps):
        for verdict in filter(None, (view.at(step, name) for name in view.benchmarks)):
            if verdict.word is VerdictWord.MISSING and verdict.reason is not None:
                code = verdict.reason.error if isinstance(verdict.reason, Failed) else verdict.reason.code
                found.setdefault(code, []).append((step, verdict))
    for (step, newest), *others in found.values():
        more = f" and {len(others)} more" if others else ""
        where = f"{newest.benchmark} at step {step}{more}"
        yield Text(one_line(f"missing: {where}: {reason_text(newest)}"), style=STYLES[VerdictWord.MISSING])


def _findings(view: Overview) -> Iterable[RenderableType]:
    """Yield the findings of the newest checkpoint, one line each, below a line with its step."""
    found = view.newest_findings()
    if not found:
        return
    yield Text("")
    yield Text(f"findings at step {view.steps[-1]}:", style="dim")
    width = max(len(_subject(finding)) for finding in found[:_MAX_FINDINGS])
    for finding in found[:_MAX_FINDINGS]:
        yield Text.assemble(f"{_subject(finding):<{width}}", "  ", _word(finding.word), _since(finding))
    if len(found) > _MAX_FINDINGS:
        yield Text(f"and {len(found) - _MAX_FINDINGS} more (see `tracker report`)", style="dim")


def _left(view: Overview) -> Iterable[Text]:
    """Yield the checkpoints that a training restart discarded, one line for each restart."""
    ends = dict.fromkeys(end for _, end in view.left)
    for end in ends:
        names = [f"{c.step}:{c.digest[:DIGEST_SHOWN]}" for c, went_to in view.left if went_to == end]
        more = f" and {len(names) - _MAX_FINDINGS} more" if len(names) > _MAX_FINDINGS else ""
        text = f"discarded when training restarted from a step before {end}: {', '.join(names[:_MAX_FINDINGS])}{more}"
        yield Text(text, style="dim")
    if ends:
        yield Text("`tracker compare` accepts these names (RUN@NAME for another run)", style="dim")


def _since(verdict: Verdict) -> Text:
    if verdict.lost_since is None:
        return Text("")
    was = "had been lost " if verdict.word in IS_BACK else ""
    return Text(f"  {was}since step {verdict.lost_since}", style="dim")


def _earlier(count: int, what: str) -> Iterable[Text]:
    if count:
        yield Text(f"\u2026 {count:,} earlier {what}{'s' if count > 1 else ''}: --last 0 shows all", style="dim")


def _compact_tables(view: Overview, room: int) -> Iterable[RenderableType]:
    """Yield tables of symbols, each with as many benchmarks as fit and at least one."""
    steps = max(cell_len(text) for text in ("step", *map(str, view.steps)))
    widths = [_column_width(view, name) for name in view.benchmarks]
    left = list(view.benchmarks)
    while left:
        fitting = sum(total <= room for total in accumulate(widths[-len(left) :], initial=steps)) - 1
        count = max(1, fitting)
        yield _table(view, left[:count], is_compact=True)
        yield Text("")
        left = left[count:]


def _column_width(view: Overview, benchmark: str) -> int:
    # Measuring each column with rich takes longer than all the rest of the page.
    cells = (_cell(view.at(step, benchmark), is_compact=True).cell_len for step in view.steps)
    return max(cell_len(one_line(benchmark)), *cells) + _BETWEEN_COLUMNS


def _table(view: Overview, benchmarks: Sequence[str], *, is_compact: bool = False) -> Table:
    named = (Column(Text(one_line(name)), no_wrap=True) for name in benchmarks)
    table = plain_table(*number_columns(view.unit), *named)
    for step in view.steps:
        table.add_row(str(step), *(_cell(view.at(step, name), is_compact=is_compact) for name in benchmarks))
    return table


def _cell(verdict: Verdict | None, *, is_compact: bool) -> Text:
    if verdict is None:
        return Text("")
    symbol = Text(f"{SYMBOLS[verdict.word]:<2}", style=STYLES[verdict.word])
    return Text.assemble(_score(verdict), " ", symbol if is_compact else _word(verdict.word), _coverage(verdict))


_LATENCY_NEWS = frozenset({VerdictWord.REGRESSED, VerdictWord.SUSPECT, VerdictWord.IMPROVED})


def _subject(verdict: Verdict) -> str:
    return one_line(subject_text(verdict.benchmark, verdict.subset, verdict.measure))


def _latency_line(verdict: LatencyVerdict) -> Text:
    name = f"{verdict.metric} p{verdict.quantile * 100:.0f}"
    reason = (f"  {one_line(latency_reason_text(verdict))}", "dim")
    return Text.assemble(" " * 10, name, "  ", _word(verdict.word), reason)


def _score(verdict: Verdict) -> Text:
    return Text(f"{mean_text(verdict):>5}")


def _coverage(verdict: Verdict, word: str = "") -> Text:
    share = f" ({percent_text(verdict.coverage)}{word})" if _is_partial(verdict) else ""
    return Text(share, style="bold yellow")


def _is_partial(verdict: Verdict) -> bool:
    return verdict.score is not None and verdict.coverage < 1


def _answered_legend(view: Overview) -> Iterable[Text]:
    steps = set(view.steps)
    shown = [verdict for (step, _), verdict in view.verdicts.items() if step in steps]
    if any(map(_is_partial, shown)):
        yield Text("(percentages): share of samples with a score, if below 100 %", style="bold yellow")


def _word(word: VerdictWord) -> Text:
    return Text(f"{SYMBOLS[word]:<2} {word}", style=STYLES[word])


def _remark(verdict: Verdict) -> str:
    """Return the reason; for an inconclusive comparison, the minimum detectable loss; empty for a first result."""
    if verdict.word is VerdictWord.FIRST:
        return ""
    if verdict.word is VerdictWord.INCONCLUSIVE and verdict.comparisons:
        return "" if verdict.mde is None else f"  (minimum detectable loss {score_text(verdict.mde)})"
    return f"  {one_line(reason_text(verdict))}{_onset(verdict)}"


def _repeated(verdict: Verdict) -> str:
    """Return the run-to-run noise if the verdict contains a difference to compare with it."""
    known = verdict.repetition
    if known is None or not verdict.comparisons:
        return ""
    return f"  ({short_text(known)})"


def _onset(verdict: Verdict) -> str:
    if verdict.drop is not None:
        return ""  # the reason contains it
    if verdict.word in WORSE and verdict.lost_since is not None:
        return f"; lost since step {verdict.lost_since}"
    return ""


def _legend(view: Overview) -> Text:
    steps = set(view.steps)
    used = {verdict.word for (step, _), verdict in view.verdicts.items() if step in steps}
    parts: list[Text] = [Text(f"{SYMBOLS[w]} {w}", style=STYLES[w]) for w in VerdictWord if w in used]
    return Text("  ").join(parts)
