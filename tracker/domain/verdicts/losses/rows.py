"""The checkpoints of a loss: those before it, those that show it, and the newest ones. Pure."""

from collections.abc import Sequence

import numpy as np

from tracker.domain.records.losses import Drop, Incident
from tracker.domain.records.types import Baseline
from tracker.domain.regression.blocks import BLOCK
from tracker.domain.regression.detector import Evidence
from tracker.domain.scores.matrix import IntArray
from tracker.domain.verdicts.hypothesis import Hypothesis, strongest_of

_NEAR, SHOWN = 0.25, 0.5
"""A single checkpoint stands for the baseline of a loss if it is at most this share of the loss below it, and for the
newest ones if it shows this share of their loss, or gain."""


def baseline_rows(hypothesis: Hypothesis, incident: Incident, found: Sequence[Evidence] = ()) -> IntArray:
    """Return the rows of the checkpoints that a loss is compared with, as in `Drop.baseline_steps`.

    `found` are the tests that show a new loss. A checkpoint before the onset that is evaluated later replaces those of
    a known one if its level is near theirs.
    """
    rows = hypothesis.track.rows
    before = rows[[hypothesis.steps[row] < incident.onset_step for row in rows]]
    base = _tested_rows(hypothesis, incident, found, before)
    if incident.drop is not None and (incident.drop.is_pinned or not base.size):
        return base
    if not base.size or _is_near(hypothesis, incident, before, base):
        return before[-1:]
    return base


def _tested_rows(hypothesis: Hypothesis, incident: Incident, found: Sequence[Evidence], before: IntArray) -> IntArray:
    """Return the rows that the loss is known to be compared with, or that the tests of a new one compare it with."""
    if incident.drop is not None:
        return _rows_of(hypothesis, incident.drop)
    if not found:
        return before[-1:]
    tested = strongest_of(found).blocks
    return tested.base if tested.baseline is Baseline.PINNED else np.intersect1d(tested.base, before)


def _is_near(hypothesis: Hypothesis, incident: Incident, before: IntArray, base: IntArray) -> bool:
    """Return whether the last checkpoint before a loss is near its baseline, by what was lost at its alarm."""
    means = hypothesis.track.scores.means
    lost = [row for row in lost_rows(hypothesis, incident) if hypothesis.steps[row] <= incident.opened_step]
    if not before.size or not lost:
        return False
    level = means[base].mean()
    return bool(means[before[-1]] >= level - (level - means[lost].mean()) * _NEAR)


def _rows_of(hypothesis: Hypothesis, drop: Drop) -> IntArray:
    rows, pinned = hypothesis.track.rows.tolist(), hypothesis.track.pinned_row
    if drop.is_pinned:
        rows = [] if pinned is None else [pinned]
    return np.array([row for row in rows if hypothesis.steps[row] in drop.baseline_steps], dtype=np.int64)


def newest_rows(hypothesis: Hypothesis, incident: Incident, baseline: IntArray) -> IntArray:
    """Return the rows of the newest checkpoints of a loss, as in `Drop.newest_steps`."""
    means, lost = hypothesis.track.scores.means, lost_rows(hypothesis, incident)[-BLOCK:]
    if not lost.size:
        return lost
    before = means[baseline].mean()
    if before - means[lost[-1]] >= (before - means[lost].mean()) * SHOWN:
        return lost[-1:]
    return lost


def lost_rows(hypothesis: Hypothesis, incident: Incident) -> IntArray:
    """Return the rows of a loss: from its onset to the candidate, or to its last step if it recovered."""
    rows, last_step = hypothesis.track.rows, incident.last_step or hypothesis.step
    return rows[[incident.onset_step <= hypothesis.steps[row] <= last_step for row in rows]]
