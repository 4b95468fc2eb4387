"""What the demo expects the tracker to find, held against what it found. Pure.

findings = check(reports)          # the `reports` of `tracker history --json`
all(f.as_expected for f in findings)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

EXPECTED: Mapping[str, str] = {"facts": "forgotten", "sums": "forgotten", "reversal": "improved"}
"""Verdict that each skill should get, once at least, after training went over to reversal."""
PHASE_2_FROM_STEP = 600

Report = Mapping[str, Any]
"""One report as JSON: `step` and `verdicts`, each with `benchmark`, `word` and `score`."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One skill: what was expected and what the tracker said."""

    skill: str
    expected: str
    flagged_at: tuple[int, ...]
    """Steps of phase 2 at which the expected verdict was given."""
    scores: tuple[tuple[int, float], ...]
    """(step, score) wherever there is one, ascending."""

    @property
    def as_expected(self) -> bool:
        """Whether the expected verdict was given at all."""
        return bool(self.flagged_at)

    def sentence(self) -> str:
        """Say it in one line."""
        if not self.scores:
            return f"{self.skill}: expected {self.expected}, but it has no score"
        (best_step, best), (last_step, last) = self._best_before_phase_2(), self.scores[-1]
        moved = f"{best:.2f} at step {best_step}, {last:.2f} at step {last_step}"
        if not self.as_expected:
            return f"{self.skill}: expected {self.expected}, but it was NOT reported ({moved})"
        return f"{self.skill}: {moved}; first reported as {self.expected} at step {self.flagged_at[0]}"

    def _best_before_phase_2(self) -> tuple[int, float]:
        first_phase = [point for point in self.scores if point[0] <= PHASE_2_FROM_STEP]
        return max(first_phase or self.scores[:1], key=lambda point: (point[1], point[0]))


def check(reports: Sequence[Report]) -> tuple[Finding, ...]:
    """Return one finding for each skill of the demo."""
    return tuple(_finding(skill, word, reports) for skill, word in EXPECTED.items())


# --- private


def _finding(skill: str, expected: str, reports: Sequence[Report]) -> Finding:
    verdicts = sorted(
        ((report["step"], verdict) for report in reports for verdict in report["verdicts"]),
        key=lambda pair: pair[0],
    )
    own = [(step, verdict) for step, verdict in verdicts if verdict["benchmark"] == skill]
    return Finding(
        skill=skill,
        expected=expected,
        flagged_at=tuple(s for s, verdict in own if verdict["word"] == expected and s > PHASE_2_FROM_STEP),
        scores=tuple((s, verdict["score"]) for s, verdict in own if verdict["score"] is not None),
    )
