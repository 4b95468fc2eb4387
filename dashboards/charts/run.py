"""Charts of a run: records -> figures. Pure; `dashboards.charts.svg` draws them.

A checkpoint or benchmark without a result becomes an `Absence`, never a point.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from dashboards.charts.figures import Absence, Figure, Line, Panel, Point, ticks
from dashboards.charts.latency_spread import TITLES, times_of
from dashboards.data.run import RunData, measurement_changes
from eval_jobs.types import EvalRecord, ProbeFailure, ProbeLoad, ProbeOutcome
from tracker.domain.latency.series import percentiles_of
from tracker.domain.overview.run import SYMBOLS, Overview
from tracker.domain.overview.standings import Standing, standings
from tracker.domain.records.display import one_line, score_text
from tracker.domain.records.reason_text import reason_text
from tracker.domain.records.types import CurvePoint, Gap, LatencyMetric, Verdict, VerdictWord
from tracker.domain.scores.statistics.paired import mean_interval
from tracker.domain.sweeps.board import load_size_text

MAX_TOGETHER = 8
"""Maximum benchmarks in one chart; with more, each gets its own, because nine lines are hard to tell apart."""
MAX_CURVE_POINTS = 800
MAX_LOSS_CURVES = 3


def score_figures(data: RunData, view: Overview) -> tuple[Figure, ...]:
    """Return one figure with scores and loss; with many scores, or some outside 0 to 1, one each, most urgent first."""
    if not view.steps:
        loss = _loss_panel(data.training.curves, height=200)
        return (_figure("loss", "Training loss by step", data, view, loss),) if loss else ()
    found, changes = standings(view), measurement_changes(data.records)
    by_name = {one.benchmark: one for one in found}
    lines = {
        name: _score_line(changes.get(name, ()), view, by_name[name], slot) for slot, name in enumerate(view.benchmarks)
    }
    if len(lines) <= MAX_TOGETHER and set(map(_unit, lines.values())) <= {(0.0, 1.0)}:
        absences = _score_absences(view, view.benchmarks, view.gaps)
        scores = score_panel("Score", tuple(lines.values()), height=280, absences=absences)
        loss = _loss_panel(data.training.curves, height=110)
        return (_figure("scores", "Scores and training loss by step", data, view, (scores, *loss)),)
    small = [_small(data, view, index, lines[one.benchmark], one) for index, one in enumerate(found)]
    loss = _loss_panel(data.training.curves, height=120)
    if loss:
        small.insert(0, replace(_figure("loss", "Training loss by step", data, view, loss), tips=False))
    return tuple(small)


def latency_figures(data: RunData, view: Overview) -> tuple[Figure, ...]:
    """Return one figure for each load: median, interquartile range and p95 of its request times by step."""
    figures: list[Figure] = []
    for name, records in _by_load(data.records).items():
        panels = tuple(_latency_panel(metric, records) for metric in LatencyMetric)
        figures.append(_figure(f"latency-{len(figures)}", f"Latency by step, load {name}", data, view, panels))
    return tuple(figures)


def load_texts(records: Iterable[EvalRecord]) -> tuple[str, ...]:
    """Return a description of each load; of loads with the same name, the newest."""
    return tuple(_load_text(timed[-1][1].load) for timed in _by_load(records).values())


def margin_text(score: float, stderr: float | None, units: int | None) -> str:
    """Return the 95 % interval of a score: `± 0.062`, or `(0.000 to 0.037)` if it is not symmetric; "" if unknown."""
    found = mean_interval(score, stderr, units)
    if found is None:
        return ""
    low, high = found
    if math.isclose(high - score, score - low, abs_tol=1e-9):
        return f"± {score_text(high - score)}"
    return f"({score_text(low)} to {score_text(high)})"


def score_panel(title: str, lines: Sequence[Line], *, height: int, absences: tuple[Absence, ...]) -> Panel:
    """Return a panel of scores; its axis is 0 to 1 for shares, otherwise round values around all points."""
    low, high = _unit(*lines)
    return Panel(title=title, lines=tuple(lines), low=low, high=high, height=height, absences=absences)


def thinned(points: Sequence[tuple[int, float]], at_most: int) -> list[tuple[int, float]]:
    """Return about `at_most` points: the lowest and the highest of every stretch, so that spikes stay visible."""
    if len(points) <= at_most:
        return list(points)
    size = math.ceil(len(points) / (at_most / 2))
    kept: list[tuple[int, float]] = []
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        ends = {min(stretch, key=lambda p: p[1]), max(stretch, key=lambda p: p[1])}
        kept += sorted(ends)
    return kept


def _load_text(load: ProbeLoad) -> str:
    sizes = f"{load.input_tokens} tokens in, {load.output_tokens or 'variable'} out"
    return f"{one_line(load.name)}: {load.requests} requests, {load_size_text(load)}, {sizes}"


def _score_line(changes: Sequence[int], view: Overview, standing: Standing, slot: int) -> Line:
    points: list[Point] = []
    breaks = list(changes)
    for step, verdict in view.of(standing.benchmark):
        if verdict.word is VerdictWord.MISSING:
            breaks.append(step)
        else:
            points += _score_points(step, verdict)
    return Line(
        name=one_line(standing.benchmark),
        slot=slot,
        points=tuple(points),
        breaks=tuple(breaks),
        ring_step=standing.best_steps[-1] if standing.best_steps else None,
        label=_title(standing),
    )


def _title(standing: Standing) -> str:
    return f"{one_line(standing.benchmark)} {SYMBOLS[standing.word]} {standing.word}"


def _score_points(step: int, verdict: Verdict) -> Iterable[Point]:
    score = verdict.score
    # The mean of a part of the samples is not comparable with the other points.
    if score is None or not math.isfinite(score) or verdict.screened is not None:
        return
    low, high = mean_interval(score, verdict.stderr, verdict.units) or (None, None)
    error = margin_text(score, verdict.stderr, verdict.units)
    tip = " ".join(part for part in (score_text(score), error, SYMBOLS[verdict.word], verdict.word) if part)
    yield Point(step=step, value=score, low=low, high=high, tip=tip)


def _score_absences(view: Overview, benchmarks: Sequence[str], gaps: Sequence[Gap]) -> tuple[Absence, ...]:
    found = []
    for slot, name in enumerate(benchmarks):
        for step, verdict in view.of(name):
            if verdict.word is VerdictWord.MISSING:
                found.append(Absence(step=step, text=f"step {step}, {name}: {reason_text(verdict)}", slot=slot))
    for gap in gaps:
        found.append(Absence(step=gap.step, text=f"step {gap.step} was not evaluated: {gap.message}"))
    return tuple(found)


def _unit(*lines: Line) -> tuple[float, float]:
    low, high = min(_values(lines), default=0.0), max(_values(lines), default=1.0)
    if low >= 0 and high <= 1:
        return (0.0, 1.0)
    return _round_range(low, high)


def _values(lines: Iterable[Line]) -> Iterator[float]:
    for line in lines:
        for point in line.points:
            yield point.value


def _round_range(low: float, high: float) -> tuple[float, float]:
    margin = (high - low) * 0.05 or abs(high) * 0.1 or 1.0
    at = ticks(low - margin, high + margin, at_most=5)
    spacing = at[1] - at[0] if len(at) > 1 else margin
    return math.floor(low / spacing) * spacing, math.ceil(high / spacing) * spacing or spacing


def _small(data: RunData, view: Overview, index: int, line: Line, standing: Standing) -> Figure:
    absences = _score_absences(view, (standing.benchmark,), ())
    title = _title(standing)
    panel = score_panel(title, (replace(line, slot=0, label=""),), height=120, absences=absences)
    figure = _figure(f"score-{index}", title, data, view, (panel,))
    return replace(figure, tips=len(line.points) <= MAX_TOGETHER * 5)


def _loss_panel(curves: Sequence[CurvePoint], *, height: int) -> tuple[Panel, ...]:
    by_key: dict[str, list[tuple[int, float]]] = {}
    for point in curves:
        if "loss" in point.key.lower():
            by_key.setdefault(point.key, []).append((point.step, point.value))
    if not by_key:
        return ()
    lines = tuple(map(_curve, list(by_key.items())[:MAX_LOSS_CURVES], range(MAX_LOSS_CURVES)))
    low, high = _round_range(min(0.0, *_values(lines)), max(_values(lines)))
    return (Panel(title="Training loss", lines=lines, low=low, high=high, height=height),)


def _curve(known: tuple[str, Sequence[tuple[int, float]]], slot: int) -> Line:
    name, values = one_line(known[0]), known[1]
    kept = thinned(sorted(point for point in values if math.isfinite(point[1])), MAX_CURVE_POINTS)
    points = tuple(Point(step=step, value=value) for step, value in kept)
    return Line(name=name, points=points, slot=slot, marked=False, label=name)


def _latency_panel(metric: LatencyMetric, timed: Sequence[tuple[int, ProbeOutcome]]) -> Panel:
    tail: list[Point] = []
    half: list[Point] = []
    reasons: dict[int, str] = {}
    for step, probe in timed:
        if isinstance(probe, ProbeFailure):
            reasons[step] = probe.message
        elif (known := percentiles_of(probe, metric)) is None or not math.isfinite(known.p50 + known.p95):
            reasons.setdefault(step, "not measured")
        else:
            tail.append(Point(step=step, value=known.p95, tip=f"{known.p95:.3g} ms"))
            half.append(_half(step, times_of(probe.requests, metric), known.p50))
    for point in tail:
        reasons.pop(point.step, None)
    missing = tuple(sorted(reasons))
    lines = (
        Line(name="p95", slot=1, dashed=True, points=tuple(tail), breaks=missing, label="p95"),
        Line(name="p50", slot=0, points=tuple(half), breaks=missing, label="p50"),
    )
    absences = tuple(Absence(step=step, text=f"step {step}: {reasons[step]}") for step in missing)
    high = _round_range(0.0, max(_values(lines), default=1.0))[1]
    return Panel(title=TITLES[metric], lines=lines, low=0.0, high=high, height=130, absences=absences)


def _by_load(records: Iterable[EvalRecord]) -> dict[str, list[tuple[int, ProbeOutcome]]]:
    found: dict[str, list[tuple[int, ProbeOutcome]]] = {}
    for record in records:
        for probe in record.probes:
            found.setdefault(probe.load.name, []).append((record.plan.checkpoint.step, probe))
    return found


def _half(step: int, times: Sequence[float], median: float) -> Point:
    """Return a median with the interquartile range of the requests, if individual requests are known."""
    if not times:
        return Point(step=step, value=median, tip=f"{median:.3g} ms")
    low, high = np.percentile(times, (25, 75)).tolist()
    return Point(step=step, value=median, low=low, high=high, tip=f"{median:.3g} ms, IQR {low:.3g} to {high:.3g} ms")


def _figure(ident: str, title: str, data: RunData, view: Overview, panels: tuple[Panel, ...]) -> Figure:
    steps = [*view.steps, *(record.plan.checkpoint.step for record in data.records)]
    steps += [*(gap.step for gap in view.gaps), *(point.step for point in data.training.curves)]
    steps += [mark.from_step for mark in data.training.incident_marks]  # beyond the newest logged step
    return Figure(
        ident=ident,
        title=title,
        description=" ".join(map(_description, panels)),
        panels=panels,
        x_min=min(steps),
        x_max=max(steps),
        phases=data.training.marks,
    )


def _description(panel: Panel) -> str:
    words = []
    for line in panel.lines:
        if line.points:
            words.append(f"{line.name} from {_place(line.points[0])} to {_place(line.points[-1])}")
    return f"{panel.title}: {', '.join(words) or 'no values'}."


def _place(point: Point) -> str:
    return f"{score_text(point.value)} at step {point.step}"
