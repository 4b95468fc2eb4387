"""Bisection of a loss: find where it began by evaluating few checkpoints between a good one and a bad one. Pure.

    search = Search(steps=steps, looks=looks)       # all known steps, and the scores of the evaluated ones
    while (step := search.next_step()) is not None:
        ...                                         # evaluate it, and search again with one more score
    search.border()                                 # the last good step and the first bad one

Scores scatter, so a single score can mislead and none is final. In each round all scores together place the border
between the two neighbours that best split them into two levels. The middle checkpoint between these two is evaluated
next. Scores on the same samples differ less than scores on different ones, so only common samples count.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracker.domain.scores.matrix import FloatArray

SIDE = 2
"""Evaluated checkpoints required on each side of the border, so that one outlier is not mistaken for a loss."""


@dataclass(frozen=True, kw_only=True)
class Border:
    """Border of a loss, between two neighbouring evaluated steps."""

    good: int
    bad: int
    good_steps: tuple[int, ...]
    """Evaluated steps above the border, ascending."""
    bad_steps: tuple[int, ...]
    odd_steps: tuple[int, ...]
    """Evaluated steps with a score on the wrong side of the midpoint: the loss is not a single drop."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """State of the search between a good checkpoint and a bad one."""

    steps: tuple[int, ...]
    """Steps that are available or were evaluated, ascending; the first is the good one, the last the bad one."""
    looks: Mapping[int, float]
    """Mean score of every evaluated step on the samples common to all; up is better. Both ends are included."""

    def next_step(self) -> int | None:
        """Return the step to evaluate next; None if the border is found."""
        border = self.border()
        between = [s for s in self.steps if border.good < s < border.bad]
        if between:
            return between[(len(between) - 1) // 2]
        return next(self._beside(border), None)

    def border(self) -> Border:
        """Return the border that fits all scores together best."""
        seen, values = self._seen
        cut = int(np.argmax(_gains(values))) + 1
        above, below = values[:cut].mean(), values[cut:].mean()
        middle = (above + below) / 2
        odd = [s for s, v in zip(seen[:cut], values[:cut], strict=True) if v < middle]
        odd += [s for s, v in zip(seen[cut:], values[cut:], strict=True) if v >= middle]
        return Border(
            good=seen[cut - 1],
            bad=seen[cut],
            good_steps=tuple(seen[:cut]),
            bad_steps=tuple(seen[cut:]),
            odd_steps=tuple(odd),
        )

    @cached_property
    def _seen(self) -> tuple[Sequence[int], FloatArray]:
        seen = sorted(self.looks)
        return seen, np.array([self.looks[step] for step in seen])

    def _beside(self, border: Border) -> Iterator[int]:
        """Yield the nearest unevaluated steps around the border until each side has enough scores that fit it."""
        above = [s for s in reversed(self.steps) if s <= border.good]
        below = [s for s in self.steps if s >= border.bad]
        for side in (above, below):
            fitting = 0
            for step in side:
                if fitting == SIDE:
                    break
                if step not in self.looks:
                    yield step
                fitting += step not in border.odd_steps


def most_evaluations(checkpoints: int) -> int:
    """Return the maximum number of evaluations for `checkpoints` between two evaluated ones if no score misleads."""
    return int(checkpoints).bit_length() + 2 * (SIDE - 1)


def _gains(values: FloatArray) -> FloatArray:
    """Return how much of the spread two levels explain at each cut; 0 for cuts at which the score rises."""
    n = values.size
    left = np.arange(1, n)
    sums = np.cumsum(values)[:-1]
    fall = sums / left - (values.sum() - sums) / (n - left)
    gains: FloatArray = np.where(fall > 0, fall, 0.0) ** 2 * left * (n - left) / n
    return gains
