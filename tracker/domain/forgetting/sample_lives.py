"""Changes of every sample along a run: learned, forgotten, relearned, lost. Pure.

Single changes are no evidence: on a plateau of 100 healthy checkpoints half of all samples are forgotten and relearned.
`lost` requires several checkpoints on each side, and still lists about 3 samples of 1000 by chance.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from tracker.domain.scores.flips import KNOWN, RIGHT, UNKNOWN
from tracker.domain.scores.matrix import NO_VALUE, BoolArray, FloatArray, IntArray, ScoreMatrix, values_at

WINDOW = 5
"""Checkpoints on each side of a loss; fewer in a short run."""
_MIN_WINDOW = 2
_MIN_SCORED = 0.5
"""Minimum share of a window's checkpoints with a score; a sample with fewer scores is not classified."""

_HEALTHY_SHARE = {1: 0.05, 2: 0.008, 3: 0.0015, 4: 0.0004, 5: 0.003}
"""By window size: share of samples of a healthy simulated plateau that are listed as lost between neighbouring windows.
Four checkpoints must all agree; of five, one may differ. Larger windows count as five."""
_RISEN = 0.02
"""Mean rise above which gains count as learning, not as churn."""
_PRIOR_COUNT = 0.5
"""Weight of `_HEALTHY_SHARE`, in samples, relative to the samples that the run itself shows."""


class SampleEvent(StrEnum):
    """Change of a sample at a checkpoint."""

    LEARNED = "learned"
    """Right for the first time."""
    FORGOTTEN = "forgotten"
    """Wrong, after it was right (Toneva et al. 2019)."""
    RELEARNED = "relearned"
    """Right again."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One change of one sample."""

    step: int
    change: SampleEvent


@dataclass(frozen=True, kw_only=True)
class StepEvents:
    """Number of samples that changed at a checkpoint."""

    step: int
    learned: int
    forgotten: int
    relearned: int


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Two ranges of checkpoints, as rows."""

    before: IntArray
    after: IntArray


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Number of samples that changed from known to unknown between two windows, and the reverse."""

    lost: int
    gained: int
    net_lost: int
    """lost - gained; 0 is expected in a healthy run."""
    expected_false: float
    """Number of lost samples that chance alone would list."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Lives:
    """Right or wrong, for T checkpoints x n samples."""

    right: BoolArray
    """Shape (T, n)."""
    scored: BoolArray
    """Shape (T, n): False where a sample has no score; it is then neither right nor wrong."""


def lives_of(matrix: ScoreMatrix, rows: IntArray) -> Lives:
    """Return the lives of all samples over the checkpoints in `rows`."""
    right = matrix.palette > RIGHT
    right[NO_VALUE] = False
    codes = matrix.codes[rows]
    return Lives(right=right[codes], scored=codes != NO_VALUE)


def event_matrix(lives: Lives) -> NDArray[np.int8]:
    """Return the change of each sample at each checkpoint, shape (T, n): 0 none, 1 learned, 2 forgotten, 3 relearned.

    Checkpoints without a score are skipped. A sample that is right from the start counts as learned at its first score.
    """
    changes = np.zeros(lives.right.shape, dtype=np.int8)
    was_right, ever_right = (np.zeros(lives.right.shape[1], dtype=bool) for _ in range(2))
    for at in range(len(changes)):
        right, scored = lives.right[at], lives.scored[at]
        turned = right & ~was_right
        # Boolean times code, with at most one term nonzero: faster than assignment through a mask.
        changes[at] = _LEARNED * (turned & ~ever_right) + _RELEARNED * (turned & ever_right)
        changes[at] += _FORGOTTEN * (scored & was_right & ~right)
        was_right = right | (was_right & ~scored)
        ever_right |= right
    return changes


def step_events(changes: NDArray[np.int8], steps: tuple[int, ...]) -> tuple[StepEvents, ...]:
    """Return how many samples changed at each step; `changes` of shape (T, n)."""
    learned, forgotten, relearned = (
        np.count_nonzero(changes == code, axis=1).tolist() for code in (_LEARNED, _FORGOTTEN, _RELEARNED)
    )
    return tuple(
        StepEvents(step=step, learned=n_learned, forgotten=n_forgotten, relearned=n_relearned)
        for step, n_learned, n_forgotten, n_relearned in zip(steps, learned, forgotten, relearned, strict=True)
    )


def sample_events(changes: NDArray[np.int8], steps: tuple[int, ...]) -> tuple[Event, ...]:
    """Return the changes of one sample; `changes` of shape (T,)."""
    return tuple(Event(step=s, change=_CHANGES[c]) for s, c in zip(steps, changes.tolist(), strict=True) if c)


def sample_changes(changes: NDArray[np.int8]) -> Iterator[tuple[int, int, SampleEvent]]:
    """Yield (row, sample, change) by row, then by sample; `changes` of shape (T, n)."""
    rows, samples = np.nonzero(changes)
    for row, sample, code in zip(rows.tolist(), samples.tolist(), changes[rows, samples].tolist(), strict=True):
        yield row, sample, _CHANGES[code]


def windows_around(rows: IntArray, before: IntArray, width: int) -> Windows | None:
    """Return the last of `before` and the newest of `rows` after them; None if either has fewer than two checkpoints.

    `rows` are all that count, `before` the reference checkpoints among them, both by step; `width` is that of a block
    (`regression.blocks.peak_width`).
    """
    size = min(WINDOW, width)
    found = Windows(before=before[-size:], after=rows[rows > before[-1]][-size:])
    if min(found.before.size, found.after.size) >= _MIN_WINDOW:
        return found
    return None


def known_share(matrix: ScoreMatrix, rows: IntArray) -> FloatArray:
    """Return each sample's share of right answers over the checkpoints, shape (n,); NaN with too few scores."""
    values = values_at(matrix, rows)
    scored = ~np.isnan(values)
    counts = scored.sum(axis=0)
    right = (scored & (np.nan_to_num(values) > RIGHT)).sum(axis=0)
    enough = counts >= max(1.0, _MIN_SCORED * rows.size)
    share: FloatArray = np.divide(right, counts, out=np.full(counts.shape, np.nan), where=enough)
    return share


def is_lost(before: FloatArray, after: FloatArray) -> BoolArray:
    """Return which samples were known and no longer are; both arguments are shares of right answers, shape (n,)."""
    with np.errstate(invalid="ignore"):
        lost: BoolArray = (before >= KNOWN - 1e-9) & (after <= UNKNOWN + 1e-9)
    return lost


def flow_between(before: FloatArray, after: FloatArray, window: int) -> Flow:
    """Return how many samples were lost and gained, from shares of right answers in two windows, shape (n,).

    Gains show the effect of chance. If the benchmark has not risen, all gains are churn, and as many lost samples are
    expected by chance. A prior of half a sample prevents that 0 gains in a small benchmark mean a probability of 0.
    If the benchmark has risen, gains are learning, and the simulated share is the upper limit.

    `window` is the number of checkpoints in the shorter one.
    """
    lost, gained = int(is_lost(before, after).sum()), int(is_lost(after, before).sum())
    judged = ~(np.isnan(before) | np.isnan(after))
    by_chance = _HEALTHY_SHARE[min(window, WINDOW)] * int(judged.sum())
    expected = 0.0
    if by_chance:
        expected = (gained + _PRIOR_COUNT) / (1 + _PRIOR_COUNT / by_chance)
        if float(np.mean(after[judged] - before[judged])) > _RISEN:
            expected = min(expected, by_chance)
    return Flow(lost=lost, gained=gained, net_lost=lost - gained, expected_false=expected)


_LEARNED, _FORGOTTEN, _RELEARNED = np.int8(1), np.int8(2), np.int8(3)
_CHANGES = dict(enumerate(SampleEvent, start=1))
"""By the codes above."""
