"""Several runs -> contents of the page that shows them side by side: rows of text and figures. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from dashboards.charts.figures import Figure, Line, Point
from dashboards.charts.run import score_panel
from tracker.domain.compare.run_pairs import ScoreAt
from tracker.domain.compare.run_text import Row, checkpoint_rows, remarks, summary_rows, total_rows
from tracker.domain.compare.runs import RunComparison
from tracker.domain.overview.costs import cost_rows
from tracker.domain.records.display import count_text, names_text, one_line, score_text

FOLDED_FROM = 40
"""Checkpoints of a benchmark from which its table needs a click."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkSection:
    """One benchmark of all runs that were measured alike."""

    benchmark: str
    metric: str
    figure: Figure
    runs: tuple[str, ...]
    """The first run first."""
    rows: tuple[Row, ...]
    totals: tuple[Row, Row]
    is_folded: bool


@dataclass(frozen=True, kw_only=True)
class RunsView:
    """Contents of the page, in its order."""

    title: str
    facts: tuple[str, ...]
    runs: tuple[str, ...]
    summary: tuple[tuple[str, tuple[str, ...]], ...]
    remarks: tuple[str, ...]
    benchmarks: tuple[BenchmarkSection, ...]
    made_at: str


def build_runs_view(found: Sequence[RunComparison], now: datetime) -> RunsView:
    """Return the contents of the page.

    Args:
        found: each of the other runs compared with the first one at equal steps; at least one.
        now: time of writing.
    """
    runs = (found[0].a, *(one.b for one in found))
    names = tuple(one_line(run.run_id) for run in runs)
    benchmarks = dict.fromkeys(pair.benchmark for one in found for pair in one.benchmarks)
    return RunsView(
        title=f"{names_text(names[1:])} compared with {names[0]}",
        facts=(count_text(len(runs), "run"), count_text(len(benchmarks), "benchmark")),
        runs=names,
        summary=(*summary_rows(runs), *cost_rows([run.cost for run in runs])),
        remarks=tuple(remark for one in found for remark in remarks(one)),
        benchmarks=tuple(_section(name, f"runs-{at}", found) for at, name in enumerate(benchmarks)),
        made_at=f"{now:%Y-%m-%d %H:%M} UTC",
    )


# --- private


def _section(name: str, ident: str, found: Sequence[RunComparison]) -> BenchmarkSection:
    of_runs = {one.b.run_id: pair for one in found for pair in one.benchmarks if pair.benchmark == name}
    pairs = list(of_runs.values())
    lines = [_line(found[0].a.run_id, 0, [row.a for row in pairs[0].rows])]
    for slot, one in enumerate(found, start=1):  # a run has the same colour in all figures
        if one.b.run_id in of_runs:
            lines.append(_line(one.b.run_id, slot, [row.b for row in of_runs[one.b.run_id].rows]))
    rows = checkpoint_rows(pairs)
    return BenchmarkSection(
        benchmark=one_line(name),
        metric=one_line(pairs[0].metric),
        figure=_figure(ident, name, lines),
        runs=tuple(line.name for line in lines),
        rows=rows,
        totals=total_rows(pairs),
        is_folded=len(rows) >= FOLDED_FROM,
    )


def _line(run_id: str, slot: int, scores: Sequence[ScoreAt | None]) -> Line:
    points = []
    for one in scores:
        if one is not None:
            interval = "" if one.ci_low is None else f" ({score_text(one.ci_low)} to {score_text(one.ci_high)})"
            tip = f"{score_text(one.score)}{interval}"
            points.append(Point(step=one.step, value=one.score, low=one.ci_low, high=one.ci_high, tip=tip))
    return Line(name=one_line(run_id), slot=slot, points=tuple(points), label=one_line(run_id))


def _figure(ident: str, benchmark: str, lines: Sequence[Line]) -> Figure:
    steps = [point.step for line in lines for point in line.points] or [0]
    ends = [f"{line.name} from {line.points[0].tip} to {line.points[-1].tip}" for line in lines if line.points]
    return Figure(
        ident=ident,
        title=f"{one_line(benchmark)} by step",
        description=f"Scores: {'; '.join(ends) or 'none'}.",
        panels=(score_panel("Score", lines, height=220, absences=()),),
        x_min=min(steps),
        x_max=max(steps),
    )
