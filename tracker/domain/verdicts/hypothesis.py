"""A subject at its candidate, its tests, and the rules for regressed, improved, equivalent and suspect. Pure.

The first rule that applies gives the verdict. `records.types.VerdictWord` defines the verdicts.
The rules for `suspect` are in `scores.suspicion`; `decision.decide_screened` decides on screened checkpoints.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tracker.domain.records.losses import Measure
from tracker.domain.records.types import Baseline, Comparison, VerdictWord
from tracker.domain.regression.detector import ErrorBudget, Evidence, Track, evidence_of
from tracker.domain.regression.jitter import Jitter
from tracker.domain.scores.matrix import ScoreMatrix
from tracker.domain.scores.suspicion import looks_changed, part_looks_worse, without_proof

EQUIVALENCE_P = 0.05

EQUIVALENCE_POOLED = 4
"""Number of newest checkpoints whose mean must be shown to be within the margin."""


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Sizes of changes that matter, in score units."""

    min_effect: float
    equivalence_margin: float


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What can regress: a benchmark, one of its subsets, or another measure of its answers."""

    suite: str
    benchmark: str
    subset: str = ""
    measure: Measure = Measure.SCORE


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """A subject at its candidate, with the levels and thresholds of its tests."""

    subject: Subject
    matrix: ScoreMatrix
    track: Track
    """Its rows are rows of `matrix`."""
    steps: tuple[int, ...]
    """Step of every row of `matrix`."""
    jitter: Jitter
    level: ErrorBudget
    thresholds: Thresholds
    digest: str = ""
    """Digest of the candidate's weights."""

    @property
    def step(self) -> int:
        """Step of the candidate."""
        return self.steps[int(self.track.rows[-1])]

    def evidence(self, back: int = 0) -> tuple[Evidence, ...]:
        """Return the tests of the candidate, or of the checkpoint `back` before it without later ones."""
        return evidence_of(self.track.before(back), self.jitter, self.level)


def losses(evidence: Sequence[Evidence], thresholds: Thresholds) -> tuple[Evidence, ...]:
    """Return the tests with a loss that is significant at the run's level and large enough to matter."""
    return tuple(e for e in evidence if e.is_loss(thresholds.min_effect))


def against_peak(evidence: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """Return the tests against the best block of earlier checkpoints."""
    return tuple(e for e in evidence if e.blocks.baseline is Baseline.PEAK)


def gains(evidence: Sequence[Evidence], thresholds: Thresholds) -> tuple[Evidence, ...]:
    """Return the tests with a significant gain, against the peak if there is one.

    Better than the checkpoints just before but still below the peak is no improvement.
    """
    return tuple(e for e in against_peak(evidence) or evidence if e.is_gain(thresholds.min_effect))


def suspects(evidence: Sequence[Evidence], thresholds: Thresholds) -> tuple[Evidence, ...]:
    """Return the tests that look worse, corrected for the number of tests of this checkpoint."""
    smallest, tests = thresholds.min_effect, len(evidence)
    return tuple(e for e in evidence if looks_changed(e.p_worse, -e.test.delta, smallest, tests=tests))


def rises(evidence: Sequence[Evidence], thresholds: Thresholds) -> tuple[Evidence, ...]:
    """Return the tests that look better, the reverse of `suspects`; against the peak if there is one, as `gains`."""
    smallest, tests = thresholds.min_effect, len(evidence)
    chosen = against_peak(evidence) or evidence
    return tuple(e for e in chosen if looks_changed(e.p_better, e.test.delta, smallest, tests=tests))


def strongest_of(found: Sequence[Evidence]) -> Evidence:
    """Return the test with the smallest p, or the largest loss in standard errors if several round to 0."""
    return min(found, key=lambda e: (e.p_worse, e.test.delta / e.test.stderr))


def is_suspicious(evidence: Sequence[Evidence]) -> bool:
    """Return whether any test of a part of the benchmark is reason to evaluate all of it."""
    return any(part_looks_worse(e.p_worse) for e in evidence)


def is_equivalent(evidence: Sequence[Evidence], thresholds: Thresholds) -> bool:
    """Return whether the true change is shown to be within the margin, against every baseline.

    Tested on the mean of the newest four checkpoints, or of fewer if there are no tests of four.
    """
    most = max((e.m for e in evidence if e.m <= EQUIVALENCE_POOLED), default=0)
    tested = [e for e in evidence if e.m == most]
    return bool(tested) and all(
        _cautious(e).test.equivalence_p(thresholds.equivalence_margin) < EQUIVALENCE_P for e in tested
    )


def word_of(evidence: Sequence[Evidence], thresholds: Thresholds) -> VerdictWord:
    """Return REGRESSED, IMPROVED, EQUIVALENT, SUSPECT, RISING or INCONCLUSIVE.

    A loss against any baseline outweighs a gain against another, and equivalence must be shown against all of them:
    changes too small to detect one by one add up against the peak.
    """
    if losses(evidence, thresholds):
        return VerdictWord.REGRESSED
    if gains(evidence, thresholds):
        return VerdictWord.IMPROVED
    if is_equivalent(evidence, thresholds):
        return VerdictWord.EQUIVALENT
    is_suspect, is_rising = bool(suspects(evidence, thresholds)), bool(rises(evidence, thresholds))
    return without_proof(is_suspect=is_suspect, is_rising=is_rising)


def word_of_pair(
    comparison: Comparison, equivalence_p: float, alpha_test: float, thresholds: Thresholds
) -> VerdictWord:
    """Return the verdict on two given checkpoints: a single test, so no correction for others."""
    if comparison.p_worse < alpha_test and comparison.delta <= -thresholds.min_effect:
        return VerdictWord.REGRESSED
    if comparison.p_better < alpha_test and comparison.delta >= thresholds.min_effect:
        return VerdictWord.IMPROVED
    if equivalence_p < EQUIVALENCE_P:
        return VerdictWord.EQUIVALENT
    is_suspect = looks_changed(comparison.p_worse, -comparison.delta, thresholds.min_effect)
    is_rising = looks_changed(comparison.p_better, comparison.delta, thresholds.min_effect)
    return without_proof(is_suspect=is_suspect, is_rising=is_rising)


def _cautious(evidence: Evidence) -> Evidence:
    """Return the evidence as if two more samples had changed: no change in 20 does not show that none can."""
    share = 1 / evidence.m + 1 / evidence.blocks.base.size
    unseen = share / max(1, evidence.test.n) ** 2
    return replace(evidence, test=replace(evidence.test, stderr=math.sqrt(evidence.test.stderr**2 + unseen)))
