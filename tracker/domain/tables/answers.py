"""The tables that answer a question: two checkpoints compared, and the checks of a gate. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from tracker.domain.compare.view import ComparedBenchmark, ComparisonView
from tracker.domain.gate.text import checks_of
from tracker.domain.gate.types import BenchmarkCheck, GateReport, GateWord
from tracker.domain.records.types import VerdictWord
from tracker.domain.tables.columns import Column, Rows, TableDefinition, category, flag, number, optional_count, text

_CHANGE: tuple[Column, ...] = (
    number("before", "Score before, as the benchmark reports it."),
    number("after", "Score after."),
    number("delta", "Change on common samples; up is better."),
    number("ci_low", "Lower end of the 95 % interval of the change."),
    number("ci_high", "Upper end of the 95 % interval of the change."),
    number("p_worse", "One-sided p of a loss."),
    number("p_better", "One-sided p of a gain."),
    optional_count("n_common", "Samples with a score on both sides."),
    optional_count("n_lost", "Samples that were answered correctly before and no longer are."),
    optional_count("n_gained", "The reverse."),
)
COMPARISON = TableDefinition(
    name="comparison",
    row="benchmark of two checkpoints",
    columns=(
        category("benchmark", "Benchmark."),
        category("word", "Verdict, most urgent first.", ordered=tuple(map(str, VerdictWord))),
        *_CHANGE,
        text("reason", "Why it cannot be compared; empty: it is."),
    ),
)
CHECKS = TableDefinition(
    name="checks",
    row="check of a gate",
    columns=(
        text("check", "Benchmark, or latency limit."),
        flag("required", "Whether it decides; otherwise it is advisory."),
        category("word", "Result, most urgent first.", ordered=tuple(map(str, GateWord))),
        *_CHANGE,
        number("min_effect", "Smallest loss that counts."),
        number("detectable", "Smallest true loss that is found in 80 % of cases."),
        optional_count("samples_needed", "Samples that would decide an inconclusive check."),
        number("passing_min_effect", "Smallest min_effect at which an inconclusive check would have passed."),
        text("reason", "The result in one sentence."),
    ),
)
ANSWERS: Mapping[str, TableDefinition] = {table.name: table for table in (COMPARISON, CHECKS)}


def comparison_rows(view: ComparisonView) -> Rows:
    """Return the table `comparison`."""
    lines: list[Mapping[str, object]] = []
    for one in view.benchmarks:
        lines.append({"benchmark": one.benchmark, "word": one.word, **_change(one), "reason": ""})
    for refused in view.refused:
        word = VerdictWord.MISSING if refused.is_missing else VerdictWord.INCOMPARABLE
        lines.append({"benchmark": refused.benchmark, "word": word, "reason": "; ".join(refused.reasons)})
    return _rows(COMPARISON, lines)


def checks_rows(report: GateReport) -> Rows:
    """Return the table `checks`."""
    return _rows(CHECKS, _checks(report))


def _checks(report: GateReport) -> Iterator[Mapping[str, object]]:
    numbers: list[BenchmarkCheck | None] = [*report.benchmarks, *(None for _ in report.latency)]
    for check, own in zip(checks_of(report), numbers, strict=True):
        line = {"check": check.name, "required": check.required, "word": check.word, "reason": check.reason}
        if check.compared is not None:
            line |= _change(check.compared)
        if own is not None:
            for name in ("min_effect", "detectable", "samples_needed", "passing_min_effect"):
                line[name] = getattr(own, name)
        yield line


def _change(one: ComparedBenchmark) -> dict[str, object]:
    values: dict[str, object] = {"before": one.before.mean, "after": one.after.mean}
    for name in ("delta", "ci_low", "ci_high", "p_worse", "p_better", "n_common", "n_lost", "n_gained"):
        values[name] = getattr(one.comparison, name)
    return values


def _rows(table: TableDefinition, lines: Iterable[Mapping[str, object]]) -> Rows:
    kept = list(lines)
    return {name: [line.get(name) for line in kept] for name in table.names}
