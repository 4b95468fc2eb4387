"""What was lost: samples that were right at the best checkpoint and are wrong now, with both answers. Pure.

losses = losses_of(data, view)      # one for each benchmark that is worse; examples where the texts are at hand
plans = plans_with_texts(data, view)  # the plan ids whose texts that needs
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dashboards.run_data import RunData, find_result
from eval_jobs.types import EvalRecord, EvalResult, SampleScore
from tracker.domain.display import clean, one_line, shortened
from tracker.domain.overview import WORSE, Overview, Standing, decisive_comparison, standings
from tracker.domain.pairing import Unlike, pair, served_alike
from tracker.domain.scores import has_score, sample_means
from tracker.domain.types import VerdictWord

MAX_BENCHMARKS = 8
MAX_EXAMPLES = 3
MAX_CHARS = 700
"""Of a prompt, target or answer; a report is for looking, not for archiving."""
RIGHT = 0.5
"""A score above this is right, as in the comparisons."""


@dataclass(frozen=True, kw_only=True)
class Moment:
    """One sample at one checkpoint."""

    step: int
    right: bool | None
    """None: it has no score there."""


@dataclass(frozen=True, kw_only=True)
class LostSample:
    """One sample, then and now."""

    subset: str
    prompt: str
    target: str
    answer_then: str
    answer_now: str
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
    examples: tuple[LostSample, ...]


def losses_of(data: RunData, view: Overview) -> tuple[Loss, ...]:
    """Return the losses of the benchmarks that stand worse, most urgent first."""
    return tuple(loss for pair_ in _pairs(data, view) if (loss := _loss(data, pair_)) is not None)


def plans_with_texts(data: RunData, view: Overview) -> tuple[str, ...]:
    """Return the ids of the plans whose samples' texts the examples show."""
    ids = (record.plan.id for p in _pairs(data, view) for record in (p.then_record, p.now_record))
    return tuple(dict.fromkeys(ids))


# --- private


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """A benchmark that is worse, and its results on both sides."""

    standing: Standing
    then_record: EvalRecord
    then: EvalResult
    now_record: EvalRecord
    now: EvalResult


def _pairs(data: RunData, view: Overview) -> list[_Pair]:
    pairs = []
    for standing in standings(view):
        verdict = view.at(standing.step, standing.benchmark)
        comparison = decisive_comparison(verdict) if verdict and standing.word in WORSE else None
        if comparison is None:
            continue
        then = find_result(data, comparison.baseline_steps[-1], standing.benchmark)
        now = find_result(data, standing.step, standing.benchmark)
        if then and now:
            pairs.append(_Pair(standing=standing, then_record=then[0], then=then[1], now_record=now[0], now=now[1]))
    return pairs[:MAX_BENCHMARKS]


def _loss(data: RunData, sides: _Pair) -> Loss | None:
    pairing = pair(sides.now, sides.then)
    if isinstance(pairing, Unlike):
        return None
    before, after = pairing.baseline > RIGHT, pairing.candidate > RIGHT
    lost = [key for key, was, is_ in zip(pairing.sample_ids, before, after, strict=True) if was and not is_]
    return Loss(
        benchmark=one_line(sides.standing.benchmark),
        word=sides.standing.word,
        then_step=sides.then_record.plan.checkpoint.step,
        now_step=sides.now_record.plan.checkpoint.step,
        compared=len(pairing.sample_ids),
        lost=len(lost),
        gained=int((after & ~before).sum()),
        examples=_examples(data, sides, lost),
    )


def _examples(data: RunData, sides: _Pair, lost: Sequence[str]) -> tuple[LostSample, ...]:
    then_texts = _texts(data, sides.then_record, sides.standing.benchmark)
    now_texts = _texts(data, sides.now_record, sides.standing.benchmark)
    known = [key for key in lost if key in then_texts and key in now_texts]
    lives = _lives(data, sides, known)
    # The firmest losses first: always right until then, always wrong since.
    ranked = sorted(known, key=lambda key: -_firmness(lives[key], sides.then_record.plan.checkpoint.step))
    return tuple(_example(then_texts[key], now_texts[key], lives[key]) for key in ranked[:MAX_EXAMPLES])


def _example(then: SampleScore, now: SampleScore, moments: tuple[Moment, ...]) -> LostSample:
    def shown(text: str) -> str:
        return shortened(clean(text).strip(), MAX_CHARS)

    return LostSample(
        subset=one_line(now.subset),
        prompt=shown(now.prompt),
        target=shown(now.target),
        answer_then=shown(then.answer),
        answer_now=shown(now.answer),
        moments=moments,
    )


def _texts(data: RunData, record: EvalRecord, benchmark: str) -> dict[str, SampleScore]:
    """Return the first repeat that has a score of each sample; none when the texts were not fetched."""
    full = data.texts.get(record.plan.id)
    found: dict[str, SampleScore] = {}
    for outcome in full.outcomes if full else ():
        if outcome.benchmark == benchmark and isinstance(outcome, EvalResult):
            for sample in filter(has_score, outcome.samples):
                found.setdefault(sample.sample_id, sample)
    return found


def _lives(data: RunData, sides: _Pair, keys: Sequence[str]) -> Mapping[str, tuple[Moment, ...]]:
    lives: dict[str, list[Moment]] = {key: [] for key in keys}
    for record in (r for r in data.records if served_alike(sides.now_record.plan, r.plan)):
        for outcome in record.outcomes:
            if isinstance(outcome, EvalResult) and outcome.fingerprint == sides.now.fingerprint:
                means = sample_means(outcome)
                for key in keys:
                    right = (means[key].score > RIGHT) is outcome.higher_is_better if key in means else None
                    lives[key].append(Moment(step=record.plan.checkpoint.step, right=right))
    return {key: tuple(moments) for key, moments in lives.items()}


def _firmness(moments: Sequence[Moment], then_step: int) -> int:
    return sum(m.right is (m.step <= then_step) for m in moments)
