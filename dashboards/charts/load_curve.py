"""How latency grows with throughput: what was timed -> inline SVG. Pure.

svg = draw_curve(curve_chart("nightly", curves), width=960)

Each target is a line and each load a point: x is output tokens per second, y is latency. As in `svg`, there is no
script. A point names its load in a tooltip; the table next to the chart contains all values.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from dashboards.charts.figures import Frame, ticks
from dashboards.charts.svg import legend_mark, marker, text, value_axis
from eval_jobs.types import Percentiles, ProbeResult
from tracker.domain.records.display import one_line
from tracker.domain.sweeps.board import LoadCurve
from tracker.domain.sweeps.board_text import load_size_text

LEFT, RIGHT, TOP, BOTTOM = 58, 16, 24, 36
PANEL_HEIGHT = 220
SLOTS = 8


@dataclass(frozen=True, kw_only=True)
class LoadPoint:
    """One load on one target."""

    tokens_per_s: float
    value_ms: float
    tip: str


@dataclass(frozen=True, kw_only=True)
class CurveLine:
    """One target, points in order of rising load."""

    name: str
    slot: int
    points: tuple[LoadPoint, ...]


@dataclass(frozen=True, kw_only=True)
class CurvePanel:
    """One latency metric of all targets."""

    title: str
    lines: tuple[CurveLine, ...]


@dataclass(frozen=True, kw_only=True)
class CurveChart:
    """Everything that one chart shows."""

    ident: str
    """Unique on the page; letters, digits and hyphens."""
    title: str
    panels: tuple[CurvePanel, ...]

    @property
    def keys(self) -> tuple[tuple[str, str], ...]:
        """Legend SVG and name of each line."""
        return tuple((legend_mark(line.slot), one_line(line.name)) for line in self.panels[0].lines)


def curve_chart(ident: str, curves: Sequence[LoadCurve]) -> CurveChart | None:
    """Return the chart of a sweep's loads; None if no target has at least two loads."""
    if not any(len(curve.probes) > 1 for curve in curves):
        return None
    return CurveChart(
        ident=ident,
        title="Latency vs. throughput",
        panels=(
            CurvePanel(title="Time to first token (TTFT), median, ms", lines=_lines(curves, lambda p: p.ttft_ms)),
            CurvePanel(title="Time per output token (TPOT), median, ms", lines=_lines(curves, lambda p: p.tpot_ms)),
        ),
    )


def draw_curve(chart: CurveChart, *, width: int) -> str:
    """Return the chart as an `<svg>` element that is `width` units wide and scales down with its container."""
    height = (PANEL_HEIGHT + TOP + BOTTOM) * len(chart.panels)
    ident = f"{chart.ident}-{width}"
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [
        f'<svg class="chart" {size} role="img" aria-labelledby="{ident}-t {ident}-d">',
        f'<title id="{ident}-t">{text(chart.title)}</title>',
        f'<desc id="{ident}-d">{text("; ".join(_described(chart)))}</desc>',
    ]
    for index, panel in enumerate(chart.panels):
        parts += _panel(panel, top=TOP + index * (PANEL_HEIGHT + TOP + BOTTOM), right=width - RIGHT)
    return "".join([*parts, "</svg>"])


# --- private


def _lines(curves: Sequence[LoadCurve], figure: Callable[[ProbeResult], Percentiles | None]) -> tuple[CurveLine, ...]:
    lines = []
    for slot, curve in enumerate(curves):
        points = []
        for probe in curve.probes:
            found = figure(probe)
            if found is not None:
                tip = _tip(curve, probe, found)
                points.append(LoadPoint(tokens_per_s=probe.output_tokens_per_s, value_ms=found.p50, tip=tip))
        lines.append(CurveLine(name=curve.target, slot=slot % SLOTS, points=tuple(points)))
    return tuple(lines)


def _tip(curve: LoadCurve, probe: ProbeResult, found: Percentiles) -> str:
    speed = f"{probe.output_tokens_per_s:.0f} tokens/s"
    return f"{curve.target}, {load_size_text(probe.load)}: {speed}, median {found.p50:.1f} ms"


def _described(chart: CurveChart) -> Iterator[str]:
    for line in chart.panels[0].lines:
        if line.points:
            rates = [point.tokens_per_s for point in line.points]
            yield f"{line.name}: {min(rates):.0f} to {max(rates):.0f} tokens/s"


def _panel(panel: CurvePanel, *, top: float, right: float) -> Iterator[str]:
    points = list(chain.from_iterable(line.points for line in panel.lines))
    fastest = max((point.tokens_per_s for point in points), default=0.0) * 1.05 or 1.0
    slowest = max((point.value_ms for point in points), default=0.0) * 1.1 or 1.0
    bottom = top + PANEL_HEIGHT
    frame = Frame(
        left=LEFT, right=right, top=top, bottom=bottom, low=0.0, high=slowest, x_min=0, x_max=fastest, labelled=False
    )
    yield f'<text class="ptitle" x="{LEFT}" y="{top - 9:.1f}">{text(panel.title)}</text>'
    yield from value_axis(frame, ticks(0.0, slowest, at_most=5))
    for rate in ticks(0.0, fastest, at_most=max(3, int((right - LEFT) // 90))):
        x = f"{frame.x(rate):.1f}"
        yield f'<text class="tick" text-anchor="middle" x="{x}" y="{bottom:.1f}" dy="14">{rate:g}</text>'
    name = "output tokens per second"
    yield f'<text class="tick" text-anchor="end" x="{right:.1f}" y="{bottom:.1f}" dy="28">{name}</text>'
    for line in panel.lines:
        yield from _curve(line, frame)


def _curve(line: CurveLine, frame: Frame) -> Iterator[str]:
    places = [(frame.x(point.tokens_per_s), frame.y(point.value_ms)) for point in line.points]
    if places:
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        yield f'<path class="line s{line.slot}" d="M{path}"/>'
    for point, (x, y) in zip(line.points, places, strict=True):
        yield f"<g><title>{text(point.tip)}</title>{marker(line.slot, x, y)}</g>"
