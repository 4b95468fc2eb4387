"""What the charts of a run show: records -> figures. Pure; `dashboards.charts.svg` draws them.

A checkpoint or benchmark without a result becomes an `Absence`, never a point.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from dashboards.charts.figures import Absence, Figure, Line, Panel, Point, ticks
from dashboards.charts.latency_spread import METRICS, RequestTime, times_of
from dashboards.data.run import RunData, measurement_changes
from eval_jobs.types import EvalRecord, ProbeFailure, ProbeLoad, ProbeResult
from tracker.domain.overview.run import SYMBOLS, Overview, Standing, standings
from tracker.domain.records.display import one_line, score_text
from tracker.domain.records.reason_text import reason_text
from tracker.domain.records.types import CurvePoint, Gap, Verdict, VerdictWord
from tracker.domain.sweeps.board_text import load_size_text

MAX_TOGETHER = 8
"""More benchmarks than this get a chart of their own each: nobody tells nine lines apart."""
MAX_CURVE_POINTS = 800
INTERVAL = 1.96
"""Standard errors on either side of a score: 95 % of a normal distribution."""
MAX_LOSS_CURVES = 3


def score_figures(data: RunData, view: Overview) -> tuple[Figure, ...]:
    """Return one figure with all scores and the loss, or, for many benchmarks, one each, most urgent first."""
    if not view.steps:
        return ()
    found = {standing.benchmark: standing for standing in standings(view)}
    changes = measurement_changes(data.records)
    lines: list[Line] = []
    units: set[tuple[float, float]] = set()
    for slot, name in enumerate(view.benchmarks):
        line = _score_line(changes.get(name, ()), view, found[name], slot)
        lines.append(line)
        if line.points:
            units.add(_unit(line))
    together = len(lines) <= MAX_TOGETHER and units <= {(0.0, 1.0)}
    loss = _loss_panel(data.training.curves, height=110 if together else 120)
    if together:
        absences = _score_absences(view, view.benchmarks, view.gaps)
        scores = _score_panel("Score", lines, height=280, absences=absences)
        return (_figure("scores", "Scores and training loss by step", data, view, (scores, *loss)),)
    by_name = dict(zip(view.benchmarks, lines, strict=True))
    small = [_small(data, view, index, replace(by_name[name], slot=0), found[name]) for index, name in enumerate(found)]
    if loss:
        small.insert(0, replace(_figure("loss", "Training loss by step", data, view, loss), tips=False))
    return tuple(small)


def latency_figures(data: RunData, view: Overview) -> tuple[Figure, ...]:
    """Return one figure for each load: how the times of its requests are spread, by step."""
    names = dict.fromkeys(probe.load.name for record in data.records for probe in record.probes)
    return tuple(
        _figure(
            f"latency-{index}",
            f"Latency by step, load {name}",
            data,
            view,
            tuple(_latency_panel(metric, data.records, name) for metric in METRICS),
        )
        for index, name in enumerate(names)
    )


def load_texts(records: Iterable[EvalRecord]) -> tuple[str, ...]:
    """Return what each load sends, in words; of loads with one name, the newest."""
    loads = {probe.load.name: probe.load for record in records for probe in record.probes}
    return tuple(map(_load_text, loads.values()))


def thinned(points: Sequence[tuple[int, float]], at_most: int) -> list[tuple[int, float]]:
    """Return about `at_most` points that keep the lowest and the highest of every stretch: spikes stay visible."""
    if len(points) <= at_most:
        return list(points)
    size = math.ceil(len(points) / (at_most / 2))
    kept: list[tuple[int, float]] = []
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        ends = {min(stretch, key=lambda p: p[1]), max(stretch, key=lambda p: p[1])}
        kept += sorted(ends)
    return kept


# --- private: scores


def _load_text(load: ProbeLoad) -> str:
    sizes = f"{load.input_tokens} tokens in, {load.output_tokens} out"
    return f"{one_line(load.name)}: {load.requests} requests, {load_size_text(load)}, {sizes}"


def _score_line(changes: Sequence[int], view: Overview, standing: Standing, slot: int) -> Line:
    verdicts = view.of(standing.benchmark)
    return Line(
        name=one_line(standing.benchmark),
        slot=slot,
        points=tuple(point for step, verdict in verdicts for point in _score_points(step, verdict)),
        breaks=(
            *(step for step, verdict in verdicts if verdict.word is VerdictWord.MISSING),
            *changes,
        ),
        ring_step=standing.best_steps[-1] if standing.best_steps else None,
        label=_title(standing),
    )


def _title(standing: Standing) -> str:
    return f"{one_line(standing.benchmark)} {SYMBOLS[standing.word]} {standing.word}"


def _score_points(step: int, verdict: Verdict) -> Iterable[Point]:
    score, stderr = verdict.score, verdict.stderr
    if score is None or not math.isfinite(score) or verdict.word is VerdictWord.MISSING:
        return
    if verdict.screened is not None:  # the mean of a part is no point of this line
        return
    word = f"{SYMBOLS[verdict.word]} {verdict.word}"
    if stderr is None:
        yield Point(step=step, value=score, tip=f"{score_text(score)} {word}")
        return
    half = INTERVAL * stderr
    tip = f"{score_text(score)} ± {score_text(half)} {word}"
    yield Point(step=step, value=score, low=score - half, high=score + half, tip=tip)


def _score_absences(view: Overview, benchmarks: Sequence[str], gaps: Sequence[Gap]) -> tuple[Absence, ...]:
    missing = (
        Absence(step=step, text=f"step {step}, {name}: {reason_text(verdict)}", slot=slot)
        for slot, name in enumerate(benchmarks)
        for step, verdict in view.of(name)
        if verdict.word is VerdictWord.MISSING
    )
    return (*missing, *(Absence(step=g.step, text=f"step {g.step} was not evaluated: {g.message}") for g in gaps))


def _score_panel(title: str, lines: Sequence[Line], *, height: int, absences: tuple[Absence, ...]) -> Panel:
    low, high = _unit(*lines)
    return Panel(title=title, lines=tuple(lines), low=low, high=high, height=height, absences=absences)


def _unit(*lines: Line) -> tuple[float, float]:
    """Return the value axis: 0 to 1 for shares, else round values around all points."""
    values = [p.value for line in lines for p in line.points]
    if not values or (min(values) >= 0 and max(values) <= 1):
        return 0.0, 1.0
    return _round_range(min(values), max(values))


def _round_range(low: float, high: float) -> tuple[float, float]:
    margin = (high - low) * 0.05 or abs(high) * 0.1 or 1.0
    at = ticks(low - margin, high + margin, at_most=5)
    spacing = at[1] - at[0] if len(at) > 1 else margin
    return math.floor(low / spacing) * spacing, math.ceil(high / spacing) * spacing or spacing


def _small(data: RunData, view: Overview, index: int, line: Line, standing: Standing) -> Figure:
    absences = _score_absences(view, (standing.benchmark,), ())
    title = _title(standing)
    panel = _score_panel(title, (replace(line, label=""),), height=120, absences=absences)
    figure = _figure(f"score-{index}", title, data, view, (panel,))
    return replace(figure, tips=len(line.points) <= MAX_TOGETHER * 5)


# --- private: training loss


def _loss_panel(curves: Sequence[CurvePoint], *, height: int) -> tuple[Panel, ...]:
    keys = [key for key in dict.fromkeys(p.key for p in curves) if "loss" in key.lower()][:MAX_LOSS_CURVES]
    if not keys:
        return ()
    lines = tuple(_curve(key, slot, curves) for slot, key in enumerate(keys))
    values = [p.value for line in lines for p in line.points]
    low, high = _round_range(min(0.0, *values), max(values))
    return (Panel(title="Training loss", lines=lines, low=low, high=high, height=height),)


def _curve(key: str, slot: int, curves: Sequence[CurvePoint]) -> Line:
    points = sorted((p.step, p.value) for p in curves if p.key == key and math.isfinite(p.value))
    kept = (Point(step=step, value=value) for step, value in thinned(points, MAX_CURVE_POINTS))
    name = one_line(key)
    return Line(name=name, points=tuple(kept), slot=slot, marked=False, label=name)


# --- private: latency


def _latency_panel(metric: RequestTime, records: Sequence[EvalRecord], load: str) -> Panel:
    tail: list[Point] = []
    half: list[Point] = []
    reasons: dict[int, str] = {}
    for step, probe in _probes_under(load, records):
        known = metric.percentiles(probe) if isinstance(probe, ProbeResult) else None
        if isinstance(probe, ProbeFailure):
            reasons[step] = probe.message
        elif known is None:
            reasons.setdefault(step, "no request completed")
        else:
            tail.append(Point(step=step, value=known.p95, tip=f"{known.p95:.3g} ms"))
            half.append(_half(step, times_of(probe.requests, metric), known.p50))
    missing = tuple(sorted(reasons.keys() - {point.step for point in tail}))
    lines = (
        Line(name="p95", slot=1, dashed=True, points=tuple(tail), breaks=missing, label="p95"),
        Line(name="p50", slot=0, points=tuple(half), breaks=missing, label="p50"),
    )
    absences = tuple(Absence(step=step, text=f"step {step}: {reasons[step]}") for step in missing)
    top = max((point.value for point in (*tail, *half)), default=1.0)
    high = _round_range(0.0, top)[1]
    return Panel(title=metric.title, lines=lines, low=0.0, high=high, height=130, absences=absences)


def _probes_under(load: str, records: Sequence[EvalRecord]) -> Iterator[tuple[int, ProbeResult | ProbeFailure]]:
    for record in records:
        for probe in record.probes:
            if probe.load.name == load:
                yield record.plan.checkpoint.step, probe


def _half(step: int, times: Sequence[float], median: float) -> Point:
    """Return a median with the middle half of the requests; without that where single requests are not known."""
    if not times:
        return Point(step=step, value=median, tip=f"{median:.3g} ms")
    low, high = np.percentile(times, (25, 75)).tolist()
    return Point(step=step, value=median, low=low, high=high, tip=f"{median:.3g} ms, half in {low:.3g} to {high:.3g}")


# --- private: the step axis


def _figure(ident: str, title: str, data: RunData, view: Overview, panels: tuple[Panel, ...]) -> Figure:
    measured = (record.plan.checkpoint.step for record in data.records)
    steps = [*view.steps, *measured, *(g.step for g in view.gaps), *(p.step for p in data.training.curves)]
    return Figure(
        ident=ident,
        title=title,
        description=_description(panels),
        panels=panels,
        x_min=min(steps),
        x_max=max(steps),
        phases=data.training.phases,
    )


def _description(panels: Sequence[Panel]) -> str:
    sentences = []
    for panel in panels:
        ends = [(line.name, line.points[0], line.points[-1]) for line in panel.lines if line.points]
        words = (f"{name} from {_place(first)} to {_place(last)}" for name, first, last in ends)
        sentences.append(f"{panel.title}: {', '.join(words) or 'no values'}.")
    return " ".join(sentences)


def _place(point: Point) -> str:
    return f"{score_text(point.value)} at step {point.step}"
