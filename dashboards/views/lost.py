"""Lost samples: correct at the best checkpoint and incorrect now, with both answers. Pure.

losses = losses_of(data, view)      # one for each benchmark that is worse; with examples if the texts were read
plans = plans_with_texts(data, view)  # ids of the plans whose texts are needed for that
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dashboards.data.run import RunData
from dashboards.views.texts import LostSampleView, lost_sample
from eval_jobs.types import EvalResult, SampleScore
from tracker.domain.forgetting.types import LostTexts
from tracker.domain.overview.run import Overview, Standing, standings
from tracker.domain.records.display import one_line
from tracker.domain.records.types import Measure
from tracker.domain.scores.matrix import RIGHT, FloatArray, values_at
from tracker.domain.scores.run_scores import BenchmarkSeries
from tracker.domain.scores.summary import has_score

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
    return tuple(_loss(data, pair) for pair in _pairs(data, view))


def plans_with_texts(data: RunData, view: Overview) -> tuple[str, ...]:
    """Return the ids of the plans whose sample texts the examples show."""
    ids: dict[str, None] = {}
    for pair in _pairs(data, view):
        ids |= dict.fromkeys((pair.series.plans[pair.then].id, pair.series.plans[pair.now].id))
    return tuple(ids)


# --- private


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """A benchmark that is worse, and both sides as rows of its series."""

    series: BenchmarkSeries
    benchmark: str
    then: int
    now: int


@dataclass(frozen=True, kw_only=True)
class _Answered:
    """One sample at one checkpoint."""

    sample: SampleScore
    answer: str | None
    """None: deleted to save space."""


def _pairs(data: RunData, view: Overview) -> list[_Pair]:
    found = (_pair(data, standing) for standing in standings(view) if standing.best_steps)
    return [pair for pair in found if pair is not None][:MAX_BENCHMARKS]


def _pair(data: RunData, standing: Standing) -> _Pair | None:
    """Return both sides from the newest series that contains them, so that they are comparable; None: there is none."""
    for series in reversed(data.scores.of(standing.benchmark)):
        then, now = series.row_of(standing.best_steps[-1]), series.row_of(standing.step)
        if then is not None and now is not None:
            return _Pair(series=series, benchmark=standing.benchmark, then=then, now=now)
    return None


def _loss(data: RunData, pair: _Pair) -> Loss:
    series = pair.series
    values = values_at(series.matrix(Measure.SCORE), np.arange(len(series.steps)))
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


def _examples(data: RunData, pair: _Pair, lost: Mapping[str, FloatArray]) -> tuple[LostSampleView, ...]:
    then, now, steps = _answered(data, pair, pair.then), _answered(data, pair, pair.now), pair.series.steps
    lives = {key: tuple(map(_right, lost[key].tolist())) for key in lost if key in then and key in now}

    def firmness(key: str) -> int:
        return sum(right is (row <= pair.then) for row, right in enumerate(lives[key]))

    shown = steps[pair.then], steps[pair.now]
    # The clearest losses first: always correct until then, always incorrect since.
    ranked = sorted(lives, key=firmness, reverse=True)[:MAX_EXAMPLES]
    places = ((key, now[key].sample.subset) for key in ranked)
    return tuple(lost_sample(at, _texts(then[at[0]], now[at[0]]), lives[at[0]], steps, shown) for at in places)


def _texts(then: _Answered, now: _Answered) -> LostTexts:
    return LostTexts(
        prompt=now.sample.prompt,
        target=now.sample.target,
        answer_before=then.answer,
        right_before=True,
        answer_after=now.answer,
        right_after=False,
    )


def _answered(data: RunData, pair: _Pair, row: int) -> dict[str, _Answered]:
    """Return the first repeat of each sample that has a score; empty if the texts were not read."""
    record = data.texts.get(pair.series.plans[row].id)
    found: dict[str, _Answered] = {}
    if record is None:
        return found
    for outcome in record.outcomes:
        if outcome.benchmark == pair.benchmark and isinstance(outcome, EvalResult):
            for sample in filter(has_score, outcome.samples):
                answer = sample.answer if outcome.has_texts else None
                found.setdefault(sample.sample_id, _Answered(sample=sample, answer=answer))
    return found


def _right(score: float) -> bool | None:
    if math.isnan(score):
        return None
    return score > RIGHT
