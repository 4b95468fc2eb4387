"""Distance of every benchmark from its best, step by step, as coloured strips. Pure.

Colour shows the distance to the best block. Columns at their best, before the best block and after it
(lost) have separate colours. A checkpoint without a score is a thin line, never a colour.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter

from dashboards.charts.svg import escaped_text
from tracker.domain.forgetting.types import BenchmarkLedger, LedgerRow, RunLedger
from tracker.domain.records.display import NOTHING, one_line, score_text, signed_text, steps_text
from tracker.domain.records.policy import Phase

MAX_COLUMNS = 100
"""Maximum columns; in a longer run, neighbouring checkpoints share a column."""

DEPTHS = (0.01, 0.02, 0.05, 0.10, 0.20, 0.40)
"""Distances to the best at which the colour changes, as shares of the score's range."""


@dataclass(frozen=True, kw_only=True)
class HeatRow:
    """One benchmark or subset."""

    name: str
    strip: str
    """Inline SVG, escaped; the page stretches it to the available width."""
    now: str
    change: str
    lost: bool
    """Whether the confidence interval of its forgetting is above 0."""
    subsets: tuple[HeatRow, ...] = ()


def heat_rows(ledger: RunLedger) -> tuple[HeatRow, ...]:
    """Return the rows of a ledger, in its order."""
    size = max(1, -(-len(ledger.steps) // MAX_COLUMNS))
    columns = tuple(ledger.steps[at : at + size] for at in range(0, len(ledger.steps), size))
    return tuple(
        _row(_Place(ident=f"heat-{at}", benchmark=benchmark, columns=columns, phases=ledger.phases))
        for at, benchmark in enumerate(ledger.benchmarks)
    )


def shade_of(depth: float) -> int:
    """Return the shade for a distance to the best, a share of the score's range: 0 (at its best) to `len(DEPTHS)`."""
    return sum(depth > limit for limit in DEPTHS)


@dataclass(frozen=True, kw_only=True)
class _Cell:
    first_step: int
    last_step: int
    mean: float | None
    """Mean score of the column, as the benchmark reports it; None: no score."""
    kind: str
    """CSS class: `none`, `best`, `b1` to `b6` before the best, `a1` to `a6` after it."""


@dataclass(frozen=True, kw_only=True)
class _Place:
    """What the strips of one benchmark share."""

    ident: str
    """Unique on the page."""
    benchmark: BenchmarkLedger
    columns: tuple[tuple[int, ...], ...]
    phases: tuple[Phase, ...]


def _row(place: _Place) -> HeatRow:
    subsets = []
    for at, row in enumerate(place.benchmark.subsets):
        subsets.append(_heat_row(replace(place, ident=f"{place.ident}-{at}"), row))
    return replace(_heat_row(place, place.benchmark.whole), subsets=tuple(subsets))


def _heat_row(place: _Place, row: LedgerRow) -> HeatRow:
    name, strip, found = one_line(row.subset or place.benchmark.benchmark), _strip(place, row), row.forgetting
    if found is None:
        known = [mean for mean in row.means if mean is not None]
        now = score_text(known[-1]) if known else NOTHING
        return HeatRow(name=name, strip=strip, now=now, change=NOTHING, lost=False)
    change, now = signed_text(-found.forgetting), score_text(found.last.mean)
    return HeatRow(name=name, strip=strip, now=now, change=change, lost=found.ci_low > 0)


def _cells(benchmark: BenchmarkLedger, row: LedgerRow, columns: Sequence[tuple[int, ...]]) -> list[_Cell]:
    by_step = dict(zip(benchmark.steps, row.means, strict=True))
    up = 1.0 if benchmark.higher_is_better else -1.0
    best, scale = _scale_of(row, up)
    cells = []
    for steps in columns:
        there = [mean for mean in map(by_step.get, steps) if mean is not None]
        mean, kind = None, "none"
        if there:
            mean = sum(there) / len(there)
            kind = _kind(row, steps[0], shade_of(up * (best - mean) / scale))
        cells.append(_Cell(first_step=steps[0], last_step=steps[-1], mean=mean, kind=kind))
    return cells


def _scale_of(row: LedgerRow, up: float) -> tuple[float, float]:
    """Return the best mean of a row, and the range of scores by which distances are divided."""
    known = [mean for mean in row.means if mean is not None]
    if row.forgetting is None:
        best = max(known, key=lambda mean: up * mean, default=0.0)
    else:
        best = row.forgetting.peak.mean
    if all(0 <= mean <= 1 for mean in known):
        return best, 1.0
    return best, max(known) - min(known) or 1.0


def _kind(row: LedgerRow, step: int, shade: int) -> str:
    if not shade:
        return "best"
    if row.forgetting is None or step <= row.forgetting.peak.last_step:
        return f"b{shade}"
    return f"a{shade}"


def _peak(row: LedgerRow, columns: Sequence[tuple[int, ...]]) -> Iterator[str]:
    if row.forgetting is None:
        return
    peak = row.forgetting.peak
    first, last = (bisect_left(columns, step, key=itemgetter(-1)) for step in (peak.first_step, peak.last_step))
    yield f'<path class="peak" d="M{first} 0H{last + 1}V1H{first}z"/>'


def _borders(columns: Sequence[tuple[int, ...]], phases: Sequence[Phase]) -> Iterator[str]:
    """Yield a line before the first column of each phase; a checkpoint at a border belongs to the earlier phase."""
    starts = {bisect_right(columns, phase.from_step, key=itemgetter(-1)) for phase in phases}
    for at in sorted(starts - {0, len(columns)}):
        yield f'<path class="border" d="M{at} 0v1"/>'


def _strip(place: _Place, row: LedgerRow) -> str:
    cells = _cells(place.benchmark, row, place.columns)
    description = "; ".join(f"{word} at {_said(list(stretch))}" for word, stretch in groupby(cells, key=_word))
    size = f'viewBox="0 0 {len(cells)} 1" preserveAspectRatio="none"'
    return "".join(
        [
            f'<svg class="strip" {size} role="img" aria-labelledby="{place.ident}">',
            f'<desc id="{place.ident}">{escaped_text(description)}</desc>',
            *_stretches(cells),
            *_borders(place.columns, place.phases),
            *_peak(row, place.columns),
            "</svg>",
        ]
    )


def _stretches(cells: Sequence[_Cell]) -> Iterator[str]:
    at = 0
    for kind, group in groupby(cells, key=lambda cell: cell.kind):
        stretch = list(group)
        path = f"M{at} 0h{len(stretch)}v1h-{len(stretch)}z"
        if kind == "none":
            path = f"M{at} .5h{len(stretch)}"
        yield f'<path class="{kind}" d="{path}"><title>{escaped_text(_said(stretch))}</title></path>'
        at += len(stretch)


def _said(stretch: Sequence[_Cell]) -> str:
    """Return the tooltip, such as `steps 700 to 800: 0.438 to 0.163`."""
    steps = steps_text((stretch[0].first_step, stretch[-1].last_step))
    means = [score_text(cell.mean) for cell in (stretch[0], stretch[-1]) if cell.mean is not None]
    return f"{steps}: {' to '.join(dict.fromkeys(means)) or 'no score'}"


_WORDS = {"none": "not measured", "best": "at its best", "a": "lost", "b": "below its later best"}


def _word(cell: _Cell) -> str:
    if cell.kind in _WORDS:
        return _WORDS[cell.kind]
    return _WORDS[cell.kind[0]]
