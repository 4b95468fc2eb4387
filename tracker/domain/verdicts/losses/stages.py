"""Stages of a loss: where it begins, whether it lasts, when it counts as forgotten, and when it is over. Pure."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tracker.domain.records.losses import Closing, Incident
from tracker.domain.records.types import Baseline
from tracker.domain.regression.blocks import BLOCK, Blocks
from tracker.domain.regression.detector import Evidence, evidence_on, return_test
from tracker.domain.scores.matrix import IntArray
from tracker.domain.scores.suspicion import looks_changed
from tracker.domain.verdicts.hypothesis import Hypothesis, against_peak, losses, strongest_of
from tracker.domain.verdicts.losses.rows import SHOWN, baseline_rows, lost_rows

FORGOTTEN_AFTER = 3
"""Number of checkpoints in a row, including the candidate, that must be below the peak."""

RECOVERED_AFTER = 2
RECOVERED_P = 0.05

_FORGOTTEN_POOLED = 4
_RECOVERY_POOLED = (1, 2)
_RISEN_P = 0.001
_RISEN_POOLED = (2, 4, 8)


def is_forgotten(hypothesis: Hypothesis, onset_step: int, back: int = 0) -> bool:
    """Return whether the subject is below its peak at the candidate and at the two checkpoints before it.

    All three are of the loss that began at `onset_step`. The mean of the newest four checkpoints must be below it too.
    `back` shifts all to that many checkpoints before.
    """
    newest = _below_peak(hypothesis, back)
    if not any(e.m == _FORGOTTEN_POOLED for e in newest):
        return False
    rows = hypothesis.track.before(back).rows
    if rows.size < FORGOTTEN_AFTER or hypothesis.steps[int(rows[-FORGOTTEN_AFTER])] < onset_step:
        return False
    return all(_below_peak(hypothesis, back + more) for more in range(1, FORGOTTEN_AFTER))


def lasting(hypothesis: Hypothesis, evidence: Sequence[Evidence]) -> tuple[Evidence, ...]:
    """Return the tests without those whose loss or gain the candidate ends.

    It ends a loss if it is back at the baseline, and a gain if it shows less than half of it.
    """
    kept = []
    for e in evidence:
        is_over = False
        if e.m > 1 and e.is_loss(hypothesis.thresholds.min_effect):
            is_over = _is_at_baseline(hypothesis, e.blocks.new[-1], e.blocks.base, e.blocks.new[:-1])
        elif e.m > 1 and looks_changed(e.p_better, e.test.delta, hypothesis.thresholds.min_effect):
            is_over = not _shows_gain(hypothesis, e.blocks)
        if not is_over:
            kept.append(e)
    return tuple(kept)


def _shows_gain(hypothesis: Hypothesis, blocks: Blocks) -> bool:
    means = hypothesis.track.scores.means
    before, now = means[blocks.base].mean(), means[blocks.new].mean()
    return bool(means[blocks.new[-1]] >= before + (now - before) * SHOWN)


def checkpoints_back(hypothesis: Hypothesis, incident: Incident) -> int:
    """Return how many of the newest checkpoints, after the alarm, show that a loss is over; 0: none.

    Two that no longer show the loss, and are back: above the checkpoints of the loss, and nearer to those before it,
    both beyond chance. That they do not show a small loss is not enough: it may have taken eight pooled ones to find
    it. One is enough if it is at the baseline or above.
    """
    if _are_back(hypothesis, incident) and _has_risen(hypothesis, incident):
        return RECOVERED_AFTER
    lost, before = lost_rows(hypothesis, incident)[:-1], baseline_rows(hypothesis, incident)
    if lost.size and before.size and _is_at_baseline(hypothesis, hypothesis.track.rows[-1], before, lost):
        return 1
    return 0


def _are_back(hypothesis: Hypothesis, incident: Incident) -> bool:
    after = sum(hypothesis.steps[row] > incident.opened_step for row in hypothesis.track.rows)
    if after < RECOVERED_AFTER:
        return False
    return all(_is_back(hypothesis, incident, back) for back in range(RECOVERED_AFTER))


def opened(hypothesis: Hypothesis, run_id: str, found: Sequence[Evidence]) -> Incident:
    """Return the incident that the losses in `found` open."""
    subject = hypothesis.subject
    return Incident(
        run_id=run_id,
        suite=subject.suite,
        benchmark=subject.benchmark,
        subset=subject.subset,
        measure=subject.measure,
        opened_step=hypothesis.step,
        onset_step=hypothesis.steps[_onset(hypothesis, found)],
        opened_digest=hypothesis.digest,
    )


def recovered(hypothesis: Hypothesis, incident: Incident, back: int) -> Incident:
    """Return the incident, ended by the newest `back` checkpoints: TRANSIENT if only one checkpoint showed the loss."""
    lost = lost_rows(hypothesis, incident)[:-back]
    return replace(
        incident,
        closed_step=hypothesis.step,
        closed_by=Closing.TRANSIENT if lost.size == 1 else Closing.RECOVERED,
        last_step=hypothesis.steps[int(lost[-1])],
        closed_digest=hypothesis.digest,
    )


def explained(hypothesis: Hypothesis, incident: Incident) -> Incident:
    """Return the incident, ended at the candidate: the score improved, so its level is the new normal."""
    return replace(incident, closed_step=hypothesis.step, closed_by=Closing.EXPLAINED, closed_digest=hypothesis.digest)


def _onset(hypothesis: Hypothesis, found: Sequence[Evidence]) -> int:
    """Return the row of the oldest checkpoint of the new block with the strongest loss.

    Or of an older one, if it and all since are nearer to the lost level than to the highest baseline. A checkpoint at
    that baseline ends what was lost before it: the loss begins after it.
    """
    means, rows = hypothesis.track.scores.means, hypothesis.track.rows
    new = strongest_of(found).blocks.new
    highest = max((e.blocks.base for e in found), key=lambda base: float(means[base].mean()))
    before = float(means[highest].mean())
    halfway = (before + float(means[new].mean())) / 2
    at = rows.size - new.size
    while at > 0 and means[rows[at - 1]] < halfway:
        at -= 1
    for place in range(at, rows.size - 1):
        if _is_at_baseline(hypothesis, rows[place], highest, rows[at:place]):
            at = place + 1
    return int(rows[at])


def _is_at_baseline(hypothesis: Hypothesis, row: int, baseline: IntArray, lost: IntArray) -> bool:
    """Return whether a checkpoint is at the baseline or above, and beyond chance above the lost ones before it."""
    means = hypothesis.track.scores.means
    if means[row] < means[baseline].mean():
        return False
    if not lost.size:
        return True
    blocks = Blocks(baseline=Baseline.RECENT, new=np.array([row]), base=lost[-BLOCK:])
    (alone,) = evidence_on(hypothesis.track, (blocks,), hypothesis.jitter, hypothesis.level)
    return bool(alone.p_better < _RISEN_P)


def _below_peak(hypothesis: Hypothesis, back: int) -> tuple[Evidence, ...]:
    return against_peak(losses(hypothesis.evidence(back), hypothesis.thresholds))


def _is_back(hypothesis: Hypothesis, incident: Incident, back: int) -> bool:
    """Return whether the checkpoint is not clearly below any baseline that showed the loss."""
    evidence, steps = hypothesis.evidence(back), hypothesis.steps
    peak = [e for e in against_peak(evidence) if steps[int(e.blocks.base[-1])] < incident.onset_step]
    pinned = [e for e in evidence if e.blocks.baseline is Baseline.PINNED]
    groups = [g for g in (peak or _against_before(hypothesis, incident, back), pinned) if g]
    return bool(groups) and all(map(_is_unseen, groups))


def _is_unseen(tests: Sequence[Evidence]) -> bool:
    """Return whether one of the tests of the newest one or two checkpoints no longer shows the loss."""
    return any(e.p_worse > RECOVERED_P for e in tests if e.m in _RECOVERY_POOLED)


def _has_risen(hypothesis: Hypothesis, incident: Incident) -> bool:
    """Return whether the newest checkpoints are above those of the loss, and nearer to those before it."""
    rows, steps, lost = hypothesis.track.rows, hypothesis.steps, lost_rows(hypothesis, incident)
    chosen = [
        Blocks(baseline=Baseline.RECENT, new=rows[-m:], base=lost[:-m][:BLOCK])
        for m in _RISEN_POOLED
        if m < lost.size and steps[int(rows[-m])] > incident.opened_step
    ]
    tests = evidence_on(hypothesis.track, chosen, hypothesis.jitter, hypothesis.level)
    return any(e.p_better < _RISEN_P and _is_nearer(hypothesis, incident, e.blocks) for e in tests)


def _is_nearer(hypothesis: Hypothesis, incident: Incident, blocks: Blocks) -> bool:
    """Return whether new checkpoints are nearer to the level before the loss than to the lost one, beyond chance."""
    track = hypothesis.track
    before = np.array([row for row in track.rows if hypothesis.steps[row] < incident.onset_step], dtype=np.int64)
    if not before.size:
        return True  # only the pinned model shows the loss
    test = return_test(track.scores, blocks.new, before[-BLOCK:], blocks.base, hypothesis.jitter)
    return test.p_better() < RECOVERED_P


def _against_before(hypothesis: Hypothesis, incident: Incident, back: int) -> tuple[Evidence, ...]:
    """Return tests against checkpoints before the loss, if there is no peak before it: recent ones include the loss."""
    track = hypothesis.track.before(back)
    earlier = np.array([row for row in track.rows if hypothesis.steps[row] < incident.onset_step], dtype=np.int64)
    base = earlier[-BLOCK:]
    chosen = [Blocks(baseline=Baseline.RECENT, new=track.rows[-m:], base=base) for m in _RECOVERY_POOLED]
    return evidence_on(track, chosen if base.size else (), hypothesis.jitter, hypothesis.level)
