"""Samples that changed between two checkpoints, with both answers side by side. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.views.samples.texts import shown_answer, shown_text
from tracker.domain.compare.examples import Example
from tracker.domain.compare.view import ComparedBenchmark, ComparisonView, Side
from tracker.domain.records.display import one_line, score_text

MAX_LISTED = 12
"""Maximum pairs of benchmark and earlier checkpoint with samples that need no script."""
ALL = 50
"""A pair with up to this many lost and gained samples shows all of them without a script."""
EXAMPLES = 3
"""Maximum lost, and maximum gained, samples of any other pair that need no script."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One benchmark with changed samples at two checkpoints."""

    before: Side
    after: Side
    compared: ComparedBenchmark
    is_best: bool
    """True: the newest checkpoint of the best block; False: the previous checkpoint."""


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


def pairs_of(views: Sequence[ComparisonView], order: Sequence[str]) -> tuple[Pair, ...]:
    """Return the benchmarks with changed samples, in the order of their urgency.

    `views` are comparisons with the previous checkpoint, then with better ones.
    """
    found = []
    for at, view in enumerate(views):
        for one in view.benchmarks:
            if one.lost or one.gained:
                found.append(Pair(before=view.before, after=view.after, compared=one, is_best=at > 0))
    place = {name: at for at, name in enumerate(order)}
    return tuple(sorted(found, key=lambda one: (place.get(one.compared.benchmark, len(place)), one.is_best)))


def heading_at(score: float, step: int, *, is_better: bool) -> str:
    """Return `✓ Correct at step 600`; the score instead of a word unless it is 0 or 1."""
    word = score_text(score)
    if score in (0.0, 1.0):
        word = "Correct" if is_better else "Incorrect"
    return f"{'✓' if is_better else '✗'} {word} at step {step}"


def changed_samples(pair: Pair) -> Changed:
    """Return what changed in a pair, with the first samples."""
    one = pair.compared
    shown = None if len(one.lost) + len(one.gained) <= ALL else EXAMPLES
    return Changed(
        benchmark=one_line(one.benchmark),
        before_step=pair.before.step,
        is_best=pair.is_best,
        lost=one.comparison.n_lost,
        gained=one.comparison.n_gained,
        compared=one.comparison.n_common,
        samples=(
            *(_sample("lost", example, pair) for example in one.lost[:shown]),
            *(_sample("gained", example, pair) for example in one.gained[:shown]),
        ),
    )


def _sample(kind: str, example: Example, pair: Pair) -> ChangedSample:
    now = pair.compared.comparison.pooled_steps[-1]
    subset = one_line(example.subset)
    return ChangedSample(
        kind=kind,
        name="" if subset == "default" else subset,
        prompt=shown_text(example.prompt),
        target=shown_text(example.target),
        before=_said(example.answer_before, example.score_before, pair.before.step, is_better=kind == "lost"),
        after=_said(example.answer_after, example.score_after, now, is_better=kind == "gained"),
    )


def _said(answer: str | None, score: float, step: int, *, is_better: bool) -> AnswerAt:
    heading = heading_at(score, step, is_better=is_better)
    return AnswerAt(heading=heading, is_better=is_better, answer=shown_answer(answer))
