"""When a comparison is called regressed, improved, equivalent or suspect. Pure.

Order matters: the first rule that holds gives the word. See `types.VerdictWord` for what the words mean.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracker.domain.baselines import Evidence
from tracker.domain.statistics import mde, tost_p
from tracker.domain.types import Comparison, Policy, VerdictWord

SUSPECT_P = 0.01
EQUIVALENCE_P = 0.05


def regressed(comparison: Comparison, alpha_test: float, policy: Policy) -> bool:
    """Return whether the candidate is worse, beyond chance at the run's level, by an amount that matters."""
    return comparison.p_worse < alpha_test and comparison.delta <= -policy.min_effect


def improved(comparison: Comparison, alpha_test: float, policy: Policy) -> bool:
    """Return the mirror image of `regressed`."""
    return comparison.p_better < alpha_test and comparison.delta >= policy.min_effect


def suspect(comparison: Comparison, policy: Policy) -> bool:
    """Return whether the candidate would look worse if this were the only test of the run."""
    return comparison.p_worse < SUSPECT_P and comparison.delta <= -policy.min_effect


def equivalent(evidence: Evidence, policy: Policy) -> bool:
    """Return whether the true change is shown to be within the margin; no finding at all is not that."""
    return tost_p(evidence.spread, policy.equivalence_margin) < EQUIVALENCE_P


def word_of(evidence: Sequence[Evidence], alpha_test: float, policy: Policy) -> VerdictWord:
    """Return REGRESSED, IMPROVED, EQUIVALENT, SUSPECT or INCONCLUSIVE for evidence against one or more baselines.

    A loss against any baseline outweighs a gain against another, and equivalence must hold against all of them:
    steps too small to see against the previous checkpoint add up against the best.
    """
    if any(regressed(e.comparison, alpha_test, policy) for e in evidence):
        return VerdictWord.REGRESSED
    if any(improved(e.comparison, alpha_test, policy) for e in evidence):
        return VerdictWord.IMPROVED
    if all(equivalent(e, policy) for e in evidence):
        return VerdictWord.EQUIVALENT
    if any(suspect(e.comparison, policy) for e in evidence):
        return VerdictWord.SUSPECT
    return VerdictWord.INCONCLUSIVE


def detectable_change(evidence: Evidence, alpha_test: float, policy: Policy) -> float:
    """Return the smallest true change that is found with 80 % power; at least what must be seen above `min_effect`."""
    noise = mde(evidence.spread, alpha_test)
    above_min_effect = policy.min_effect + mde(evidence.spread, 0.5)  # z of .5 is 0: the power's share alone
    return max(noise, above_min_effect)
