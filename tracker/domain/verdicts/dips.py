"""Dips that a disruption of the training explains: which checkpoints they cover. Pure."""

from collections.abc import Sequence

import numpy as np

from eval_jobs.types import EvalResult
from tracker.domain.records.losses import Measure
from tracker.domain.records.reasons import Disruption
from tracker.domain.regression.dips import earlier_in_dips, is_dip_expected, windows_of
from tracker.domain.scores.matrix import FloatArray
from tracker.domain.scores.series import series_key
from tracker.domain.verdicts.context import NO_DIPS, Dips, JudgingContext


def dips_of(context: JudgingContext) -> Dips:
    """Return whether a dip is expected at the candidate, and the checkpoints of earlier dips."""
    if not any(d.step < context.step for d in context.run_context.disruptions):
        return NO_DIPS
    steps, means = _common(context)
    starts = _starts(context.run_context.disruptions, steps)
    if not starts:
        return NO_DIPS
    windows, at = windows_of(means, tuple(starts)), len(steps) - 1
    over = frozenset(steps[position] for position in earlier_in_dips(windows, at))
    if not is_dip_expected(windows, at):
        return Dips(over=over)
    start = windows[-1].start
    return Dips(expected_after=starts[start], since_step=steps[start], over=over.difference(steps[start:]))


def _starts(disruptions: Sequence[Disruption], steps: Sequence[int]) -> dict[int, Disruption]:
    """Return by the position of the first checkpoint after it each disruption that has checkpoints on both sides."""
    found: dict[int, Disruption] = {}
    for disruption in disruptions:
        # Checkpoint N contains the updates up to N: one at the step of a disruption is from before it.
        start = sum(step <= disruption.step for step in steps)
        if 0 < start < len(steps):
            found[start] = disruption
    return found


def _common(context: JudgingContext) -> tuple[tuple[int, ...], FloatArray]:
    """Return the steps so far at which all benchmarks of the candidate have a score, and the means, shape (K, T)."""
    found: list[dict[int, float]] = []
    for outcome in context.record.outcomes:
        series = None
        if isinstance(outcome, EvalResult):
            series = context.scores.series.get(series_key(context.record.plan, outcome))
        if series is not None:
            means, rows = series.matrices[Measure.SCORE].means, series.whole_rows(context.policy.min_coverage)
            found.append({series.steps[row]: float(means[row]) for row in rows if series.steps[row] <= context.step})
    return common_of(found)


def common_of(series: Sequence[dict[int, float]]) -> tuple[tuple[int, ...], FloatArray]:
    """Return the steps, ascending, that all of some series of means have, and their means there, shape (K, T)."""
    if not series:
        return (), np.zeros((0, 0))
    steps = tuple(sorted(set(series[0]).intersection(*series[1:])))
    return steps, np.array([[means[step] for step in steps] for means in series])
