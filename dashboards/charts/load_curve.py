"""How latency grows with throughput: what was timed -> inline SVG. Pure.

Each target is a line and each load a point: x is output tokens per second, y is latency. As in `svg`, there is no
script. A point names its load in a tooltip; the table next to the chart contains all values.
"""

from collections.abc import Callable, Iterator, Sequence

from dashboards.charts.figures import Frame, ticks
from dashboards.charts.svg import MARKERS, begin_chart, escaped_text, marker, number_axis, panel_title, value_axis
from eval_jobs.types import Percentiles, ProbeResult
from tracker.domain.sweeps.board import LoadCurve, load_size_text

LEFT, RIGHT, TOP, BOTTOM = 58, 16, 24, 36
PANEL_HEIGHT = 220
TITLE = "Latency vs. throughput"

_Times = Callable[[ProbeResult], Percentiles | None]
_PANELS: tuple[tuple[str, _Times], ...] = (
    ("Time to first token (TTFT), median, ms", lambda probe: probe.ttft_ms),
    ("Time per output token (TPOT), median, ms", lambda probe: probe.tpot_ms),
)


def draw_curves(ident: str, curves: Sequence[LoadCurve], *, width: int) -> str:
    """Return the loads as an `<svg>` element that is `width` units wide and scales down with its container.

    `ident` is unique on the page: letters, digits and hyphens.
    """
    height = (PANEL_HEIGHT + TOP + BOTTOM) * len(_PANELS)
    parts = [begin_chart(f"{ident}-{width}", TITLE, "; ".join(_described(curves)), width=width, height=height)]
    for index, (title, times) in enumerate(_PANELS):
        top = TOP + index * (PANEL_HEIGHT + TOP + BOTTOM)
        parts.append(panel_title(title, left=LEFT, top=top))
        parts += _panel([_points(curve, times) for curve in curves], top=top, right=width - RIGHT)
    return "".join([*parts, "</svg>"])


_Point = tuple[float, float, str]
"""Output tokens per second, median in ms, and the tooltip of a load."""


def _points(curve: LoadCurve, times: _Times) -> list[_Point]:
    points = []
    for probe in curve.probes:
        found = times(probe)
        if found is not None:
            speed = f"{probe.output_tokens_per_s:.0f} tokens/s"
            tip = f"{curve.target}, {load_size_text(probe.load)}: {speed}, median {found.p50:.1f} ms"
            points.append((probe.output_tokens_per_s, found.p50, tip))
    return points


def _described(curves: Sequence[LoadCurve]) -> Iterator[str]:
    for curve in curves:
        rates = [probe.output_tokens_per_s for probe in curve.probes if probe.ttft_ms is not None]
        if rates:
            yield f"{curve.target}: {min(rates):.0f} to {max(rates):.0f} tokens/s"


def _panel(lines: Sequence[Sequence[_Point]], *, top: float, right: float) -> Iterator[str]:
    fastest = max((rate for line in lines for rate, _, _ in line), default=0.0) * 1.05 or 1.0
    slowest = max((time for line in lines for _, time, _ in line), default=0.0) * 1.1 or 1.0
    bottom = top + PANEL_HEIGHT
    frame = Frame(left=LEFT, right=right, top=top, bottom=bottom, high=slowest, x_max=fastest)
    yield from value_axis(frame, ticks(0.0, slowest, at_most=5))
    yield from number_axis(frame, ticks(0.0, fastest, at_most=max(3, int((right - LEFT) // 90))))
    name = "output tokens per second"
    yield f'<text class="tick" text-anchor="end" x="{right:.1f}" y="{bottom:.1f}" dy="28">{name}</text>'
    for slot, line in enumerate(lines):
        yield from _curve(slot, line, frame)


def _curve(slot: int, line: Sequence[_Point], frame: Frame) -> Iterator[str]:
    places = [(frame.x(rate), frame.y(time)) for rate, time, _ in line]
    if places:
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        yield f'<path class="line s{slot % len(MARKERS)}" d="M{path}"/>'
    for (_, _, tip), (x, y) in zip(line, places, strict=True):
        yield f"<g><title>{escaped_text(tip)}</title>{marker(slot, x, y)}</g>"
