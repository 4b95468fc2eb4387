"""Lost samples: correct at the best checkpoint and incorrect now, with both answers. Pure."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from dashboards.data.run import RunData, only
from dashboards.views.samples.changes import Pair
from dashboards.views.samples.texts import LostSampleView, lost_sample
from tracker.domain.compare.view import RunNoise, compare_what_can_be
from tracker.domain.forgetting.texts import texts_of
from tracker.domain.overview.run import Overview, Standing, decisive_comparison, standings
from tracker.domain.records.display import one_line
from tracker.domain.records.policy import Policy
from tracker.domain.records.types import WORSE, Baseline, Measure
from tracker.domain.scores.matrix import RIGHT, FloatArray, values_at
from tracker.domain.scores.series import BenchmarkSeries
from tracker.domain.scores.summary import Answered, answers_of, result_of

MAX_BENCHMARKS = 8
MAX_EXAMPLES = 3


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What one benchmark lost between two checkpoints."""

    benchmark: str
    then_step: int
    now_step: int
    compared: int
    lost: int
    gained: int
    examples: tuple[LostSampleView, ...]


def losses_of(data: RunData, view: Overview) -> tuple[Loss, ...]:
    """Return the losses of the benchmarks that are worse, most urgent first."""
    worse = [pair for pair in _sides(data, view) if pair.is_worse]
    return tuple(_loss(data, pair) for pair in worse[:MAX_BENCHMARKS])


def changed_pairs(data: RunData, view: Overview) -> tuple[Pair, ...]:
    """Return, for each newest verdict, the samples that changed since the checkpoint it compares with."""
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
    is_worse: bool
    then: int
    now: int


def _sides(data: RunData, view: Overview) -> list[_Sides]:
    found = (_sides_of(data, view, standing) for standing in standings(view))
    return [sides for sides in found if sides is not None]


def _sides_of(data: RunData, view: Overview, standing: Standing) -> _Sides | None:
    """Return both sides from the newest series that contains them, so that they are comparable; None: there is none."""
    verdict = view.verdicts[standing.step, standing.benchmark]
    comparison = decisive_comparison(verdict)
    # A pinned checkpoint may belong to another run, whose steps mean something else.
    if comparison is None or comparison.baseline is Baseline.PINNED:
        return None
    for series in reversed(data.scores.of(standing.benchmark)):
        then, now = series.row_of(comparison.baseline_steps[-1]), series.row_of(standing.step)
        if then is not None and now is not None:
            is_worse = verdict.word in WORSE
            return _Sides(series=series, benchmark=standing.benchmark, is_worse=is_worse, then=then, now=now)
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


def _loss(data: RunData, pair: _Sides) -> Loss:
    series = pair.series
    values = values_at(series.matrices[Measure.SCORE], np.arange(len(series.steps)))
    then, now = values[pair.then], values[pair.now]
    lost = np.flatnonzero((then > RIGHT) & (now <= RIGHT))
    return Loss(
        benchmark=one_line(pair.benchmark),
        then_step=series.steps[pair.then],
        now_step=series.steps[pair.now],
        compared=int(np.count_nonzero(~np.isnan(then) & ~np.isnan(now))),
        lost=lost.size,
        gained=int(np.count_nonzero((then <= RIGHT) & (now > RIGHT))),
        examples=_examples(data, pair, {series.sample_ids[i]: values[:, i] for i in lost}),
    )


def _examples(data: RunData, pair: _Sides, lost: Mapping[str, FloatArray]) -> tuple[LostSampleView, ...]:
    then, now, steps = _answered(data, pair, pair.then), _answered(data, pair, pair.now), pair.series.steps
    lives = {key: tuple(map(_right, lost[key].tolist())) for key in lost if key in then and key in now}

    def firmness(key: str) -> int:
        return sum(right is (row <= pair.then) for row, right in enumerate(lives[key]))

    shown = steps[pair.then], steps[pair.now]
    # The clearest losses first: always correct until then, always incorrect since.
    ranked = sorted(lives, key=firmness, reverse=True)[:MAX_EXAMPLES]
    found = []
    for key in ranked:
        texts = texts_of(then[key], now[key], was_right=True, is_right=False)
        found.append(lost_sample((key, now[key].sample.subset), texts, lives[key], steps, shown))
    return tuple(found)


def _answered(data: RunData, pair: _Sides, row: int) -> dict[str, Answered]:
    """Return the answers of one side; empty if the texts were not read."""
    record = data.texts.get(pair.series.plans[row].id)
    result = None if record is None else result_of(record, pair.benchmark)
    return {} if result is None else answers_of(result)


def _right(score: float) -> bool | None:
    if math.isnan(score):
        return None
    return score > RIGHT
