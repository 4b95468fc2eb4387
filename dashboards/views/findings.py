"""What a score alone does not show: losses of single subsets, answers that get longer or are cut off. Pure.

rows = finding_rows(view)             # one for each subject, the newest first
"""

from __future__ import annotations

from dataclasses import dataclass

from dashboards.views.evidence import ProofView, onset_text, proofs_of
from dashboards.views.tables import Badge, badge
from tracker.domain.overview.run import URGENCY, Overview
from tracker.domain.records.display import count_text, one_line, subject_text
from tracker.domain.records.types import Verdict


@dataclass(frozen=True, kw_only=True)
class FindingRow:
    """The newest finding on one subset, or on the answers of one benchmark."""

    step: int
    times: str
    """At how many checkpoints it was found."""
    subject: str
    badge: Badge
    onset: str
    reason: str
    proof: ProofView | None
    """The comparison that decided."""


def finding_rows(view: Overview) -> tuple[FindingRow, ...]:
    """Return the newest finding on each subject: highest step first, then most urgent first."""
    by_subject: dict[str, list[tuple[int, Verdict]]] = {}
    for step, found in view.findings:
        name = one_line(subject_text(found.benchmark, found.subset, found.measure))
        by_subject.setdefault(name, []).append((step, found))
    ranked = sorted(by_subject.items(), key=lambda item: _rank(*item[1][-1]))
    return tuple(_row(name, found) for name, found in ranked)


# --- private


def _rank(step: int, verdict: Verdict) -> tuple[int, int]:
    return -step, URGENCY.index(verdict.word)


def _row(name: str, found: list[tuple[int, Verdict]]) -> FindingRow:
    step, verdict = found[-1]
    return FindingRow(
        step=step,
        times=f"at {count_text(len({step for step, _ in found}), 'checkpoint')}",
        subject=name,
        badge=badge(verdict.word),
        onset=onset_text(verdict),
        reason=one_line(verdict.reason),
        proof=next(iter(proofs_of(verdict)), None),
    )
