"""What a check says: what it shows and, if that is nothing, which margin or how many samples would decide. Pure."""

import math
from dataclasses import replace

from tracker.domain.compare.view import ComparedBenchmark
from tracker.domain.gate.contexts import contexts_text
from tracker.domain.gate.margins import passing_margin
from tracker.domain.gate.rules import POWER
from tracker.domain.gate.types import BenchmarkCheck
from tracker.domain.records.display import score_text, signed_text
from tracker.domain.records.types import Comparison
from tracker.domain.scores.statistics.paired import t_quantile

_MANY = 1e9
"""No benchmark has as many samples."""


def is_gain(change: Comparison) -> bool:
    """Return whether the 95 % interval of the change leaves out 0 and every loss."""
    return change.ci_low > 0


def passed_text(check: BenchmarkCheck, change: Comparison) -> str:
    """Return what a passed check shows."""
    if is_gain(change):
        return _gain_text(change)
    default = " (default `min_effect`)" if check.is_default_margin else ""
    return f"no loss of {score_text(check.min_effect)} or more{default}"


def undecided(check: BenchmarkCheck, one: ComparedBenchmark, alpha: float) -> BenchmarkCheck:
    """Return the check with what is unknown and both ways out: another smallest effect, or more samples."""
    change, margin = one.comparison, check.min_effect or 0.0
    needed = _samples_needed(one, margin, alpha)
    if change.p_worse < check.alpha_test:
        unknown = f"significant loss, but it may be smaller or larger than {score_text(margin)}"
        needed = _samples_needed(one, margin + change.delta, alpha)
    elif needed is not None and needed <= change.n_common:
        unknown = f"minimum detectable loss {score_text(check.detectable)}; change {signed_text(change.delta)}"
        unknown += " is inconclusive"
        needed = _samples_to_decide(one, margin, check.alpha_test, alpha)
    else:
        unknown = f"minimum detectable loss {score_text(check.detectable)}"
    if is_gain(change):
        unknown = f"{_gain_text(change)}, but a loss of {score_text(margin)} is not excluded"
    enough = passing_margin(one.spread_of_run, alpha)
    if needed is not None:
        needed = max(needed, change.n_common + 1)  # those that there are did not decide
    ways = f"{_margin_text(enough)}, {_samples_text(needed, change.n_common, check)}"
    return replace(check, reason=f"{unknown}; {ways}", samples_needed=needed, passing_min_effect=enough)


def _gain_text(change: Comparison) -> str:
    return f"gain of {score_text(change.delta)} ({change.n_lost} samples lost, {change.n_gained} gained)"


def _margin_text(enough: float | None) -> str:
    if enough is None:
        return "no `min_effect` would have passed"
    return f"`min_effect` {score_text(enough)} would have passed"


def _samples_text(needed: int | None, available: int, check: BenchmarkCheck) -> str:
    if needed is None:
        return "more samples do not help: the jitter is too large, or the loss too close to `min_effect`"
    text = f"or about {needed:,} samples would decide, {available:,} available"
    contexts = check.clusters.contexts
    if contexts is None:
        return text
    return f"{text} in {contexts_text(contexts)} (more {contexts.kind}s count, not more questions on each)"


def _samples_to_decide(one: ComparedBenchmark, margin: float, alpha_test: float, alpha: float) -> int | None:
    """Return n at which a true change as large as the one that was measured decides, with 80 % power."""
    distance = margin + one.comparison.delta
    if distance > 0:
        return _samples_needed(one, distance, alpha)
    return _samples_needed(one, -one.comparison.delta, alpha_test)


def _samples_needed(one: ComparedBenchmark, distance: float, level: float) -> int | None:
    """Return n at which a true change that is `distance` away from the tested one is significant, with 80 % power.

    None if the jitter is too large for any n, or the two are so close that n is above `_MANY`.

    n * stderr^2 / (distance^2 / (z_level + z_power)^2 - jitter^2), as in Miller 2024, with these samples' flips. A
    cluster that may be lost as a whole weighs less with more clusters: its part of the variance falls with 1 / n^2.
    """
    z = t_quantile(POWER, math.inf) - t_quantile(level, math.inf)
    of_samples = (distance / z) ** 2 - (one.spread_of_run.stderr**2 - one.spread.stderr**2)
    if of_samples <= 0:
        return None
    flips, more = one.spread.stderr**2, max(one.spread.cautious**2 - one.spread.stderr**2, 0.0)
    # flips / k + more / k^2 = of_samples, with k times as many samples
    needed = one.comparison.n_common * (flips + math.sqrt(flips**2 + 4 * more * of_samples)) / (2 * of_samples)
    return math.ceil(needed) if needed < _MANY else None
