"""Several runs -> contents of the page that shows them side by side: rows of text and figures. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dashboards.charts.figures import Figure, Line, Point
from dashboards.charts.run import score_panel
from eval_jobs.identity import content_hash
from tracker.domain.compare.run_pairs import ScoreAt
from tracker.domain.compare.run_text import Row, checkpoint_rows, remarks, summary_rows, total_rows
from tracker.domain.compare.runs import BenchmarkOfRuns, RunComparison
from tracker.domain.records.display import count_text, names_text, one_line, score_text

FOLDED_FROM = 40
"""Checkpoints of a benchmark from which its table needs a click."""


@dataclass(frozen=True, kw_only=True)
class RunsBenchmark:
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
    benchmarks: tuple[RunsBenchmark, ...]
    made_at: str


def build_runs_view(found: Sequence[RunComparison], now: datetime) -> RunsView:
    """Return the contents of the page of at least two runs, each compared with the first one at equal steps."""
    runs = (found[0].a, *(one.b for one in found))
    names = tuple(one_line(run.run_id) for run in runs)
    pairs: dict[str, dict[str, BenchmarkOfRuns]] = {}
    notes: list[str] = []
    for one in found:
        notes += remarks(one)
        for pair in one.benchmarks:
            pairs.setdefault(pair.benchmark, {})[one.b.run_id] = pair
    run_ids = [run.run_id for run in runs]
    return RunsView(
        title=f"{names_text(names[1:])} compared with {names[0]}",
        facts=(count_text(len(runs), "run"), count_text(len(pairs), "benchmark")),
        runs=names,
        summary=summary_rows(runs),
        remarks=tuple(notes),
        benchmarks=tuple(_section(run_ids, of_runs) for of_runs in pairs.values()),
        made_at=f"{now:%Y-%m-%d %H:%M} UTC",
    )


def _section(run_ids: Sequence[str], pairs: Mapping[str, BenchmarkOfRuns]) -> RunsBenchmark:
    """Return one benchmark; `pairs` has each run that was compared with the first one."""
    one, *_ = pairs.values()
    lines = [_line(run_ids[0], 0, [row.a for row in one.rows])]
    for slot, run_id in enumerate(run_ids):  # a run has the same colour in all figures
        if run_id in pairs:
            lines.append(_line(run_id, slot, [row.b for row in pairs[run_id].rows]))
    rows = checkpoint_rows(list(pairs.values()))
    return RunsBenchmark(
        benchmark=one_line(one.benchmark),
        metric=one_line(one.metric),
        figure=_figure(one.benchmark, lines),
        runs=tuple(line.name for line in lines),
        rows=rows,
        totals=total_rows(list(pairs.values())),
        is_folded=len(rows) >= FOLDED_FROM,
    )


def _line(run_id: str, slot: int, scores: Sequence[ScoreAt | None]) -> Line:
    points = []
    for one in scores:
        if one is None:
            continue
        tip = score_text(one.score)
        if one.ci_low is not None:
            tip += f" ({score_text(one.ci_low)} to {score_text(one.ci_high)})"
        points.append(Point(step=one.step, value=one.score, low=one.ci_low, high=one.ci_high, tip=tip))
    return Line(name=one_line(run_id), slot=slot, points=tuple(points), label=one_line(run_id))


def _figure(benchmark: str, lines: Sequence[Line]) -> Figure:
    steps: list[int] = []
    ends: list[str] = []
    for line in lines:
        steps += (point.step for point in line.points)
        if line.points:
            ends.append(f"{line.name} from {line.points[0].tip} to {line.points[-1].tip}")
    return Figure(
        ident=f"runs-{content_hash(benchmark)}",
        title=f"{one_line(benchmark)} by step",
        description=f"Scores: {'; '.join(ends)}.",
        panels=(score_panel("Score", lines, height=220, absences=()),),
        x_min=min(steps, default=0),
        x_max=max(steps, default=0),
    )
