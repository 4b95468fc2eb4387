"""Decisions of the engine as verdicts and comparisons that a person can check. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tracker.domain.records.types import Baseline, Comparison, Measure, Verdict, VerdictWord
from tracker.domain.regression.detector import Evidence
from tracker.domain.scores.matrix import IntArray, flips, values_at
from tracker.domain.scores.statistics import standard_error
from tracker.domain.verdicts.decision import Decision
from tracker.domain.verdicts.episodes import Trial
from tracker.domain.verdicts.reasons import reason_for
from tracker.domain.verdicts.trials import Candidate

POOLED_T = "pooled-t"

_ALONE = 1
_POOLED = 4
_COIN = 0.5


def verdict_of(decision: Decision, trial: Trial, candidate: Candidate) -> Verdict:
    """Return the verdict on a subject, with its evidence."""
    deciding = decision.shown[0]
    comparisons = tuple(_comparison(e, trial) for e in decision.shown)
    before, now = (_compared(trial, candidate, rows) for rows in (deciding.blocks.base, deciding.blocks.new))
    detectable = _detectable(decision.tests, _ALONE, trial)
    return Verdict(
        benchmark=trial.subject.benchmark,
        subset=trial.subject.subset,
        measure=trial.subject.measure,
        word=decision.word,
        reason=reason_for(decision.word, comparisons[0], (before, now), trial, detectable),
        score=own_mean(trial, candidate, trial.track.rows[-1:]),
        stderr=_stderr(trial, candidate),
        coverage=float(candidate.series.coverage[candidate.row]),
        comparisons=comparisons,
        alpha_test=deciding.alpha_test,
        mde=detectable,
        mde_pooled=_detectable(decision.tests, _POOLED, trial),
        lost_since=decision.lost_since,
        repetition=None if trial.subject.subset else candidate.repetition,
    )


def untested(trial: Trial, candidate: Candidate, word: VerdictWord, reason: str) -> Verdict:
    """Return the verdict on a result that nothing could be compared with."""
    return Verdict(
        benchmark=trial.subject.benchmark,
        word=word,
        reason=reason,
        score=own_mean(trial, candidate, trial.track.rows[-1:]),
        stderr=_stderr(trial, candidate),
        coverage=float(candidate.series.coverage[candidate.row]),
        alpha_test=0.0,
        repetition=candidate.repetition,
    )


def own_mean(trial: Trial, candidate: Candidate, rows: IntArray) -> float:
    """Return the mean of some checkpoints in the measure's own direction."""
    return _as_measured(float(trial.matrix.means[rows].mean()), trial, candidate)


# --- private


def _compared(trial: Trial, candidate: Candidate, rows: IntArray) -> float:
    """Return the same over samples that all checkpoints asked: means of different samples differ anyway."""
    return _as_measured(float(trial.track.scores.means[rows].mean()), trial, candidate)


def _as_measured(mean: float, trial: Trial, candidate: Candidate) -> float:
    as_is = candidate.series.higher_is_better and trial.subject.measure is Measure.SCORE
    return mean if as_is else 1.0 - mean


def _comparison(evidence: Evidence, trial: Trial) -> Comparison:
    test, blocks = evidence.test, evidence.blocks
    low, high = test.interval()
    lost, gained = flips(trial.matrix, blocks.new, blocks.base)
    return Comparison(
        baseline=blocks.baseline,
        baseline_steps=_steps(trial, blocks.base),
        pooled_steps=_steps(trial, blocks.new),
        n_common=test.n,
        common_fraction=test.common_fraction,
        delta=test.delta,
        stderr=test.stderr,
        ci_low=max(low, -1.0),  # a difference of shares cannot lie outside
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


def _steps(trial: Trial, rows: IntArray) -> tuple[int, ...]:
    return tuple(trial.steps[int(row)] for row in rows)


def _detectable(tests: Sequence[Evidence], m: int, trial: Trial) -> float | None:
    """Return the smallest true loss found with 80 % power; at least what must be seen above the smallest effect."""
    test = next((e for e in tests if e.m == m and e.blocks.baseline is Baseline.RECENT), None)
    if test is None:
        return None
    return max(test.test.mde(test.alpha_test), trial.thresholds.min_effect + test.test.mde(_COIN))


def _stderr(trial: Trial, candidate: Candidate) -> float | None:
    values = values_at(trial.matrix, trial.track.rows[-1:])[0]
    scored = ~np.isnan(values)
    clusters = candidate.series.samples.clusters
    if clusters is None or clusters.size != values.size:  # a subset
        return standard_error(values[scored])
    _, dense = np.unique(clusters[scored], return_inverse=True)
    return standard_error(values[scored], dense)
