"""Matrices of forgetting: benchmarks by step, and phases by benchmark. Pure."""

from collections.abc import Mapping, Sequence

import numpy as np

from tracker.domain.forgetting.levels import last_width
from tracker.domain.forgetting.transfer import phase_spans
from tracker.domain.forgetting.types import BenchmarkLedger, RunLedger
from tracker.domain.records.policy import Phase
from tracker.domain.scores.matrix import FloatArray

Matrix = Mapping[str, Mapping[int | str, float]]
"""Values by benchmark, then by step or phase."""


def changes_from_best(ledger: RunLedger) -> Matrix:
    """Return each score minus the best one so far, up is better: 0 at a new best."""
    found: dict[str, Mapping[int | str, float]] = {}
    for one in ledger.benchmarks:
        oriented = _scores(one)
        if not one.higher_is_better:
            oriented = -oriented
        best = np.fmax.accumulate(oriented)
        found[one.benchmark] = dict(zip(one.steps, (oriented - best).tolist(), strict=True))
    return found


def levels_after_phases(ledger: RunLedger) -> Matrix:
    """Return the mean score at the end of each phase that has checkpoints: R of Lopez-Paz and Ranzato 2017.

    Of the checkpoints of a phase the last ones count, as many as for the newest level of the forgetting ledger.
    """
    return {one.benchmark: _after_phases(one, ledger.phases) for one in ledger.benchmarks}


def _after_phases(one: BenchmarkLedger, phases: Sequence[Phase]) -> Mapping[int | str, float]:
    scores, rows = _scores(one), np.arange(len(one.steps))
    width = last_width(rows.size)
    spans = phase_spans(phases, one.steps, rows)
    return {span.phase.name: float(scores[span.rows[-width:]].mean()) for span in spans}


def _scores(one: BenchmarkLedger) -> FloatArray:
    """Return the scores as reported; NaN: none."""
    return np.array(one.whole.means, dtype=np.float64)
