"""Backward transfer: effect of later training on what was learned (Lopez-Paz and Ranzato 2017). Pure.

A benchmark was learned in the phase at whose end it was highest above all earlier checkpoints, by 2 points and p < .01:
what only returns after a loss was learned before. If there is no such phase, or if the level before the first
measurement is unknown, its change is measured from that first measurement.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy.special import stdtrit

from tracker.domain.forgetting.levels import MIN_SAMPLES, CheckpointBlock, LedgerSubject, last_width, retention_of
from tracker.domain.records.policy import Phase
from tracker.domain.regression.blocks import peak_width
from tracker.domain.regression.pooled_test import PooledTest
from tracker.domain.scores.matrix import IntArray
from tracker.domain.verdicts.decision import is_learned

_MOST_OF_ITSELF = 0.5
"""A score that rises by more than this share of its first measurement was learned after it."""


class ReferenceKind(StrEnum):
    """What a change is measured from."""

    PHASE_END = "end of phase"
    FIRST = "first measurement"


@dataclass(frozen=True, kw_only=True, eq=False)
class PhaseSpan:
    """The checkpoints of a phase, as rows; at least one."""

    phase: Phase
    rows: IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Origin:
    """Where a benchmark was learned, and its change since."""

    span: PhaseSpan | None
    """Span of the phase in which it was learned; None: the reference is its first measurement."""
    reference: CheckpointBlock
    """The end of that phase, or the first checkpoints that measured it."""
    last: CheckpointBlock
    """The newest checkpoints."""
    test: PooledTest
    """`last` minus `reference`, up is better."""
    retention: float | None
    """As `levels.retention_of`, from the reference."""


@dataclass(frozen=True, kw_only=True)
class BackwardTransfer:
    """Mean change of some benchmarks since their references; below 0 means forgotten."""

    benchmarks: tuple[str, ...]
    mean: float
    """BWT, up is better."""
    stderr: float
    ci_low: float
    """95 % interval of the mean, assuming independent benchmarks."""
    ci_high: float
    retention: float | None
    """Mean share retained, of the benchmarks for which it is known."""


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


def origin_of(unit: LedgerSubject, spans: Sequence[PhaseSpan], *, is_late: bool = False) -> Origin | None:
    """Return in which of `spans` (at least two) `unit` was learned; None with too few common samples.

    `is_late`: earlier phases of the run did not measure it.
    """
    width, first = last_width(unit.track.rows.size), spans[0].rows
    start = first[: max(1, min(width, first.size // 2))]
    ends = [first[max(start.size, first.size - width) :] if first.size > 1 else first]
    ends += [span.rows[-width:] for span in spans[1:]]
    rises = list(_rises(unit, spans, start, ends))
    best = max(range(len(spans)), key=lambda at: rises[at].delta)
    learned = is_learned(rises[best], len(spans))
    if learned and best and (is_late or first.size == 1):
        learned = not _was_known(unit, start, rises[best].delta)
    reference = ends[best] if learned else start
    test = unit.compare(ends[-1], reference)
    if test.n < MIN_SAMPLES:
        return None
    return Origin(
        span=spans[best] if learned else None,
        reference=unit.block(reference),
        last=unit.block(ends[-1]),
        test=test,
        retention=retention_of(unit, reference, start, lost=-test.delta),
    )


def _rises(
    unit: LedgerSubject, spans: Sequence[PhaseSpan], start: IntArray, ends: Sequence[IntArray]
) -> Iterator[PooledTest]:
    """Yield for every span the test of its end against the best block of checkpoints before the span."""
    means, width, highest = unit.track.scores.means, peak_width(None, unit.track.rows.size), start
    for span, end in zip(spans, ends, strict=True):
        yield unit.compare(end, highest)
        starts = range(0, span.rows.size - width + 1, width // 2)
        blocks = [highest, end, *(span.rows[at : at + width] for at in starts)]
        highest = max(blocks, key=lambda block: float(means[block].mean()))


def _was_known(unit: LedgerSubject, start: IntArray, rise: float) -> bool:
    """Return whether the first measurement is above guessing (0 if unknown), and the later `rise` small beside it."""
    above = unit.above_chance(start) or unit.above(start, 0.0)
    level = float(unit.track.scores.means[start].mean())
    return is_learned(above, 1) and rise <= _MOST_OF_ITSELF * level


def backward_transfer(origins: Sequence[tuple[str, Origin]]) -> BackwardTransfer | None:
    """Return the mean over benchmarks (name, origin); None if none was measured after its reference.

    The degrees of freedom are Satterthwaite's, for the sum of the tests' variances.
    """
    later = [(name, origin) for name, origin in origins if origin.last != origin.reference]
    if not later:
        return None
    tests = [origin.test for _, origin in later]
    variances = np.array([test.stderr**2 for test in tests])
    df = float(variances.sum() ** 2 / (variances**2 / [test.df for test in tests]).sum())
    mean = float(np.mean([test.delta for test in tests]))
    stderr = math.sqrt(float(variances.sum())) / len(later)
    half = -float(stdtrit(df, 0.025)) * stderr
    known = [origin.retention for _, origin in later if origin.retention is not None]
    return BackwardTransfer(
        benchmarks=tuple(name for name, _ in later),
        mean=mean,
        stderr=stderr,
        ci_low=mean - half,
        ci_high=mean + half,
        retention=float(np.mean(known)) if known else None,
    )
