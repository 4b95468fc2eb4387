"""Incidents: when a loss opens one, when it counts as forgotten, when it ends. Pure.

One loss is one incident: notifications are sent when it opens and when it ends, not at every checkpoint in between.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tracker.domain.records.types import Acceptance, Baseline, Closing, Incident
from tracker.domain.regression.blocks import BLOCK, Blocks
from tracker.domain.regression.detector import Evidence, evidence_on, return_test
from tracker.domain.verdicts.hypothesis import Hypothesis, Subject, against_peak, losses, strongest_of

FORGOTTEN_AFTER = 3
"""Number of checkpoints in a row, including the candidate, that must be below the peak."""

RECOVERED_AFTER = 2
RECOVERED_P = 0.05

_FORGOTTEN_POOLED = 4
_RECOVERY_POOLED = (1, 2)
_RISEN_P = 0.001
_RISEN_POOLED = (2, 4, 8)


def incidents_at(incidents: Sequence[Incident], subject: Subject, step: int) -> tuple[Incident, ...]:
    """Return the incidents of `subject` as of just before the verdicts on `step`.

    Verdicts that are computed again or late use the same incidents. A level that was accepted at `step` counts from
    there on, so the incident that it covers is over.
    """
    before = [e for e in incidents if subject_of(e) == subject and e.opened_step < step]
    return tuple(e if _is_over(e, step) else reopened(e) for e in before)


def open_of(known: Sequence[Incident], steps: Sequence[int]) -> Incident | None:
    """Return the open incident of those that checkpoints at `steps` opened, or None.

    An incident of a series with other settings does not apply to this one, which could never end it.
    """
    return next((e for e in reversed(known) if e.closed_step is None and e.opened_step in steps), None)


def is_of_series(incident: Incident, series: Mapping[str, str]) -> bool:
    """Return whether an incident is of results with the settings in `series`, by benchmark."""
    names = incident.benchmarks or (incident.benchmark,)
    return all(series.get(name, own) == own for name, own in zip(names, incident.series, strict=False))


def counting(steps: Sequence[int], known: Sequence[Incident], acceptances: Sequence[Acceptance]) -> tuple[bool, ...]:
    """Return for each of `steps`, the last of which is the candidate, whether it counts in tests.

    The checkpoints of a recovered loss do not count, nor do those before an accepted level.
    """
    *earlier, candidate = steps
    start = max((a.from_step for a in acceptances if a.step <= candidate), default=steps[0])
    over = [e for e in known if e.last_step is not None]
    if not over and start == steps[0]:
        return (True,) * len(steps)
    return (*(step >= start and not _was_lost(over, step) for step in earlier), True)


def is_forgotten(hypothesis: Hypothesis, back: int = 0) -> bool:
    """Return whether the subject is below its peak at the candidate and at the two checkpoints before it.

    The mean of the newest four checkpoints must be below it too. `back` shifts all to that many checkpoints before.
    """
    newest = _below_peak(hypothesis, back)
    if not any(e.m == _FORGOTTEN_POOLED for e in newest):
        return False
    return all(_below_peak(hypothesis, back + more) for more in range(1, FORGOTTEN_AFTER))


def is_recovered(hypothesis: Hypothesis, incident: Incident) -> bool:
    """Return whether the two newest checkpoints, both after the alarm, no longer show the loss, and are back.

    One or two checkpoints without a small loss are no recovery: it may have taken eight pooled ones to find it. Back is
    above the checkpoints of the loss, and nearer to those before it, both beyond chance.
    """
    after = sum(hypothesis.steps[row] > incident.opened_step for row in hypothesis.track.rows)
    if after < RECOVERED_AFTER or not all(_is_back(hypothesis, incident, back) for back in range(RECOVERED_AFTER)):
        return False
    return _has_risen(hypothesis, incident)


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


def recovered(hypothesis: Hypothesis, incident: Incident) -> Incident:
    """Return the incident, ended at the candidate: it and the checkpoint before it have recovered."""
    rows = hypothesis.track.rows
    return replace(
        incident,
        closed_step=hypothesis.step,
        closed_by=Closing.RECOVERED,
        last_step=hypothesis.steps[int(rows[rows.size - RECOVERED_AFTER - 1])],
        closed_digest=hypothesis.digest,
    )


def reopened(incident: Incident) -> Incident:
    """Return the incident as if it had not ended."""
    return replace(incident, closed_step=None, closed_by=None, last_step=None, closed_digest="")


def is_covered(incident: Incident, acceptance: Acceptance, known: Iterable[Acceptance]) -> bool:
    """Return whether an acceptance ends an incident; one of all benchmarks together with the last of those that fell.

    `known` are all acceptances of the run. Only those of results with the settings of the incident count.
    """
    fell = set(incident.benchmarks) or {incident.benchmark}
    own = [a for a in (*known, acceptance) if a.step >= incident.opened_step and _has_settings(incident, a)]
    if acceptance not in own or acceptance.benchmark not in fell or not fell <= {a.benchmark for a in own}:
        return False
    if incident.closed_step is None:
        return True
    return (incident.closed_step, incident.closed_by) == (acceptance.step, Closing.ACCEPTED)


def _has_settings(incident: Incident, acceptance: Acceptance) -> bool:
    return not acceptance.series or is_of_series(incident, {acceptance.benchmark: acceptance.series})


def accepted(incident: Incident, step: int) -> Incident:
    """Return the incident, ended by an acceptance at `step`."""
    return replace(incident, closed_step=step, closed_by=Closing.ACCEPTED)


def subject_of(incident: Incident) -> Subject:
    """Return the subject of the incident."""
    return Subject(suite=incident.suite, benchmark=incident.benchmark, subset=incident.subset, measure=incident.measure)


def _onset(hypothesis: Hypothesis, found: Sequence[Evidence]) -> int:
    """Return the row of the oldest checkpoint of the new block with the strongest loss.

    Or of an older one, if it and all since are nearer to the lost level than to the highest baseline.
    """
    means, rows = hypothesis.track.scores.means, hypothesis.track.rows
    new = strongest_of(found).blocks.new
    before = max(float(means[e.blocks.base].mean()) for e in found)
    halfway = (before + float(means[new].mean())) / 2
    at = rows.size - new.size
    while at > 0 and means[rows[at - 1]] < halfway:
        at -= 1
    return int(rows[at])


def _is_over(incident: Incident, step: int) -> bool:
    if incident.closed_step is None:
        return False
    return incident.closed_step < step or (incident.closed_step == step and incident.closed_by is Closing.ACCEPTED)


def _was_lost(known: Iterable[Incident], step: int) -> bool:
    return any(e.last_step is not None and e.onset_step <= step <= e.last_step for e in known)


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
    rows, steps = hypothesis.track.rows, hypothesis.steps
    lost = np.array([row for row in rows if steps[row] >= incident.onset_step], dtype=np.int64)
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
