"""Verdicts on a page: evidence for the newest ones, findings besides the scores, incidents. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dashboards.data.run import Conclusions
from dashboards.views.evidence import EvidenceView, NoiseView, ProofView, onset_text, proofs_of
from tracker.domain.alerts.rules import reason_without_alert
from tracker.domain.log.events import RunEvent, event_text
from tracker.domain.overview.run import URGENCY, Overview
from tracker.domain.records.alerts import subject_text
from tracker.domain.records.display import change_interval_text, count_text, one_line, signed_text
from tracker.domain.records.loss_text import end_text, loss_subject, loss_text
from tracker.domain.records.losses import Acceptance, Closing, Incident, Measure
from tracker.domain.records.reason_text import reason_text
from tracker.domain.records.types import WORSE, Verdict, VerdictWord
from tracker.domain.scores.series_changes import series_numbers
from tracker.domain.scores.suspicion import word_of_loss


@dataclass(frozen=True, kw_only=True)
class FindingRow:
    """The newest finding on a subset, or on the answers of a benchmark, which the score alone does not show."""

    step: int
    times: str
    """Number of checkpoints at which it was found, as text."""
    subject: str
    word: VerdictWord
    onset: str
    reason: str
    proof: ProofView | None
    """The comparison that decided the verdict."""


@dataclass(frozen=True, kw_only=True)
class LossRow:
    """One incident, or a score level accepted without one."""

    subject: str
    word: VerdictWord | None
    """None: a level accepted without an incident."""
    onset: int
    opened: int | None
    """Step of the checkpoint that raised the alarm; None: a level accepted without an incident."""
    lasts: bool
    ended: str
    took: str = ""
    """What it took, in plain numbers; empty for a level accepted without an incident."""


@dataclass(frozen=True, kw_only=True)
class ConclusionsView:
    """Findings, incidents, evidence and noise, as on both pages."""

    findings: tuple[FindingRow, ...]
    incidents: tuple[LossRow, ...]
    evidence: tuple[EvidenceView, ...]
    noise: tuple[NoiseView, ...]
    log: tuple[tuple[str, str, str, str], ...] = ()
    """Time, step, kind and sentence of events, newest first."""


def log_rows(events: Sequence[RunEvent]) -> tuple[tuple[str, str, str, str], ...]:
    """Return time, step, kind and sentence of events, newest first."""
    rows = []
    for one in reversed(events):
        rows.append((f"{one.at:%Y-%m-%d %H:%M:%S}", str(one.step or ""), str(one.kind), event_text(one)))
    return tuple(rows)


def finding_rows(view: Overview, incidents: Iterable[Incident] = ()) -> tuple[FindingRow, ...]:
    """Return the newest finding on each subject: highest step first, then most urgent first.

    One of `incidents` that is over says so, also where no later checkpoint has a finding on its subject.
    """
    over = {}
    for one in incidents:
        if one.closed_step is not None:
            over[one.benchmark, one.subset, one.measure, one.onset_step] = one
    by_subject: dict[str, list[tuple[int, Verdict]]] = {}
    for step, found in view.findings:
        name = one_line(subject_text(found.benchmark, found.subset, found.measure))
        by_subject.setdefault(name, []).append((step, found))
    ranked = sorted(by_subject.items(), key=lambda item: _rank(*item[1][-1]))
    return tuple(_finding(name, found, over) for name, found in ranked)


def loss_rows(known: Conclusions) -> tuple[LossRow, ...]:
    """Return every incident and every accepted level of a run, open incidents first."""
    by_place: dict[tuple[str, int | None], Acceptance] = {(a.benchmark, a.step): a for a in known.acceptances}
    series = series_numbers(known.changes)
    rows: list[LossRow] = []
    covered = set()
    for incident in known.incidents:
        place = incident.benchmark, incident.closed_step
        status = _status(incident, by_place.get(place), reason_without_alert(incident, known.alerts))
        rows.append(_loss(incident, one_line(loss_subject(incident, series)), status))
        if incident.closed_by is Closing.ACCEPTED:
            covered.add(place)
    rows += [_level(accepted) for place, accepted in by_place.items() if place not in covered]
    return tuple(sorted(rows, key=lambda row: (not row.lasts, -row.onset, row.subject)))


def _rank(step: int, verdict: Verdict) -> tuple[int, int]:
    return -step, URGENCY.index(verdict.word)


def _finding(
    name: str, found: list[tuple[int, Verdict]], over: Mapping[tuple[str, str, Measure, int], Incident]
) -> FindingRow:
    step, verdict = found[-1]
    onset, lost_since = onset_text(verdict), verdict.lost_since
    ended = None
    if lost_since is not None:
        ended = over.get((verdict.benchmark, verdict.subset, verdict.measure, lost_since))
    if ended is not None and verdict.word in WORSE:
        onset = f"{onset}: {end_text(ended)}"
    return FindingRow(
        step=step,
        times=f"at {count_text(len(dict(found)), 'checkpoint')}",
        subject=name,
        word=verdict.word,
        onset=onset,
        reason=one_line(reason_text(verdict)),
        proof=_proof_of_loss(verdict),
    )


def _proof_of_loss(verdict: Verdict) -> ProofView | None:
    """Return the comparison that decided a verdict, with the change of the loss that is open."""
    proof, drop = next(iter(proofs_of(verdict)), None), verdict.open_drop
    if proof is None or drop is None:
        return proof
    return replace(proof, delta=signed_text(drop.delta), interval=change_interval_text(drop.ci_low, drop.ci_high))


def _loss(incident: Incident, subject: str, status: str) -> LossRow:
    return LossRow(
        subject=subject,
        word=word_of_loss(incident),
        onset=incident.onset_step,
        opened=incident.opened_step,
        lasts=incident.closed_step is None,
        took=one_line(loss_text(incident)),
        ended=status,
    )


def _status(incident: Incident, acceptance: Acceptance | None, unalerted: str) -> str:
    """Return how a loss ended, or that it is open and why it has no alert."""
    if unalerted:
        return f"{end_text(incident)} ({unalerted})"
    if incident.closed_by is Closing.ACCEPTED and acceptance is not None:
        return _accepted(acceptance)
    return end_text(incident)


def _level(acceptance: Acceptance) -> LossRow:
    return LossRow(
        subject=one_line(acceptance.benchmark),
        word=None,
        onset=acceptance.from_step,
        opened=None,
        lasts=False,
        ended=_accepted(acceptance),
    )


def _accepted(acceptance: Acceptance) -> str:
    day, reason = f"{acceptance.accepted_at:%Y-%m-%d}", one_line(acceptance.reason)
    return f"score level at step {acceptance.step} accepted on {day}: {reason}"
