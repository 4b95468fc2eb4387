"""Where a loss began, found by evaluating few of the checkpoints between a good one and a bad one. Pure.

    search = Search(steps=steps, looks=looks)       # all that is there, and what was evaluated of it
    while (step := search.next_step()) is not None:
        ...                                         # evaluate it, and search again with one more look
    search.border()                                 # the last good step and the first bad one

Not every look is right: scores scatter. So no look decides for good. At every turn the border is put where all looks
together say, between the two neighbours that part them into two levels best, and the middle of what lies between is
evaluated next. Looks on the same samples differ less than looks on different ones, so all are taken on those in common.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracker.domain.scores.matrix import FloatArray

SIDE = 2
"""Looks that are wanted on either side of the border, so that one odd checkpoint is not taken for a loss."""


@dataclass(frozen=True, kw_only=True)
class Border:
    """Between two neighbouring steps."""

    good: int
    bad: int
    good_steps: tuple[int, ...]
    """Evaluated steps above the border, ascending."""
    bad_steps: tuple[int, ...]
    odd_steps: tuple[int, ...]
    """Evaluated steps that are on the other side of half the loss than their place: the loss is not one step down."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """What is known between a good checkpoint and a bad one."""

    steps: tuple[int, ...]
    """Checkpoints that are there or were evaluated, ascending; the first is the good one, the last the bad one."""
    looks: Mapping[int, float]
    """Mean score of every evaluated step on the samples that all of them have; up is better. Both ends are there."""

    def next_step(self) -> int | None:
        """Return what to evaluate next; None: the border is found."""
        border = self.border()
        between = [s for s in self.steps if border.good < s < border.bad]
        if between:
            return between[(len(between) - 1) // 2]
        return next(self._beside(border), None)

    def border(self) -> Border:
        """Return where all looks together put the loss."""
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

    # --- private

    @cached_property
    def _seen(self) -> tuple[Sequence[int], FloatArray]:
        seen = sorted(self.looks)
        return seen, np.array([self.looks[step] for step in seen])

    def _beside(self, border: Border) -> Iterator[int]:
        """Yield the next steps beside the border, until either side has enough looks that fit where they are."""
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
    """Return how many of the checkpoints between two evaluated ones are evaluated at most where no look is wrong."""
    return int(checkpoints).bit_length() + 2 * (SIDE - 1)


# --- private


def _gains(values: FloatArray) -> FloatArray:
    """Return for each cut how much of the spread two levels explain, those that go up counting as nothing."""
    n = values.size
    left = np.arange(1, n)
    sums = np.cumsum(values)[:-1]
    fall = sums / left - (values.sum() - sums) / (n - left)
    gains: FloatArray = np.where(fall > 0, fall, 0.0) ** 2 * left * (n - left) / n
    return gains
