"""Contents and geometry of line charts, without drawing. Pure.

A figure is one or more panels above each other on one step axis; `dashboards.charts.svg` draws it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tracker.domain.records.policy import Phase

LEFT = 46
RIGHT = 14
LABEL_CHARS = 34
"""Maximum length of a label at the end of a line; longer ones are shortened."""
LABEL_CHAR_WIDTH = 7.3
LABELS_FROM_WIDTH = 700
"""Minimum width for labels at the ends of lines; narrower figures rely on the legend."""
TITLE_HEIGHT = 24
LANE_HEIGHT = 20
AXIS_HEIGHT = 24
PANEL_GAP = 12


@dataclass(frozen=True, kw_only=True)
class Point:
    """One value of a line, with its interval if it has one."""

    step: int
    value: float
    low: float | None = None
    high: float | None = None
    tip: str = ""
    """Tooltip text, shown after the line's name; empty: the value."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a panel."""

    name: str
    points: tuple[Point, ...]
    slot: int = 0
    """Index of the colour and marker."""
    dashed: bool = False
    marked: bool = True
    breaks: tuple[int, ...] = ()
    """Steps at which the line is interrupted: without a value, or measured differently from this step on."""
    ring_step: int | None = None
    """Step of the point to mark with a ring."""
    label: str = ""
    """Written at the line's end if there is room."""


@dataclass(frozen=True, kw_only=True)
class Absence:
    """A step that has no value, and why; shown below the panel, never as a value."""

    step: int
    text: str
    slot: int | None = None
    """Slot of the line without a value; None: all lines."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Lines that share a value axis."""

    title: str
    lines: tuple[Line, ...]
    low: float
    high: float
    height: int = 240
    absences: tuple[Absence, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Stacked panels that share a step axis."""

    ident: str
    """Unique on the page; letters, digits and hyphens."""
    title: str
    description: str
    """Text alternative for screen readers."""
    panels: tuple[Panel, ...]
    x_min: int
    x_max: int
    phases: tuple[Phase, ...] = ()
    tips: bool = True


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Position of a panel's plot, and its two scales."""

    left: float
    right: float
    top: float
    bottom: float
    low: float = 0.0
    high: float
    x_min: float = 0.0
    x_max: float
    labelled: bool = False
    """Whether labels fit at the ends of lines."""

    def x(self, step: float) -> float:
        """Return the horizontal position of a step or another value; if there is only one, it is centred."""
        if self.x_max == self.x_min:
            return (self.left + self.right) / 2
        return self.left + (step - self.x_min) / (self.x_max - self.x_min) * (self.right - self.left)

    def y(self, value: float) -> float:
        """Return the vertical position of a value, clamped to the plot."""
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return self.bottom - min(1.0, max(0.0, share)) * (self.bottom - self.top)


def frames(figure: Figure, width: int) -> tuple[Frame, ...]:
    """Return the position of each panel in a figure `width` units wide."""
    longest = max((len(line.label) for panel in figure.panels for line in panel.lines), default=0)
    labelled = width >= LABELS_FROM_WIDTH and longest > 0
    right = width - (34 + LABEL_CHAR_WIDTH * min(longest, LABEL_CHARS) if labelled else RIGHT)
    result = []
    top = 0
    for panel in figure.panels:
        top += TITLE_HEIGHT
        result.append(
            Frame(
                left=LEFT,
                right=right,
                top=top,
                bottom=top + panel.height,
                low=panel.low,
                high=panel.high,
                x_min=figure.x_min,
                x_max=figure.x_max,
                labelled=labelled,
            )
        )
        top += panel.height + lane_height(panel) + PANEL_GAP
    return tuple(result)


def lane_height(panel: Panel) -> int:
    """Return the height of the lane below a panel that shows steps without a value."""
    if panel.absences:
        return LANE_HEIGHT
    return 0


def runs(line: Line) -> Iterator[tuple[Point, ...]]:
    """Yield the segments of a line between its breaks."""
    run: list[Point] = []
    for point in line.points:
        if run and any(run[-1].step < b <= point.step for b in line.breaks):
            yield tuple(run)
            run = []
        run.append(point)
    if run:
        yield tuple(run)


def ticks(low: float, high: float, *, at_most: int) -> tuple[float, ...]:
    """Return round values between `low` and `high`, evenly spaced, about `at_most` of them."""
    if not high > low:
        return (low,)
    raw = (high - low) / max(1, at_most - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    spacing = next(power * m for m in (1, 2, 5, 10) if power * m >= raw * (1 - 1e-9))
    first = math.ceil(low / spacing - 1e-9)
    return tuple(spacing * i for i in range(first, math.floor(high / spacing + 1e-9) + 1))


def apart(wanted: Sequence[float], *, low: float, high: float, distance: float) -> list[float]:
    """Return positions in the same order, at least `distance` apart, and within `low` and `high` if they all fit."""
    places: list[float] = []
    for place in wanted:
        places.append(max(place, places[-1] + distance if places else low))
    limit = high
    for index in range(len(places) - 1, -1, -1):
        places[index] = min(places[index], limit)
        limit = places[index] - distance
    return places
