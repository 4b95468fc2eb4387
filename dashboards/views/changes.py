"""Samples that changed between two checkpoints, with both answers side by side. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dashboards.views.texts import shown_answer, shown_text
from tracker.domain.compare.view import ComparedBenchmark, ComparisonView, Example
from tracker.domain.records.display import one_line, score_text

MAX_LISTED = 12
"""Maximum pairs of benchmark and earlier checkpoint whose changed samples are shown with texts."""


@dataclass(frozen=True, kw_only=True)
class AnswerAt:
    """An answer at one checkpoint."""

    heading: str
    is_better: bool
    """Whether this is the better of the two answers."""
    answer: str | None
    """None: not stored."""


@dataclass(frozen=True, kw_only=True)
class ChangedSample:
    """One sample."""

    kind: str
    """`lost` or `gained`."""
    name: str
    """Subset; empty for the default subset."""
    prompt: str
    target: str
    before: AnswerAt
    after: AnswerAt


@dataclass(frozen=True, kw_only=True)
class Changed:
    """What changed in one benchmark since one earlier checkpoint."""

    benchmark: str
    before_step: int
    is_best: bool
    """True: the newest checkpoint of the best block; False: the previous checkpoint."""
    lost: int
    gained: int
    compared: int
    samples: tuple[ChangedSample, ...]


def changes_of_views(views: Sequence[ComparisonView], order: Sequence[str]) -> tuple[Changed, ...]:
    """Return the benchmarks with changed samples, those with most urgent verdicts first.

    Args:
        views: comparisons with the previous checkpoint, then with better ones.
        order: benchmarks, the most urgent one first.
    """
    found = []
    for at, view in enumerate(views):
        for one in view.benchmarks:
            if one.lost or one.gained:
                found.append(_changed(one, view.before.step, is_best=at > 0))
    place = {one_line(name): at for at, name in enumerate(order)}
    return tuple(sorted(found, key=lambda one: (place.get(one.benchmark, len(place)), one.is_best)))


# --- private


def _changed(one: ComparedBenchmark, step: int, *, is_best: bool) -> Changed:
    return Changed(
        benchmark=one_line(one.benchmark),
        before_step=step,
        is_best=is_best,
        lost=one.comparison.n_lost,
        gained=one.comparison.n_gained,
        compared=one.comparison.n_common,
        samples=tuple(_samples(one, (step, *one.comparison.pooled_steps))),
    )


def _samples(one: ComparedBenchmark, steps: tuple[int, ...]) -> Iterator[ChangedSample]:
    for kind, examples in (("lost", one.lost), ("gained", one.gained)):
        for example in examples:
            yield _sample(kind, example, steps)


def _sample(kind: str, example: Example, steps: tuple[int, ...]) -> ChangedSample:
    subset = one_line(example.subset)
    return ChangedSample(
        kind=kind,
        name="" if subset == "default" else subset,
        prompt=shown_text(example.prompt),
        target=shown_text(example.target),
        before=_said(example.answer_before, example.score_before, steps[0], is_better=kind == "lost"),
        after=_said(example.answer_after, example.score_after, steps[-1], is_better=kind == "gained"),
    )


def _said(answer: str | None, score: float, step: int, *, is_better: bool) -> AnswerAt:
    word = score_text(score) if score not in (0.0, 1.0) else "Correct" if is_better else "Incorrect"
    return AnswerAt(
        heading=f"{'✓' if is_better else '✗'} {word} at step {step}",
        is_better=is_better,
        answer=shown_answer(answer),
    )
