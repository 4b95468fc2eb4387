"""What was lost: samples that were right at the best checkpoint and are wrong now, with both answers. Pure.

losses = losses_of(data, view)      # one for each benchmark that is worse; examples where the texts are at hand
plans = plans_with_texts(data, view)  # the plan ids whose texts that needs
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dashboards.data.run import RunData
from eval_jobs.types import EvalResult, SampleScore
from tracker.domain.overview.run import Overview, Standing, standings
from tracker.domain.records.display import clean, one_line, shortened
from tracker.domain.records.types import Measure, VerdictWord
from tracker.domain.scores.matrix import RIGHT, FloatArray, values_at
from tracker.domain.scores.run_scores import BenchmarkSeries
from tracker.domain.scores.summary import has_score

MAX_BENCHMARKS = 8
MAX_EXAMPLES = 3
MAX_CHARS = 700
"""Of a prompt, target or answer; a report is for looking, not for archiving."""


@dataclass(frozen=True, kw_only=True)
class Moment:
    """One sample at one checkpoint."""

    step: int
    right: bool | None
    """None: it has no score there."""


@dataclass(frozen=True, kw_only=True)
class LostSampleView:
    """One sample, then and now."""

    subset: str
    prompt: str
    target: str
    answer_then: str | None
    """None: deleted to save space."""
    answer_now: str | None
    moments: tuple[Moment, ...]
    """Its whole life, by step."""


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What one benchmark lost between two checkpoints."""

    benchmark: str
    word: VerdictWord
    then_step: int
    now_step: int
    compared: int
    lost: int
    gained: int
    examples: tuple[LostSampleView, ...]


def losses_of(data: RunData, view: Overview) -> tuple[Loss, ...]:
    """Return the losses of the benchmarks that stand worse, most urgent first."""
    return tuple(_loss(data, sides) for sides in _pairs(data, view))


def plans_with_texts(data: RunData, view: Overview) -> tuple[str, ...]:
    """Return the ids of the plans whose samples' texts the examples show."""
    ids = (sides.series.plans[row].id for sides in _pairs(data, view) for row in (sides.then, sides.now))
    return tuple(dict.fromkeys(ids))


# --- private


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """A benchmark that is worse, and both sides as rows of its series."""

    standing: Standing
    series: BenchmarkSeries
    then: int
    now: int


@dataclass(frozen=True, kw_only=True)
class _Said:
    """One sample at one checkpoint."""

    sample: SampleScore
    answer: str | None


def _pairs(data: RunData, view: Overview) -> list[_Pair]:
    pairs = []
    for standing in standings(view):
        if standing.best_steps:
            pairs += _sides(data, standing, standing.best_steps[-1])
    return pairs[:MAX_BENCHMARKS]


def _sides(data: RunData, standing: Standing, then_step: int) -> list[_Pair]:
    """Return the two sides; none where they were not measured alike."""
    rows = ((s, s.row_of(then_step), s.row_of(standing.step)) for s in data.scores.of(standing.benchmark))
    return [
        _Pair(standing=standing, series=series, then=then, now=now)
        for series, then, now in rows
        if then is not None and now is not None
    ][-1:]


def _loss(data: RunData, sides: _Pair) -> Loss:
    values = values_at(sides.series.matrix(Measure.SCORE), np.arange(len(sides.series.steps)))
    then, now = values[sides.then], values[sides.now]
    lost = np.flatnonzero((then > RIGHT) & (now <= RIGHT))
    return Loss(
        benchmark=one_line(sides.standing.benchmark),
        word=sides.standing.word,
        then_step=sides.series.steps[sides.then],
        now_step=sides.series.steps[sides.now],
        compared=int(np.count_nonzero(~np.isnan(then) & ~np.isnan(now))),
        lost=lost.size,
        gained=int(np.count_nonzero((then <= RIGHT) & (now > RIGHT))),
        examples=_examples(data, sides, {sides.series.sample_ids[i]: values[:, i] for i in lost}),
    )


def _examples(data: RunData, sides: _Pair, lost: Mapping[str, FloatArray]) -> tuple[LostSampleView, ...]:
    then_texts, now_texts = (_texts(data, sides, row) for row in (sides.then, sides.now))
    known = [key for key in lost if key in then_texts and key in now_texts]
    steps = sides.series.steps
    lives = {key: tuple(map(_moment, steps, lost[key].tolist())) for key in known}
    # The firmest losses first: always right until then, always wrong since.
    ranked = sorted(known, key=lambda key: -_firmness(lives[key], steps[sides.then]))
    return tuple(_example(then_texts[key], now_texts[key], lives[key]) for key in ranked[:MAX_EXAMPLES])


def _example(then: _Said, now: _Said, moments: tuple[Moment, ...]) -> LostSampleView:
    def shown(text: str) -> str:
        return shortened(clean(text).strip(), MAX_CHARS)

    return LostSampleView(
        subset=one_line(now.sample.subset),
        prompt=shown(now.sample.prompt),
        target=shown(now.sample.target),
        answer_then=None if then.answer is None else shown(then.answer),
        answer_now=None if now.answer is None else shown(now.answer),
        moments=moments,
    )


def _texts(data: RunData, sides: _Pair, row: int) -> dict[str, _Said]:
    """Return the first repeat that has a score of each sample; none when the texts were not fetched."""
    full = data.texts.get(sides.series.plans[row].id)
    found: dict[str, _Said] = {}
    for outcome in full.outcomes if full else ():
        if outcome.benchmark == sides.standing.benchmark and isinstance(outcome, EvalResult):
            for sample in filter(has_score, outcome.samples):
                answer = sample.answer if outcome.has_texts else None
                found.setdefault(sample.sample_id, _Said(sample=sample, answer=answer))
    return found


def _moment(step: int, score: float) -> Moment:
    return Moment(step=step, right=None if math.isnan(score) else score > RIGHT)


def _firmness(moments: Sequence[Moment], then_step: int) -> int:
    return sum(m.right is (m.step <= then_step) for m in moments)
