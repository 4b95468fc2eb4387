"""Samples that changed since the checkpoint that each newest verdict is shown against. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from dashboards.data.run import RunData, only
from dashboards.views.samples.changes import Pair
from tracker.domain.compare.view import RunNoise, compare_what_can_be
from tracker.domain.overview.run import Overview
from tracker.domain.overview.standings import Standing, compared_steps, standings
from tracker.domain.records.policy import Policy
from tracker.domain.scores.series import BenchmarkSeries


def changed_pairs(data: RunData, view: Overview) -> tuple[Pair, ...]:
    """Return, for each newest verdict, the samples that changed since the checkpoint it is shown against."""
    return tuple(found for sides in _sides(data, view) for found in _changed(data, sides))


def texts_wanted(data: RunData, view: Overview) -> dict[str, set[str]]:
    """Return the ids of the plans whose sample texts the page shows, each with the benchmarks."""
    found: dict[str, set[str]] = {}
    for one in _sides(data, view):
        for row in (one.then, one.now):
            found.setdefault(one.series.plans[row].id, set()).add(one.benchmark)
    return found


@dataclass(frozen=True, kw_only=True)
class _Sides:
    series: BenchmarkSeries
    benchmark: str
    then: int
    now: int


def _sides(data: RunData, view: Overview) -> list[_Sides]:
    found = (_sides_of(data, view, standing) for standing in standings(view))
    return [sides for sides in found if sides is not None]


def _sides_of(data: RunData, view: Overview, standing: Standing) -> _Sides | None:
    """Return both sides from the newest series that contains them, so that they are comparable; None: there is none."""
    steps = compared_steps(view.verdicts[standing.step, standing.benchmark])
    for series in reversed(data.scores.of(standing.benchmark) if steps else ()):
        then, now = series.row_of(steps[-1]), series.row_of(standing.step)
        if then is not None and now is not None:
            return _Sides(series=series, benchmark=standing.benchmark, then=then, now=now)
    return None


def _changed(data: RunData, sides: _Sides) -> Iterator[Pair]:
    then, now = (data.texts.get(sides.series.plans[row].id) for row in (sides.then, sides.now))
    if then is None or now is None:
        return
    before, after = (only(record, [sides.benchmark]) for record in (then, now))
    view = compare_what_can_be(before, after, Policy(), RunNoise(), examples=None)
    for one in view.benchmarks:
        if one.lost or one.gained:
            yield Pair(before=view.before, after=view.after, compared=one, is_best=False)
