"""Several runs -> contents of the page that shows them side by side: rows of text and figures. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from dashboards.charts.figures import Figure, Line, Point
from dashboards.charts.run import score_panel
from tracker.domain.compare.run_pairs import PairedDifference, ScoreAt
from tracker.domain.compare.run_text import Row, remarks, summary_rows
from tracker.domain.compare.runs import BenchmarkOfRuns, RunComparison, RunToCompare, SideBySide, curve_of
from tracker.domain.overview.costs import cost_rows
from tracker.domain.records.display import NOTHING, count_text, names_text, one_line, score_text, signed_text

RECENT_ROWS = 20
"""Newest steps of a benchmark that are shown without a click."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One run at one step; its difference is to the first run."""

    score: str
    step: str = ""
    """Where the score is of another step than the row."""
    delta: str = ""
    interval: str = ""


@dataclass(frozen=True, kw_only=True)
class StepRow:
    """All runs at one step."""

    name: str
    cells: tuple[Compared, ...]
    """One for each run, the first run first."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkSection:
    """One benchmark of all runs."""

    benchmark: str
    metric: str
    figure: Figure
    runs: tuple[str, ...]
    """Those in the table, the first run first; none if no other run was measured like it."""
    earlier: tuple[StepRow, ...]
    recent: tuple[StepRow, ...]
    totals: tuple[StepRow, ...]
    """Mean over the steps, and the best checkpoint of each run."""


@dataclass(frozen=True, kw_only=True)
class RunsView:
    """Contents of the page, in its order."""

    title: str
    facts: tuple[str, ...]
    runs: tuple[str, ...]
    summary: tuple[Row, ...]
    remarks: tuple[str, ...]
    benchmarks: tuple[BenchmarkSection, ...]
    made_at: str


def build_runs_view(
    runs: Sequence[RunToCompare], found: Sequence[RunComparison], *, min_coverage: float, now: datetime
) -> RunsView:
    """Return the contents of the page.

    Args:
        runs: at least two.
        found: each run after the first compared with the first, at equal steps.
        min_coverage: share of the samples of a checkpoint that must have a score.
        now: time of writing.
    """
    names = tuple(one_line(run.run_id) for run in runs)
    benchmarks = dict.fromkeys(name for run in runs for name in run.scores.benchmarks())
    summaries = [found[0].a, *(one.b for one in found)]
    return RunsView(
        title=f"{names_text(names[1:])} compared with {names[0]}",
        facts=(count_text(len(runs), "run"), count_text(len(benchmarks), "benchmark")),
        runs=names,
        summary=(*summary_rows(summaries), *cost_rows([run.cost for run in runs])),
        remarks=tuple(dict.fromkeys(remark for one in found for remark in remarks(one))),
        benchmarks=tuple(
            _section(name, at, runs, found, min_coverage=min_coverage) for at, name in enumerate(benchmarks)
        ),
        made_at=f"{now:%Y-%m-%d %H:%M} UTC",
    )


# --- private: tables


def _section(
    name: str, at: int, runs: Sequence[RunToCompare], found: Sequence[RunComparison], *, min_coverage: float
) -> BenchmarkSection:
    pairs = {one.b.run_id: pair for one in found for pair in one.benchmarks if pair.benchmark == name}
    lines = []
    for slot, run in enumerate(runs):
        series, pair = run.scores.of(name), pairs.get(run.run_id)
        if pair is not None:
            lines.append(_line(run, slot, [row.b for row in pair.rows]))
        elif slot == 0 and pairs:
            lines.append(_line(run, slot, [row.a for row in next(iter(pairs.values())).rows]))
        elif series:
            lines.append(_line(run, slot, curve_of(run, series[-1], min_coverage), is_alike=slot == 0))
    rows = _step_rows(list(pairs.values()))
    return BenchmarkSection(
        benchmark=one_line(name),
        metric=one_line(next(series.metric for run in runs for series in run.scores.of(name))),
        figure=_figure(f"runs-{at}", name, lines),
        runs=tuple(map(one_line, (runs[0].run_id, *pairs))) if pairs else (),
        earlier=tuple(rows[:-RECENT_ROWS]),
        recent=tuple(rows[-RECENT_ROWS:]),
        totals=tuple(_totals(list(pairs.values()))),
    )


def _step_rows(pairs: Sequence[BenchmarkOfRuns]) -> list[StepRow]:
    by_step: list[dict[int, SideBySide]] = []
    for pair in pairs:
        by_step.append({known.step: row for row in pair.rows if (known := row.a or row.b) is not None})
    rows = []
    for step in sorted({step for of_pair in by_step for step in of_pair}):
        at = [of_pair.get(step, _NO_SCORES) for of_pair in by_step]
        first = next((row.a for row in at if row.a is not None), None)
        rows.append(StepRow(name=str(step), cells=(_cell(first, None), *(_cell(row.b, row.difference) for row in at))))
    return rows


def _totals(pairs: Sequence[BenchmarkOfRuns]) -> list[StepRow]:
    if not pairs:
        return []
    means = [_cell(None, pair.mean, nothing="") for pair in pairs]
    best = [_cell(pair.best.b, pair.best.difference, with_step=True) for pair in pairs]
    return [
        StepRow(name="mean", cells=(Compared(score=""), *means)),
        StepRow(name="best", cells=(_cell(pairs[0].best.a, None, with_step=True), *best)),
    ]


def _cell(
    score: ScoreAt | None, difference: PairedDifference | None, *, with_step: bool = False, nothing: str = NOTHING
) -> Compared:
    cell = Compared(score=nothing if score is None else score_text(score.score))
    if score is not None and with_step:
        cell = replace(cell, step=f"step {score.step}")
    if difference is not None:
        interval = f"{signed_text(difference.ci_low)} to {signed_text(difference.ci_high)}"
        cell = replace(cell, delta=signed_text(difference.delta), interval=interval)
    return cell


# --- private: figures

_NO_SCORES = SideBySide(a=None, b=None, difference=None)


def _line(run: RunToCompare, slot: int, scores: Sequence[ScoreAt | None], *, is_alike: bool = True) -> Line:
    points = []
    for one in scores:
        if one is not None:
            known = "" if one.ci_low is None else f" ({score_text(one.ci_low)} to {score_text(one.ci_high)})"
            tip = f"{score_text(one.score)}{known}"
            points.append(Point(step=one.step, value=one.score, low=one.ci_low, high=one.ci_high, tip=tip))
    name = one_line(run.run_id)
    label = name if is_alike else f"{name} (not comparable)"
    return Line(name=name, slot=slot, points=tuple(points), dashed=not is_alike, label=label)


def _figure(ident: str, name: str, lines: Sequence[Line]) -> Figure:
    steps = [point.step for line in lines for point in line.points] or [0]
    ends = [f"{line.name} from {line.points[0].tip} to {line.points[-1].tip}" for line in lines if line.points]
    return Figure(
        ident=ident,
        title=f"{one_line(name)} by step",
        description=f"{'; '.join(ends) or 'no scores'}.",
        panels=(score_panel("Score", lines, height=220, absences=()),),
        x_min=min(steps),
        x_max=max(steps),
    )
