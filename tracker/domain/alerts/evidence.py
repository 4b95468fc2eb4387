"""The evidence of an alert, and the command that shows more, derived from losses and verdicts. Pure."""

import shlex
from collections.abc import Sequence

from tracker.domain.records.alerts import Alert, AlertEvidence, AlertState
from tracker.domain.records.losses import Incident, Measure
from tracker.domain.records.types import LatencyVerdict


def evidence_of_loss(incident: Incident, pending_steps: tuple[int, ...] = ()) -> AlertEvidence:
    """Return the plain numbers of a loss; of all benchmarks together, only since when it lasts."""
    drop, onset_step = incident.drop, incident.onset_step
    if drop is None:
        return AlertEvidence(onset_step=onset_step, pending_steps=pending_steps)
    is_score = incident.measure is Measure.SCORE
    return AlertEvidence(
        score=drop.now if is_score else None,
        change=drop.delta,
        ci_low=drop.ci_low,
        ci_high=drop.ci_high,
        before=drop.before if is_score else None,
        baseline_steps=() if drop.is_pinned else drop.baseline_steps,
        onset_step=onset_step,
        pending_steps=pending_steps,
        n_common=drop.n_common,
        n_lost=drop.n_lost,
        n_gained=drop.n_gained,
    )


def evidence_of_latency(slower: Sequence[LatencyVerdict]) -> AlertEvidence | None:
    """Return the numbers of the verdict with the largest ratio; None if there is none."""
    worst = max(slower, key=lambda v: v.ratio or 0.0, default=None)
    if worst is None:
        return None
    reference = () if worst.reference_step is None else (worst.reference_step,)
    return AlertEvidence(
        change=worst.ratio,
        ci_low=worst.ci_low,
        ci_high=worst.ci_high,
        is_ratio=True,
        baseline_steps=reference,
        n_common=worst.requests,
    )


def corrects(alert: Alert, known: Alert) -> bool:
    """Return whether a firing alert reports another baseline or onset of a loss than one with its fingerprint did."""
    if alert.state is not AlertState.FIRING or alert.evidence is None or known.evidence is None:
        return False
    before, now = known.evidence, alert.evidence
    if before.onset_step is None or now.onset_step is None:
        return False
    return (before.onset_step, before.baseline_steps) != (now.onset_step, now.baseline_steps)


def comparing(incident: Incident) -> str:
    """Return the command that compares a loss with the newest step of its baseline, or that shows the run."""
    drop = incident.drop
    if drop is None or drop.is_pinned:
        return looking(incident.run_id)
    steps = (drop.baseline_steps[-1], drop.newest_steps[-1])
    names = (shlex.quote(f"{incident.run_id}@{step}") for step in steps)
    return f"tracker compare {' '.join(names)}"


def looking(run_id: str) -> str:
    """Return the command that shows a run step by step."""
    return f"tracker history {shlex.quote(run_id)}"
