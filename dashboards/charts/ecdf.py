"""Distributions of times -> inline SVG: the share of requests that were faster than a time. Pure.

At the same share, the curve further left is faster.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dashboards.charts.figures import Frame, ticks
from dashboards.charts.svg import begin_chart, number_axis, panel_title, value_axis

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
    right, bottom = width - RIGHT, TOP + PLOT
    frame = Frame(left=LEFT, right=right, top=TOP, bottom=bottom, high=100.0, x_min=low, x_max=high)
    parts = [
        begin_chart(figure.ident, figure.title, figure.description, width=width, height=HEIGHT),
        panel_title(figure.title, left=LEFT, top=TOP),
        *value_axis(frame, SHARES, unit=" %"),
        *number_axis(frame, ticks(low, high, at_most=5)),
        *(_curve(curve, frame) for curve in reversed(figure.curves)),
    ]
    return "".join([*parts, "</svg>"])


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


def _curve(curve: Curve, frame: Frame) -> str:
    count = len(curve.values)
    if count > MAX_POINTS:
        shares = np.linspace(0.0, 100.0, MAX_POINTS)
        times = np.percentile(curve.values, shares)
    else:
        shares, times = np.arange(1, count + 1) * 100.0 / count, np.asarray(curve.values)
    shown = times <= frame.x_max
    steps = (
        f"H{frame.x(time):.1f}V{frame.y(share):.1f}"
        for share, time in zip(shares[shown].tolist(), times[shown].tolist(), strict=True)
    )
    dashed = " dashed" if curve.slot else ""
    return f'<path class="line s{curve.slot % 8}{dashed}" d="M{frame.left} {frame.bottom}{"".join(steps)}"/>'
