"""Figures -> inline SVG. Pure.

No script: colours come from the page's CSS variables, so the same SVG works in dark, light and print, and tooltips are
CSS too. All text is cleaned and escaped here.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import pairwise

from dashboards.charts import figures
from tracker.domain.records.display import one_line

LINE_HEIGHT = 15
MIN_TIP_WIDTH = 2.0
"""Minimum mean width of a tooltip column that a pointer can hit."""
CHAR_WIDTH = 6.7
"""Width of a character of the tooltip's 12 px text, slightly overestimated."""
MARKERS = ("circle", "square", "triangle", "diamond", "down", "plus", "cross", "bar")
"""One for each colour, so that lines are distinguishable without colour."""
TITLE_CHAR_WIDTH = 8.0
PHASE_CHAR_WIDTH = 6.3
MAX_EDGE_CHARS = 20
MIN_PHASE_CHARS = 4
NAMED_FROM_WIDTH = 300
"""Minimum width of a plot for names of phases; narrower plots only show where a phase begins."""
MAX_MARKED = 60
"""With more points than this, markers would only blur the line."""


def draw(figure: figures.Figure, *, width: int) -> str:
    """Return the figure as an `<svg>` element that is `width` units wide and scales down with its container."""
    places = figures.frames(figure, width)
    height = int(places[-1].bottom) + figures.lane_height(figure.panels[-1]) + figures.AXIS_HEIGHT
    parts = [
        begin_chart(f"{figure.ident}-{width}", figure.title, figure.description, width=width, height=height),
        *_phase_marks(figure, places),
    ]
    for panel, frame in zip(figure.panels, places, strict=True):
        parts += _panel(panel, frame)
    parts += _step_axis(places[-1], top=height - figures.AXIS_HEIGHT)
    if figure.tips:
        parts += _tips(figure, places)
    return "".join([*parts, "</svg>"])


def begin_chart(ident: str, title: str, description: str, *, width: int, height: int) -> str:
    """Return the start of an `<svg>` element, with its title and its text alternative."""
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return (
        f'<svg class="chart" {size} role="img" aria-labelledby="{ident}-t {ident}-d">'
        f'<title id="{ident}-t">{escaped_text(title)}</title><desc id="{ident}-d">{escaped_text(description)}</desc>'
    )


def panel_title(title: str, *, left: float, top: float) -> str:
    """Return the title above a panel that begins at (left, top)."""
    return f'<text class="ptitle" x="{_n(left)}" y="{_n(top - 9)}">{escaped_text(title)}</text>'


def number_axis(frame: figures.Frame, values: Iterable[float]) -> Iterator[str]:
    """Yield a tick label below the frame for each value."""
    for value in values:
        x, y = _n(frame.x(value)), _n(frame.bottom)
        yield f'<text class="tick" text-anchor="middle" x="{x}" y="{y}" dy="14">{value:g}</text>'


def legend_mark(slot: int) -> str:
    """Return a small SVG of a line of this slot for an HTML legend."""
    return (
        f'<svg class="key" viewBox="0 0 28 12" width="28" height="12" aria-hidden="true">'
        f'<path class="line s{_slot(slot)}" d="M0 6H28"/>{marker(slot, 14, 6)}</svg>'
    )


def marker(slot: int, x: float, y: float) -> str:
    """Return the marker of a slot as an SVG element."""
    return f'<path class="m s{_slot(slot)}" d="{_shape(MARKERS[_slot(slot)], x, y, 4)}"/>'


def escaped_text(value: str) -> str:
    """Return `value` cleaned, on one line and escaped for element content and attributes."""
    return escape(one_line(value))


def value_axis(frame: figures.Frame, values: Iterable[float], *, unit: str = "") -> Iterator[str]:
    """Yield a grid line and a tick label for each value."""
    for value in values:
        y = _n(frame.y(value))
        yield f'<path class="grid" d="M{frame.left} {y}H{_n(frame.right)}"/>'
        yield f'<text class="tick" text-anchor="end" x="{frame.left - 6}" y="{y}" dy="4">{value:g}{unit}</text>'


def _slot(slot: int) -> int:
    return slot % len(MARKERS)


def _panel(panel: figures.Panel, frame: figures.Frame) -> Iterator[str]:
    title = _cut(panel.title, int((frame.right - frame.left) / TITLE_CHAR_WIDTH))
    yield panel_title(title, left=frame.left, top=frame.top)
    yield from value_axis(frame, figures.ticks(panel.low, panel.high, at_most=6 if panel.height > 150 else 5))
    for line in panel.lines:
        yield from _band(line, frame)
    for line in panel.lines:
        yield from _line(line, frame)
    yield from _absences(panel, frame)
    if frame.labelled:
        yield from _labels(panel, frame)


def _band(line: figures.Line, frame: figures.Frame) -> Iterator[str]:
    for run in figures.runs(line):
        upper: list[str] = []
        lower: list[str] = []
        for p in run:
            if p.low is not None and p.high is not None:
                upper.append(f"{_n(frame.x(p.step))} {_n(frame.y(p.high))}")
                lower.insert(0, f"{_n(frame.x(p.step))} {_n(frame.y(p.low))}")
        if len(upper) > 1:
            yield f'<path class="band s{_slot(line.slot)}" d="M{"L".join(upper + lower)}Z"/>'


def _line(line: figures.Line, frame: figures.Frame) -> Iterator[str]:
    # A single point between two breaks has no visible line, so it gets a marker.
    marked: list[figures.Point] = []
    for run in figures.runs(line):
        path = "L".join(f"{_n(frame.x(p.step))} {_n(frame.y(p.value))}" for p in run)
        yield f'<path class="{_kind(line)}" d="M{path}"/>'
        if len(run) == 1:
            marked += run
    if line.marked and len(line.points) <= MAX_MARKED:
        marked = list(line.points)
    for point in marked:
        yield marker(line.slot, frame.x(point.step), frame.y(point.value))
    for point in line.points:
        if point.step == line.ring_step:
            x, y = _n(frame.x(point.step)), _n(frame.y(point.value))
            yield f'<circle class="ring s{_slot(line.slot)}" cx="{x}" cy="{y}" r="8"/>'


def _kind(line: figures.Line) -> str:
    if not line.marked:
        return f"line thin c{_slot(line.slot)}"
    return f"line s{_slot(line.slot)}{' dashed' if line.dashed else ''}"


def _key(line: figures.Line, x: float, y: float) -> str:
    if line.marked:
        return marker(line.slot, x, y)
    return f'<path class="{_kind(line)}" d="M{_n(x - 6)} {_n(y)}h12"/>'


def _absences(panel: figures.Panel, frame: figures.Frame) -> Iterator[str]:
    if not panel.absences:
        return
    y = frame.bottom + figures.LANE_HEIGHT / 2 + 2
    yield f'<path class="lane" d="M{frame.left} {_n(y)}H{_n(frame.right)}"/>'
    yield f'<text class="tick" text-anchor="end" x="{frame.left - 6}" y="{_n(y)}" dy="4">none</text>'
    for absence in panel.absences:
        slot = "gap" if absence.slot is None else f"s{_slot(absence.slot)}"
        path = _shape("cross", frame.x(absence.step), y, 4)
        yield f'<path class="m absent {slot}" d="{path}"><title>{escaped_text(absence.text)}</title></path>'


def _labels(panel: figures.Panel, frame: figures.Frame) -> Iterator[str]:
    """Yield each line's label at its end, moved apart if labels would overlap."""
    labelled = [line for line in panel.lines if line.label and line.points]
    ends = sorted((frame.y(line.points[-1].value), index) for index, line in enumerate(labelled))
    places = figures.apart([y for y, _ in ends], low=frame.top, high=frame.bottom, distance=LINE_HEIGHT)
    for place, (_, index) in zip(places, ends, strict=True):
        line = labelled[index]
        yield _key(line, frame.right + 18, place)
        label = escaped_text(_cut(line.label, figures.LABEL_CHARS))
        yield f'<text class="label" x="{_n(frame.right + 29)}" y="{_n(place)}" dy="4">{label}</text>'


def _cut(label: str, chars: int) -> str:
    """Return a label shortened in its middle, because its end contains the verdict."""
    label = one_line(label)
    if len(label) <= chars:
        return label
    tail = min(14, chars // 2)
    return f"{label[: max(1, chars - tail - 1)]}…{label[-tail:]}"


def _phase_marks(figure: figures.Figure, places: Sequence[figures.Frame]) -> Iterator[str]:
    first, bottom = places[0], places[-1].bottom
    title_end = first.left + TITLE_CHAR_WIDTH * len(figure.panels[0].title) + 12
    # A phase that starts at or before the first step separates nothing.
    marked = [p for p in figure.phases if figure.x_min < p.from_step <= figure.x_max]
    edges = [*(first.x(p.from_step) for p in marked), first.right]
    for phase, (x, end) in zip(marked, pairwise(edges), strict=True):
        yield f'<path class="phase" d="M{_n(x)} {_n(first.top)}V{_n(bottom)}"/>'
        if first.right - first.left < NAMED_FROM_WIDTH:
            continue
        chars = int((end - x - 8) / PHASE_CHAR_WIDTH)
        if chars >= MIN_PHASE_CHARS:
            y = first.top - 9 if x > title_end else first.top + 12
            yield f'<text class="phase-name" x="{_n(x + 4)}" y="{_n(y)}">{escaped_text(_cut(phase.name, chars))}</text>'
        elif end == first.right:  # what ended a run is at the edge: its name is before the line
            place = f'x="{_n(x - 4)}" y="{_n(first.top + 12)}" text-anchor="end"'
            yield f'<text class="phase-name" {place}>{escaped_text(_cut(phase.name, MAX_EDGE_CHARS))}</text>'


def _step_axis(frame: figures.Frame, *, top: float) -> Iterator[str]:
    yield f'<text class="tick" x="0" y="{_n(top)}" dy="14">step</text>'
    count = max(3, int((frame.right - frame.left) // 65))
    for step in figures.ticks(frame.x_min, frame.x_max, at_most=count):
        if step == int(step):
            x = frame.x(step)
            at_edge = not frame.labelled and x > frame.right - 8
            place = f'text-anchor="end" x="{_n(frame.right + 10)}"' if at_edge else f'text-anchor="middle" x="{_n(x)}"'
            yield f'<text class="tick" {place} y="{_n(top)}" dy="14">{int(step)}</text>'


def _tips(figure: figures.Figure, places: Sequence[figures.Frame]) -> Iterator[str]:
    """Yield one invisible column per step; CSS shows its tooltip while the pointer is over it."""
    steps = sorted({p.step for panel in figure.panels for line in panel.lines if line.marked for p in line.points})
    top, bottom = places[0].top, places[-1].bottom
    frame = places[0]
    if frame.right - frame.left < MIN_TIP_WIDTH * len(steps):
        return  # too narrow to hit: for thousands of checkpoints they were half of the page's size
    for index, step in enumerate(steps):
        left = frame.left if index == 0 else (frame.x(steps[index - 1]) + frame.x(step)) / 2
        right = frame.right if index == len(steps) - 1 else (frame.x(step) + frame.x(steps[index + 1])) / 2
        hit = f'<rect x="{_n(left)}" y="{_n(top)}" width="{_n(right - left)}" height="{_n(bottom - top)}"/>'
        yield f'<g class="hit">{hit}<g class="tip">{"".join(_tip(figure, frame, step, bottom))}</g></g>'


def _tip(figure: figures.Figure, frame: figures.Frame, step: int, bottom: float) -> Iterator[str]:
    chars = int((frame.right - frame.left - 32) / CHAR_WIDTH)
    rows = [(line, _cut(f"{line.name} {tip}", chars)) for line, tip in _values_at(figure, step)]
    width = 32 + CHAR_WIDTH * max([len(f"step {step}"), *(len(words) for _, words in rows)])
    x = frame.x(step)
    left = x + 12 if x + 12 + width <= frame.right else max(2.0, x - 12 - width)
    top = frame.top + 6
    yield f'<path class="cursor" d="M{_n(x)} {_n(frame.top)}V{_n(bottom)}"/>'
    height = 14 + LINE_HEIGHT * (len(rows) + 1)
    yield f'<rect class="tipbox" x="{_n(left)}" y="{_n(top)}" width="{_n(width)}" height="{height}" rx="5"/>'
    yield f'<text class="tiphead" x="{_n(left + 10)}" y="{_n(top + 17)}">step {step}</text>'
    for index, (line, words) in enumerate(rows):
        y = top + 17 + LINE_HEIGHT * (index + 1)
        yield _key(line, left + 14, y - 4)
        yield f'<text x="{_n(left + 26)}" y="{_n(y)}">{escaped_text(words)}</text>'


def _values_at(figure: figures.Figure, step: int) -> Iterator[tuple[figures.Line, str]]:
    for panel in figure.panels:
        for line in panel.lines:
            # A training curve has its own steps: show its last value up to this step.
            index = bisect_right(line.points, step, key=lambda p: p.step) - 1
            if index >= 0 and (line.points[index].step == step or not line.marked):
                point = line.points[index]
                yield line, point.tip or f"{point.value:.3g}"


_SHAPES = {
    "circle": "M{a} {y}a{r} {r} 0 1 0 {dd} 0a{r} {r} 0 1 0 -{dd} 0Z",
    "square": "M{a} {c}H{b}V{d}H{a}Z",
    "triangle": "M{x} {c}L{b} {d}H{a}Z",
    "diamond": "M{x} {c}L{b} {y}L{x} {d}L{a} {y}Z",
    "down": "M{x} {d}L{b} {c}H{a}Z",
    "plus": "M{x} {c}V{d}M{a} {y}H{b}",
    "cross": "M{a} {c}L{b} {d}M{b} {c}L{a} {d}",
    "bar": "M{x} {c}V{d}",
}


def _shape(kind: str, x: float, y: float, r: float) -> str:
    """Return the path of a marker centred at (x, y), `r` from its centre to its edges."""
    places = {"x": x, "y": y, "a": x - r, "b": x + r, "c": y - r, "d": y + r, "r": r, "dd": 2 * r}
    return _SHAPES[kind].format(**{name: _n(value) for name, value in places.items()})


def _n(value: float) -> str:
    """Return a coordinate with one decimal, or none if it is a whole number."""
    return f"{value:.1f}".removesuffix(".0")
