"""Distributions of times -> inline SVG: the share of requests that were faster than a time. Pure.

svg = draw_ecdf(Ecdf(ident="ttft", title="TTFT, ms", description="...", curves=(curve,)), width=330)

At the same share, the curve further left is faster.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dashboards.charts.figures import Frame, ticks
from dashboards.charts.svg import text, value_axis

HEIGHT = 190
PLOT = 140
"""Height of the plot itself."""
LEFT = 42
RIGHT = 12
TOP = 24
MAX_POINTS = 300
"""Maximum points of a curve. With more requests, the curve is drawn from this many percentiles."""
CUT_AT = 99.0
"""Percentile at which the time axis ends if the tail is much longer than the rest."""
LONG_TAIL = 1.5
SHARES = (0, 25, 50, 75, 100)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The times of one side of a comparison."""

    name: str
    slot: int
    values: tuple[float, ...]
    """Times in ms, ascending; at least one."""


@dataclass(frozen=True, kw_only=True)
class Ecdf:
    """Curves that share a time axis."""

    ident: str
    """Unique on the page; letters, digits and hyphens."""
    title: str
    description: str
    """Text alternative for screen readers."""
    curves: tuple[Curve, ...]


def draw_ecdf(figure: Ecdf, *, width: int) -> str:
    """Return the figure as an `<svg>` element that is `width` units wide and scales with its container."""
    low, high = _range(figure.curves)
    frame = Frame(
        left=LEFT,
        right=width - RIGHT,
        top=TOP,
        bottom=TOP + PLOT,
        low=0.0,
        high=100.0,
        x_min=0,
        x_max=1,
        labelled=False,
    )
    ident = text(figure.ident)
    return "".join(
        [
            f'<svg class="chart" viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}" role="img"',
            f' aria-labelledby="{ident}-t {ident}-d"><title id="{ident}-t">{text(figure.title)}</title>',
            f'<desc id="{ident}-d">{text(figure.description)}</desc>',
            f'<text class="ptitle" x="{LEFT}" y="{TOP - 9}">{text(figure.title)}</text>',
            *_axes(frame, low, high),
            *(_curve(curve, frame, low, high) for curve in reversed(figure.curves)),
            "</svg>",
        ]
    )


def legend_line(slot: int, *, dashed: bool) -> str:
    """Return a small SVG of a curve for an HTML legend."""
    kind = f"line s{slot % 8}{' dashed' if dashed else ''}"
    size = 'viewBox="0 0 28 12" width="28" height="12"'
    return f'<svg class="key" {size} aria-hidden="true"><path class="{kind}" d="M0 6H28"/></svg>'


def _range(curves: Sequence[Curve]) -> tuple[float, float]:
    longest = max(curve.values[-1] for curve in curves)
    usual = max(float(np.percentile(curve.values, CUT_AT)) for curve in curves)
    high = usual if longest > LONG_TAIL * usual else longest
    low = min(curve.values[0] for curve in curves)
    margin = (high - low) * 0.04 or high * 0.1 or 1.0
    return max(0.0, low - margin), high + margin


def _axes(frame: Frame, low: float, high: float) -> Iterator[str]:
    yield from value_axis(frame, SHARES, unit=" %")
    for time in ticks(low, high, at_most=5):
        x = frame.x((time - low) / (high - low))
        yield f'<text class="tick" text-anchor="middle" x="{x:.1f}" y="{frame.bottom}" dy="16">{time:g}</text>'


def _curve(curve: Curve, frame: Frame, low: float, high: float) -> str:
    count = len(curve.values)
    if count > MAX_POINTS:
        shares = np.linspace(0.0, 100.0, MAX_POINTS)
        times = np.percentile(curve.values, shares)
    else:
        shares, times = np.arange(1, count + 1) * 100.0 / count, np.asarray(curve.values)
    shown = times <= high
    steps = (
        f"H{frame.x((time - low) / (high - low)):.1f}V{frame.y(share):.1f}"
        for share, time in zip(shares[shown].tolist(), times[shown].tolist(), strict=True)
    )
    dashed = " dashed" if curve.slot else ""
    return f'<path class="line s{curve.slot % 8}{dashed}" d="M{frame.left} {frame.bottom}{"".join(steps)}"/>'
