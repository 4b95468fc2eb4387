"""Backward transfer: effect of later training on what a phase had taught (Lopez-Paz and Ranzato 2017). Pure.

A phase taught a benchmark if the benchmark rose most from the start to the end of this phase, by 2 points and p < .01.
If no phase taught it, it was known before the run, or never: its change is measured from the first checkpoints.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import stdtrit

from tracker.domain.forgetting.levels import MIN_SAMPLES, CheckpointBlock, LedgerSubject, last_width
from tracker.domain.records.types import Phase
from tracker.domain.regression.pooled_test import PooledTest
from tracker.domain.scores.matrix import IntArray
from tracker.domain.verdicts.decision import is_learned


@dataclass(frozen=True, kw_only=True, eq=False)
class PhaseSpan:
    """The checkpoints of a phase, as rows; at least one."""

    phase: Phase
    rows: IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Teaching:
    """Where a benchmark was learned, and its change since."""

    span: PhaseSpan | None
    """Span of the phase that taught it; None if no phase did."""
    reference: CheckpointBlock
    """The end of that phase, or the run's first checkpoints."""
    last: CheckpointBlock
    """The newest checkpoints."""
    test: PooledTest
    """`last` minus `reference`, up is better."""


@dataclass(frozen=True, kw_only=True)
class BackwardTransfer:
    """Mean change of some benchmarks since they were taught; below 0 means forgotten."""

    benchmarks: tuple[str, ...]
    mean: float
    """BWT, up is better."""
    stderr: float
    ci_low: float
    """95 % interval of the mean, assuming independent benchmarks."""
    ci_high: float


def phase_spans(phases: Sequence[Phase], steps: Sequence[int], rows: IntArray) -> tuple[PhaseSpan, ...]:
    """Return the phases that have checkpoints, in order; () if fewer than two have any.

    Checkpoint N contains the updates up to N: the one at a border belongs to the phase before it. `steps` has the step
    of every row, `rows` the rows that count.
    """
    ordered = sorted(phases, key=lambda phase: phase.from_step)
    if not ordered:
        return ()
    of_row = np.searchsorted([p.from_step for p in ordered[1:]], [steps[row] for row in rows], side="left")
    spans = [PhaseSpan(phase=p, rows=rows[of_row == at]) for at, p in enumerate(ordered)]
    there = tuple(span for span in spans if span.rows.size)
    if len(there) > 1:
        return there
    return ()


def teaching_of(unit: LedgerSubject, spans: Sequence[PhaseSpan]) -> Teaching | None:
    """Return which of `spans` (at least two) taught `unit`; None with too few common samples."""
    width = last_width(unit.track.rows.size)
    start = spans[0].rows[: max(1, min(width, spans[0].rows.size // 2))]
    ends = [span.rows[-width:] for span in spans]
    rises = [unit.compare(end, begin) for begin, end in pairwise([start, *ends])]
    best = max(range(len(spans)), key=lambda at: rises[at].delta)
    taught = is_learned(rises[best], len(spans))
    reference = ends[best] if taught else start
    test = unit.compare(ends[-1], reference)
    if test.n < MIN_SAMPLES:
        return None
    return Teaching(
        span=spans[best] if taught else None,
        reference=unit.block(reference),
        last=unit.block(ends[-1]),
        test=test,
    )


def backward_transfer(taught: Sequence[tuple[str, Teaching]]) -> BackwardTransfer | None:
    """Return the mean over benchmarks (name, teaching); None if none was measured after it was taught.

    The degrees of freedom are Satterthwaite's, for the sum of the tests' variances.
    """
    later = [(name, t.test) for name, t in taught if t.last != t.reference]
    if not later:
        return None
    variances = np.array([test.stderr**2 for _, test in later])
    df = float(variances.sum() ** 2 / (variances**2 / [test.df for _, test in later]).sum())
    mean = float(np.mean([test.delta for _, test in later]))
    stderr = math.sqrt(float(variances.sum())) / len(later)
    half = -float(stdtrit(df, 0.025)) * stderr
    return BackwardTransfer(
        benchmarks=tuple(name for name, _ in later),
        mean=mean,
        stderr=stderr,
        ci_low=mean - half,
        ci_high=mean + half,
    )
