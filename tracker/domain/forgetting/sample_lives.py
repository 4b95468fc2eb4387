"""What became of every sample along a run: learned, forgotten, relearned, lost. Pure.

    events = step_events(event_matrix(lives_of(matrix, rows)), steps)
    flow = flow_between(known_share(matrix, before), known_share(matrix, after), window=5)    # lost, gained, by chance

Single changes are no findings: on a plateau of 100 healthy checkpoints half of all samples are forgotten and relearned.
`lost` asks for several checkpoints on either side, and even so lists about 3 samples of 1000 that chance put there.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from tracker.domain.scores.matrix import NO_VALUE, RIGHT, FloatArray, IntArray, ScoreMatrix, values_at

BoolArray = NDArray[np.bool_]

WINDOW = 5
"""Checkpoints on either side of a loss; less in a short run."""
KNOWN = 0.8
"""Smallest share of right answers of what is known ..."""
UNKNOWN = 0.2
"""... and the largest of what is not."""
_MIN_WINDOW = 2
_MIN_SCORED = 0.5
"""Of a window's checkpoints; a sample with fewer scores is not judged."""

_HEALTHY_SHARE = {2: 0.008, 3: 0.0015, 4: 0.0004, 5: 0.003}
"""By window: samples of a healthy simulated plateau that are listed as lost between neighbouring windows. Four
checkpoints must all be alike, of five one may differ."""
_RISEN = 0.02
"""Mean rise above which gains are learning and no churn."""
_PRIOR_COUNT = 0.5
"""Samples that `_HEALTHY_SHARE` is worth beside those that the run itself shows."""


class SampleEvent(StrEnum):
    """What happened to a sample at a checkpoint."""

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
    """How many samples changed at a checkpoint."""

    step: int
    learned: int
    forgotten: int
    relearned: int


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Two stretches of checkpoints, as rows."""

    before: IntArray
    after: IntArray


@dataclass(frozen=True, kw_only=True)
class Flow:
    """How many samples went over from known to unknown between two windows, and back."""

    lost: int
    gained: int
    net_lost: int
    """lost - gained: 0 in a healthy run."""
    expected_false: float
    """Of the lost, how many chance alone would list."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Lives:
    """Right or wrong, T checkpoints x n samples."""

    right: BoolArray
    """Shape (T, n)."""
    scored: BoolArray
    """Shape (T, n): False where a sample has no score; it is then neither right nor wrong."""


def lives_of(matrix: ScoreMatrix, rows: IntArray) -> Lives:
    """Return the lives of all samples over some checkpoints."""
    right = matrix.palette > RIGHT
    right[NO_VALUE] = False
    codes = matrix.codes[rows]
    return Lives(right=right[codes], scored=codes != NO_VALUE)


def event_matrix(lives: Lives) -> NDArray[np.int8]:
    """Return what happened where, shape (T, n): 0 nothing, 1 learned, 2 forgotten, 3 relearned.

    A checkpoint without a score is passed over. A sample that is right from the start was learned at its first score.
    """
    changes = np.zeros(lives.right.shape, dtype=np.int8)
    was_right, ever_right = (np.zeros(lives.right.shape[1], dtype=bool) for _ in range(2))
    for at in range(len(changes)):
        right, scored = lives.right[at], lives.scored[at]
        turned = right & ~was_right
        # A truth value times a code, at most one of them not 0: faster than to write where a mask says.
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
    """Return what happened to one sample; `changes` of shape (T,)."""
    return tuple(Event(step=s, change=_CHANGES[c]) for s, c in zip(steps, changes.tolist(), strict=True) if c)


def windows_around(rows: IntArray, before: IntArray, width: int) -> Windows | None:
    """Return the last of `before` and the newest of `rows` after them; None where either is a single checkpoint.

    Args:
        rows: all checkpoints that count, ordered by step.
        before: those of them at which it was known, ordered by step.
        width: the blocks' own (`regression.blocks.peak_width`).
    """
    size = min(WINDOW, width)
    found = Windows(before=before[-size:], after=rows[rows > before[-1]][-size:])
    if min(found.before.size, found.after.size) >= _MIN_WINDOW:
        return found
    return None


def known_share(matrix: ScoreMatrix, rows: IntArray) -> FloatArray:
    """Return the share of right answers of every sample over some checkpoints, shape (n,); NaN: too few scores."""
    values = values_at(matrix, rows)
    scored = ~np.isnan(values)
    counts = scored.sum(axis=0)
    right = (scored & (np.nan_to_num(values) > RIGHT)).sum(axis=0)
    enough = counts >= max(1.0, _MIN_SCORED * rows.size)
    share: FloatArray = np.divide(right, counts, out=np.full(counts.shape, np.nan), where=enough)
    return share


def is_lost(before: FloatArray, after: FloatArray) -> BoolArray:
    """Return which samples were known and are not any more; both are shares of right answers, shape (n,)."""
    with np.errstate(invalid="ignore"):
        lost: BoolArray = (before >= KNOWN - 1e-9) & (after <= UNKNOWN + 1e-9)
    return lost


def flow_between(before: FloatArray, after: FloatArray, window: int) -> Flow:
    """Return how many samples were lost and gained; both are shares of right answers, shape (n,).

    The mirror image tells what chance does: where the benchmark has not risen, whatever was gained is churn, and as
    much churn is expected among the lost (half a sample of prior knowledge keeps a small benchmark's 0 from meaning
    never). Where it has risen, gains are learning, and the simulated share is the upper limit.

    Args:
        before: shares in the window before.
        after: shares in the window after.
        window: checkpoints of the shorter window.
    """
    lost, gained = int(is_lost(before, after).sum()), int(is_lost(after, before).sum())
    judged = ~(np.isnan(before) | np.isnan(after))
    by_chance = _HEALTHY_SHARE[window] * int(judged.sum())
    expected = 0.0
    if by_chance:
        expected = (gained + _PRIOR_COUNT) / (1 + _PRIOR_COUNT / by_chance)
        if float(np.mean(after[judged] - before[judged])) > _RISEN:
            expected = min(expected, by_chance)
    return Flow(lost=lost, gained=gained, net_lost=lost - gained, expected_false=expected)


# --- private

_LEARNED, _FORGOTTEN, _RELEARNED = np.int8(1), np.int8(2), np.int8(3)
_CHANGES = {
    int(_LEARNED): SampleEvent.LEARNED,
    int(_FORGOTTEN): SampleEvent.FORGOTTEN,
    int(_RELEARNED): SampleEvent.RELEARNED,
}
