"""The tables of a report: verdicts by step, latency, cost, failures. Records -> rows of text. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from eval_jobs.types import BenchmarkFailure, Cost, EvalRecord, Percentiles, ProbeFailure, ProbeOutcome
from tracker.domain.overview.costs import CostOfStep, RunCosts, cost_text
from tracker.domain.overview.run import Overview
from tracker.domain.overview.standings import Standing
from tracker.domain.records import display
from tracker.domain.records.reason_text import reason_text
from tracker.domain.records.types import Gap, Verdict, VerdictWord
from tracker.domain.verdicts.screening import mean_text

WIDE = 8
"""With more benchmarks than this, the verdict table shows symbols and puts the most urgent benchmarks first."""
PAPER_COLUMNS = 10
"""Maximum benchmark columns on a printed page."""
RECENT_ROWS = 40
"""Newest checkpoints that are shown; earlier ones are folded."""


@dataclass(frozen=True, kw_only=True)
class VerdictCell:
    """One benchmark at one step; `word` is None if it was not part of the evaluation."""

    word: VerdictWord | None
    score: str = ""
    coverage: str = ""
    """Share of samples with a score; empty if all have one."""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class VerdictRow:
    """One checkpoint in the verdict table."""

    step: int
    cells: tuple[VerdictCell, ...]
    gap: str = ""
    """Why the checkpoint was not evaluated; if set, there are no cells."""
    page: str = ""
    """File name of the checkpoint's page in the same folder; empty: there is none."""


@dataclass(frozen=True, kw_only=True)
class VerdictTable:
    """Verdicts by step and benchmark."""

    benchmarks: tuple[str, ...]
    earlier: tuple[VerdictRow, ...]
    recent: tuple[VerdictRow, ...]
    wide: bool
    legend: tuple[VerdictWord, ...]

    @property
    def on_paper(self) -> tuple[range, ...]:
        """Ranges of benchmarks that are printed side by side, of about equal size."""
        count = len(self.benchmarks)
        size = -(-count // max(1, -(-count // PAPER_COLUMNS)))
        return tuple(range(at, min(at + size, count)) for at in range(0, count, max(1, size)))


@dataclass(frozen=True, kw_only=True)
class LatencyRow:
    """One load at one checkpoint."""

    step: int
    load: str
    numbers: tuple[str, ...]
    """TTFT p50, p95, TPOT p50, p95, E2E p50 in ms, output tokens per second."""
    requests: str
    failure: str


@dataclass(frozen=True, kw_only=True)
class CostRow:
    """What one evaluation cost."""

    step: int
    asked: str
    times: tuple[str, ...]
    """Total, loading, evaluating, probing."""
    tokens: str
    computed: str
    """GPU time, else CPU time of the engine."""


@dataclass(frozen=True, kw_only=True)
class CostTable:
    """What all evaluations of a run cost."""

    total: str
    rows: tuple[CostRow, ...]


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """Something that was not measured, why, and a hint."""

    step: int
    what: str
    why: str
    code: str
    hint: str


def coverage_text(verdict: Verdict) -> str:
    """Return the share of samples with a score; empty if all have one, or if there is no mean score."""
    if verdict.score is None or verdict.coverage >= 1:
        return ""
    return display.percent_text(verdict.coverage)


def verdict_table(view: Overview, found: Sequence[Standing], pages: Mapping[int, str]) -> VerdictTable:
    """Return verdicts by step and benchmark, including checkpoints that were not evaluated."""
    names, wide = view.benchmarks, len(view.benchmarks) > WIDE
    if wide:
        names = tuple(standing.benchmark for standing in found)
    rows = []
    for gap in view.gaps:
        rows.append(
            VerdictRow(step=gap.step, cells=(), gap=f"{display.one_line(gap.message)} ({display.one_line(gap.code)})")
        )
    for step in view.steps:
        cells = (_cell(view.at(step, name)) for name in names)
        rows.append(VerdictRow(step=step, cells=tuple(cells), page=pages.get(step, "")))
    rows.sort(key=lambda row: row.step)
    used = {verdict.word for verdict in view.verdicts.values()}
    return VerdictTable(
        benchmarks=tuple(map(display.one_line, names)),
        earlier=tuple(rows[:-RECENT_ROWS]),
        recent=tuple(rows[-RECENT_ROWS:]),
        wide=wide,
        legend=tuple(sorted(used, key=list(VerdictWord).index)),
    )


def latency_rows(records: Iterable[EvalRecord]) -> tuple[LatencyRow, ...]:
    """Return one row for every load at every checkpoint."""
    found: list[LatencyRow] = []
    for record in records:
        found += [_latency(record.plan.checkpoint.step, probe) for probe in record.probes]
    return tuple(found)


def cost_table(costs: RunCosts | None) -> CostTable | None:
    """Return what every evaluation of a run cost, by step; None if unknown."""
    if costs is None or not costs.checkpoints:
        return None
    return CostTable(total=cost_text(costs.total), rows=tuple(map(_cost, costs.checkpoints)))


def troubles(records: Iterable[EvalRecord], gaps: Iterable[Gap]) -> tuple[Trouble, ...]:
    """Return everything that was not measured, by step; failures of a checkpoint with one cause share a row."""
    found = []
    for gap in gaps:
        found.append(_trouble(gap.step, ["checkpoint"], (gap.message, gap.code, gap.hint)))
    for record in records:
        by_cause: dict[tuple[str, str, str], list[str]] = {}
        for what, cause in _failures(record):
            by_cause.setdefault(cause, []).append(what)
        for cause, parts in by_cause.items():
            found.append(_trouble(record.plan.checkpoint.step, parts, cause))
    return tuple(sorted(found, key=lambda trouble: trouble.step))


_CALM = frozenset(
    {VerdictWord.EQUIVALENT, VerdictWord.RISING, VerdictWord.INCONCLUSIVE, VerdictWord.NOT_LEARNED, VerdictWord.FIRST}
)


def _cell(verdict: Verdict | None) -> VerdictCell:
    if verdict is None:
        return VerdictCell(word=None)
    return VerdictCell(
        word=verdict.word,
        score=mean_text(verdict),
        coverage=coverage_text(verdict),
        reason="" if verdict.word in _CALM else display.one_line(reason_text(verdict)),
    )


def _latency(step: int, probe: ProbeOutcome) -> LatencyRow:
    name = display.one_line(probe.load.name)
    if isinstance(probe, ProbeFailure):
        failure = f"{display.one_line(probe.message)} ({display.one_line(probe.code)})"
        return LatencyRow(step=step, load=name, numbers=(), requests="", failure=failure)
    speed = f"{probe.output_tokens_per_s:.0f}" if probe.completed else display.NOTHING
    return LatencyRow(
        step=step,
        load=name,
        numbers=(*_p50_p95(probe.ttft_ms), *_p50_p95(probe.tpot_ms), _p50_p95(probe.e2e_ms)[0], speed),
        requests=str(probe.completed) if probe.failed == 0 else f"{probe.completed}, {probe.failed} failed",
        failure="",
    )


def _cost(one: CostOfStep) -> CostRow:
    cost = one.cost
    known = [count for count in (cost.input_tokens, cost.output_tokens) if count is not None]
    return CostRow(
        step=one.step,
        asked=one.asked.value,
        times=tuple(map(display.duration_text, (cost.wall_s, cost.loading_s, cost.evaluating_s, cost.probing_s))),
        tokens=display.tokens_text(sum(known) if known else None),
        computed=_computed(cost),
    )


def _computed(cost: Cost) -> str:
    if cost.gpu_s is not None:
        return f"{display.duration_text(cost.gpu_s)} GPU"
    if cost.cpu_s is not None:
        return f"{display.duration_text(cost.cpu_s)} CPU"
    return display.NOTHING


def _p50_p95(percentiles: Percentiles | None) -> tuple[str, str]:
    if percentiles is None:
        return display.NOTHING, display.NOTHING
    return f"{percentiles.p50:.1f}", f"{percentiles.p95:.1f}"


def _failures(record: EvalRecord) -> Iterator[tuple[str, tuple[str, str, str]]]:
    for outcome in record.outcomes:
        if isinstance(outcome, BenchmarkFailure):
            yield outcome.benchmark, (outcome.message, outcome.code, outcome.hint)
    for probe in record.probes:
        if isinstance(probe, ProbeFailure):
            yield f"latency, load {probe.load.name}", (probe.message, probe.code, probe.hint)


def _trouble(step: int, what: list[str], cause: tuple[str, str, str]) -> Trouble:
    message, code, hint = map(display.one_line, cause)
    return Trouble(step=step, what=display.names_text(what), why=message, code=code, hint=hint)
