"""Dips after a restart of the learning rate or another disruption of the training: how long they last. Pure.

The falls of all benchmarks against the checkpoints just before, each in units of its typical change, are added as in
`suite`. A dip begins at one of the first checkpoints after the disruption, and lasts until the last one of a row that
is clearly lower, and some more that may be lower unseen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracker.domain.regression.blocks import BLOCK
from tracker.domain.regression.jitter import MEDIAN_CHI2
from tracker.domain.scores.matrix import FloatArray

FIRST_DIP = 6
"""Checkpoints that the first dip of a run may last: how long the next ones may is what the earlier ones took."""

_LONGEST = 10
"""Checkpoints after which a dip that is not over is none."""

_LOWER = -2.326
"""Quantile of the standard normal distribution for p = .01."""

_UNSEEN = 2
"""Checkpoints in a row within a dip, before its first or after its last clearly lower one, that may not look lower."""

_BENDS = 3


@dataclass(frozen=True, kw_only=True)
class DipWindow:
    """The checkpoints after a disruption, as positions in the run."""

    start: int
    """First checkpoint after it."""
    allowed: int
    """Number of checkpoints within which a dip is expected; 0 if the earlier disruptions had none."""
    lasted: int
    """Number of checkpoints that may be lower, as far as the run shows."""


def windows_of(means: FloatArray, starts: Sequence[int]) -> tuple[DipWindow, ...]:
    """Return one window for each of `starts`, ascending; `means` of K benchmarks at T checkpoints, shape (K, T)."""
    windows: list[DipWindow] = []
    allowed = FIRST_DIP
    for start in starts:
        if windows:
            allowed = max(_UNSEEN, *(window.lasted for window in windows))
        windows.append(DipWindow(start=start, allowed=allowed, lasted=_lasted(means, start)))
    return tuple(windows)


def is_dip_expected(windows: Sequence[DipWindow], at: int) -> bool:
    """Return whether a loss at position `at` may be the dip after the newest disruption."""
    return bool(windows) and at < windows[-1].start + windows[-1].allowed


def earlier_in_dips(windows: Sequence[DipWindow], at: int) -> frozenset[int]:
    """Return the positions before `at` that are in a dip, without the one that is expected there.

    The mean of several checkpoints would show a dip for as long again. A loss that lasts is found by what follows.
    """
    past = windows[:-1] if is_dip_expected(windows, at) else windows
    found = set[int]()
    for window in past:
        found.update(range(window.start, min(window.start + window.lasted, at)))
    return frozenset(found)


def _lasted(means: FloatArray, start: int) -> int:
    before, after = means[:, max(0, start - BLOCK) : start], means[:, start : start + _LONGEST]
    if before.shape[1] < _BENDS:
        return 0
    # A linear trend cancels: an improving run is not noisy.
    typical = np.sqrt(np.median(np.diff(before, n=2) ** 2, axis=1) / MEDIAN_CHI2 / 6)
    moving = typical > 0
    if not moving.any():
        return 0
    falls = (after[moving] - before[moving].mean(axis=1, keepdims=True)) / typical[moving, np.newaxis]
    spread = math.sqrt(int(moving.sum()) * (1 + 1 / before.shape[1]))
    lasted = 0
    for position in np.flatnonzero(falls.sum(axis=0) / spread < _LOWER).tolist():
        if position > lasted + _UNSEEN:
            break  # another fall, which the disruption does not explain
        lasted = position + 1
    if lasted >= _LONGEST:
        return FIRST_DIP
    return lasted + _UNSEEN if lasted else 0
