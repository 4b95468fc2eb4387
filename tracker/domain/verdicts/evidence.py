"""Verdicts and their comparisons, from decisions of the engine. Pure."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tracker.domain.records.losses import Drop, Measure
from tracker.domain.records.reasons import Compared, Reason
from tracker.domain.records.types import Baseline, Comparison, Verdict, VerdictWord
from tracker.domain.regression.detector import Evidence, blocks_test
from tracker.domain.scores.flips import flips
from tracker.domain.scores.matrix import IntArray, values_at
from tracker.domain.scores.statistics.estimated import EstimatedScore, estimated_score
from tracker.domain.scores.statistics.few_clusters import renumbered
from tracker.domain.scores.statistics.paired import standard_error
from tracker.domain.verdicts.candidates import Candidate
from tracker.domain.verdicts.decision import Decision
from tracker.domain.verdicts.hypothesis import Hypothesis, losses
from tracker.domain.verdicts.losses.rows import baseline_rows, newest_rows
from tracker.domain.verdicts.losses.stages import FORGOTTEN_AFTER, RECOVERED_AFTER

POOLED_T = "pooled-t"

_ALONE = 1
_POOLED = 4
_COIN = 0.5


def verdict_of(decision: Decision, hypothesis: Hypothesis, candidate: Candidate) -> Verdict:
    """Return the verdict on a subject, with its evidence."""
    deciding = decision.shown[0]
    reason = Compared(
        before=_compared(hypothesis, candidate, deciding.blocks.base),
        now=_compared(hypothesis, candidate, deciding.blocks.new),
        margin=hypothesis.thresholds.equivalence_margin,
        in_a_row=_IN_A_ROW.get(decision.word, 0),
    )
    return replace(
        untested(hypothesis, candidate, decision.word, reason),
        subset=hypothesis.subject.subset,
        measure=hypothesis.subject.measure,
        comparisons=tuple(_comparison(e, hypothesis) for e in decision.shown),
        alpha_test=deciding.alpha_test,
        mde=_detectable(decision.tests, _ALONE, hypothesis),
        mde_pooled=_detectable(decision.tests, _POOLED, hypothesis),
        lost_since=None if decision.loss is None else decision.loss.onset_step,
        drop=_drop(decision, hypothesis, candidate),
        repetition=None if hypothesis.subject.subset else candidate.repetition,
    )


def _drop(decision: Decision, hypothesis: Hypothesis, candidate: Candidate) -> Drop | None:
    """Return what the loss took that is open, or ends, by a decision; None without one, or if screened."""
    if decision.loss is None or candidate.left_out:
        return None
    loss = decision.change or decision.loss
    base = baseline_rows(hypothesis, loss, losses(decision.tests, hypothesis.thresholds))
    new = newest_rows(hypothesis, loss, base) if base.size else base
    if not new.size:
        return loss.drop
    test = blocks_test(hypothesis.track.scores, new, base, hypothesis.jitter)
    low, high = test.interval()
    lost, gained = _flips(hypothesis, new, base)
    return Drop(
        baseline_steps=_steps(hypothesis, base),
        before=_compared(hypothesis, candidate, base),
        newest_steps=_steps(hypothesis, new),
        now=_compared(hypothesis, candidate, new),
        delta=test.delta,
        ci_low=max(low, -1.0),
        ci_high=min(high, 1.0),
        n_common=test.n,
        n_lost=lost,
        n_gained=gained,
        is_pinned=bool(base[0] == hypothesis.track.pinned_row),
        stderr=test.stderr,
        p_worse=test.p_worse(),
    )


def untested(hypothesis: Hypothesis, candidate: Candidate, word: VerdictWord, reason: Reason) -> Verdict:
    """Return the verdict on a result without a usable comparison."""
    stderr, units = _scatter(hypothesis, candidate)
    return Verdict(
        benchmark=hypothesis.subject.benchmark,
        word=word,
        reason=reason,
        score=_as_measured(float(hypothesis.matrix.means[hypothesis.track.rows[-1]]), hypothesis, candidate),
        stderr=stderr,
        units=units,
        coverage=float(candidate.series.coverage[candidate.row]),
        alpha_test=0.0,
        repetition=candidate.repetition,
    )


def whole_score_of(candidate: Candidate) -> EstimatedScore | None:
    """Return the score of the whole benchmark at a screened candidate, higher is better; None if it is unknown."""
    series, rows = candidate.series, candidate.track.rows[:-1]
    planned_whole = np.array([series.plans[row].suite.part is None for row in rows], dtype=bool)
    references = rows[planned_whole & series.is_whole[rows]]
    return estimated_score(candidate.matrix, candidate.row, references, series.samples.clusters)


_IN_A_ROW = {VerdictWord.FORGOTTEN: FORGOTTEN_AFTER, VerdictWord.RECOVERED: RECOVERED_AFTER}


def _compared(hypothesis: Hypothesis, candidate: Candidate, rows: IntArray) -> float:
    """Return the mean of checkpoints over the samples evaluated at all: means of different samples differ anyway."""
    return _as_measured(float(hypothesis.track.scores.means[rows].mean()), hypothesis, candidate)


def _as_measured(mean: float, hypothesis: Hypothesis, candidate: Candidate) -> float:
    """Return a mean in the measure's own direction."""
    as_is = candidate.series.higher_is_better and hypothesis.subject.measure is Measure.SCORE
    if as_is:
        return mean
    return 1.0 - mean


def _comparison(evidence: Evidence, hypothesis: Hypothesis) -> Comparison:
    test, blocks = evidence.test, evidence.blocks
    low, high = test.interval()
    lost, gained = _flips(hypothesis, blocks.new, blocks.base)
    return Comparison(
        baseline=blocks.baseline,
        baseline_steps=_steps(hypothesis, blocks.base),
        pooled_steps=_steps(hypothesis, blocks.new),
        n_common=test.n,
        common_fraction=test.common_fraction,
        delta=test.delta,
        stderr=test.stderr,
        ci_low=max(low, -1.0),  # a difference of shares cannot be outside [-1, 1]
        ci_high=min(high, 1.0),
        p_worse=evidence.p_worse,
        p_better=evidence.p_better,
        p_worse_items=test.p_worse_items(blocks.selected_from),
        jitter=math.sqrt(evidence.jitter.tau2),
        selected_from=blocks.selected_from,
        n_lost=lost,
        n_gained=gained,
        method=POOLED_T,
    )


def _flips(hypothesis: Hypothesis, new: IntArray, base: IntArray) -> tuple[int, int]:
    """Return the numbers of samples lost and gained; of another measure than the score none is right or wrong."""
    if hypothesis.subject.measure is not Measure.SCORE:
        return 0, 0
    return flips(hypothesis.matrix, new, base).counts()


def _steps(hypothesis: Hypothesis, rows: IntArray) -> tuple[int, ...]:
    return tuple(hypothesis.steps[int(row)] for row in rows)


def _detectable(tests: Sequence[Evidence], m: int, hypothesis: Hypothesis) -> float | None:
    """Return the smallest true loss found with 80 % power: significant, and seen as at least the smallest effect."""
    test = next((e for e in tests if e.m == m and e.blocks.baseline is Baseline.RECENT), None)
    if test is None:
        return None
    smallest = test.smallest(hypothesis.thresholds.min_effect)
    detectable = max(test.test.mde(test.alpha_test), smallest + test.test.mde(_COIN))
    return detectable if math.isfinite(detectable) else None  # a test without a level detects nothing


def _scatter(hypothesis: Hypothesis, candidate: Candidate) -> tuple[float | None, int]:
    """Return the standard error of the candidate's mean, and the number of samples or clusters behind it."""
    values = values_at(hypothesis.matrix, hypothesis.track.rows[-1:])[0]
    scored = ~np.isnan(values)
    clusters = candidate.series.samples.clusters
    if clusters is None or clusters.size != values.size:  # a subset
        return standard_error(values[scored]), int(scored.sum())
    dense, units = renumbered(clusters[scored])
    return standard_error(values[scored], dense), units
