"""The picture of false alarms and losses found, by detector."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from benchmarks.verdicts.campaign import NULLS
from docs.generator.verdict_results import LIMIT, LOSSES, SIZES, Detector, measured_detectors

WIDTH, MARGIN = 880, 24
ALARMS_LEFT, ALARMS_RIGHT = 240, 436
CELLS_LEFT, CELL, CELL_GAP = 474, 40, 11
TOP, ROW, HEADING, FOOT = 108, 29, 24, 72
LANE = 5.6
"""Distance of the kinds of runs in a row."""
MARKS = (
    "m-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0-6.4 0",
    "m-2.8-2.8h5.6v5.6h-5.6z",
    "m0-3.6l3.5 6.4h-7z",
    "m0-4l4 4-4 4-4-4z",
)
"""A shape for each kind of healthy runs."""
KEPT, BROKEN, LINE = "#0969da", "#8c959f", "#cf222e"
"""Colours of detectors that keep the limit and of those that do not, and of the limit itself."""
STYLE = (
    "text{font:13px system-ui,'DejaVu Sans',sans-serif;fill:#24292f}"
    "text.m,.c{text-anchor:middle}text.b{font-weight:600}text.t{font-size:16px;font-weight:600}"
    "text.s{font-size:12px;fill:#57606a}text.n{font-size:11px;fill:#57606a}"
    f"text.l{{fill:{LINE}}}text.w{{fill:#fff}}"
)


def verdicts_picture() -> str:
    """Return docs/images/verdicts.svg."""
    top, rows, drawn = TOP, [], []
    for heading, detectors in measured_detectors().items():
        if heading:
            rows.append(_text(MARGIN, top + 17, heading, "s"))
            top += HEADING
        for detector in detectors:
            rows += _row(detector, top)
            top += ROW
        drawn += detectors
    parts = [*_head(top + FOOT, drawn), *_axis(top), *_columns(), *rows, *_legend(top + 26), "</svg>"]
    return "\n".join(parts) + "\n"


# --- private


def _head(height: int, shown: list[Detector]) -> Iterator[str]:
    size = f'viewBox="0 0 {WIDTH} {height}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="t d">'
    yield '<title id="t">False alarms and losses found, by detector</title>'
    yield f'<desc id="d">{escape(" ".join(map(_sentence, shown)))}</desc>'
    yield f"<style>{STYLE}</style>"
    size = f'width="{WIDTH - 1}" height="{height - 1}"'
    yield f'<rect x=".5" y=".5" {size} rx="12" fill="#fff" stroke="#d0d7de"/>'
    yield f'<rect x="12" y="{TOP}" width="{CELLS_LEFT - 26}" height="{ROW}" rx="6" fill="#ddf4ff"/>'
    yield _text(ALARMS_LEFT, 32, "False alarms", "t")
    yield _text(ALARMS_LEFT, 50, "healthy runs with any alarm", "s")
    yield _text(CELLS_LEFT, 32, "Losses found", "t")
    yield _text(CELLS_LEFT, 50, "in %, by points lost and samples of the benchmark", "s")


def _sentence(shown: Detector) -> str:
    rates = [rate.share for rate in shown.alarms]
    found = ", ".join(f"{share:g}" for share in shown.found)
    alarms = f"false alarms in {min(rates):g} to {max(rates):g} % of healthy runs"
    return f"{shown.label}: {alarms}; found {found} %."


def _axis(bottom: int) -> Iterator[str]:
    for share in (0, 50, 100):
        yield f'<path d="M{_x(share)} {TOP - 8}V{bottom}" stroke="#d0d7de"/>'
    for share in (50, 100):
        yield _text(_x(share), TOP - 14, f"{share} %", "s m")
    dashes = 'stroke-width="1.5" stroke-dasharray="4 3"'
    yield f'<path d="M{_x(LIMIT)} {TOP - 8}V{bottom}" stroke="{LINE}" {dashes}/>'
    yield _text(_x(LIMIT), TOP - 14, f"{LIMIT:g} %", "b m l")


def _columns() -> Iterator[str]:
    for at, loss in enumerate(LOSSES):
        first = at * len(SIZES)
        middle = (_cell_x(first) + _cell_x(first + len(SIZES) - 1) + CELL) / 2
        yield _text(middle, TOP - 30, f"{loss} points", "b m")
        for column, size in enumerate(SIZES, start=first):
            yield _text(_cell_x(column) + CELL / 2 - 1, TOP - 12, f"{size:,}", "n m")


def _row(shown: Detector, top: int) -> Iterator[str]:
    middle, colour = top + ROW / 2, KEPT if shown.keeps_limit else BROKEN
    yield _text(MARGIN, middle + 4.5, shown.label, "b" if shown.keeps_limit else "")
    bars, marks = [], []
    for lane, (rate, mark) in enumerate(zip(shown.alarms, MARKS, strict=True)):
        y = round(middle + (lane - 1.5) * LANE, 1)
        bars.append(f"M{_x(rate.low)} {y}H{_x(rate.high)}")
        marks.append(f"M{_x(rate.share)} {y}{mark}")
    yield f'<path d="{"".join(bars)}" stroke="{colour}" stroke-width="1.5"/>'
    yield f'<path d="{"".join(marks)}" fill="{colour}"/>'
    yield f'<g class="c" fill="{colour}">'
    for column, share in enumerate(shown.found):
        x, opacity = _cell_x(column), 0.06 + 0.0094 * share
        size = f'width="{CELL - 2}" height="{ROW - 3}"'
        yield f'<rect x="{x}" y="{top + 1}" {size} rx="3" fill-opacity="{opacity:.2f}"/>'
        white = shown.keeps_limit and opacity > 0.65
        yield _text(x + CELL / 2 - 1, middle + 4.5, f"{share:g}", "w" if white else "")
    yield "</g>"


def _legend(top: int) -> Iterator[str]:
    x = MARGIN + 6
    for kind, mark in zip(NULLS, MARKS, strict=True):
        yield f'<path d="M{x} {top - 4}{mark}" fill="#57606a"/>'
        yield _text(x + 10, top, kind.replace("_", " "), "s")
        x += round(32 + 6.8 * len(kind))
    yield _text(MARGIN, top + 22, "bar: 95 % confidence interval", "s")
    explained = {KEPT: f"no interval is above {LIMIT:g} %", BROKEN: "at least one interval is"}
    for (colour, meaning), y in zip(explained.items(), (top, top + 22), strict=True):
        yield f'<rect x="{CELLS_LEFT}" y="{y - 11}" width="12" height="12" rx="2" fill="{colour}"/>'
        yield _text(CELLS_LEFT + 20, y, meaning, "s")


def _x(share: float) -> float:
    return round(ALARMS_LEFT + share / 100 * (ALARMS_RIGHT - ALARMS_LEFT), 1)


def _cell_x(column: int) -> int:
    return CELLS_LEFT + column * CELL + column // len(SIZES) * CELL_GAP


def _text(x: float, y: float, words: str, classes: str) -> str:
    named = f' class="{classes}"' if classes else ""
    return f'<text x="{x:g}" y="{y:g}"{named}>{escape(words)}</text>'
