"""Rules for verdicts of slower and faster. Pure.

A checkpoint is tested by its own ratio, and by the mean of the newest 2 and 4, which show a small slowdown that stays.
Measuring one checkpoint again would only confirm the effect of its own start of the engine.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from tracker.domain.latency.statistics import (
    WINDOW,
    LatencyContrast,
    SeriesNoise,
    between_variance,
    faster_p,
    inflated,
    overdispersion,
    slower_p,
)
from tracker.domain.records.types import VerdictWord
from tracker.domain.scores.statistics.paired import Spread
from tracker.domain.scores.suspicion import at_most_suspect, looks_changed, without_proof

POOLS = (1, 2, 4)
"""Numbers of newest checkpoints to average; each is one more test."""

LEARNING = 5
"""Minimum number of earlier checkpoints to estimate the noise between starts well enough to report a change."""

CHANGED = frozenset({VerdictWord.REGRESSED, VerdictWord.IMPROVED})


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Level and smallest change of one test."""

    alpha_test: float
    floor: float
    """Smallest log ratio that matters."""


@dataclass(frozen=True, kw_only=True)
class LatencyDecision:
    """The decision on the last checkpoint of a series."""

    word: VerdictWord
    spread: Spread
    """Estimate of the true mean log ratio of the newest `sessions` checkpoints."""
    sessions: int
    noise: SeriesNoise


def decisions(
    series: Sequence[LatencyContrast], limits: Limits, medians: Sequence[LatencyContrast] | None = None
) -> tuple[LatencyDecision, ...]:
    """Return the decision on every checkpoint of `series`, oldest first, from itself and those before it.

    `medians` are the contrasts of the same checkpoints at the median, for a series at another quantile: a start of the
    engine affects all requests, and the median shows it best.
    Checkpoints with a change are not used for the factor: a slowdown that stays would hide itself.
    """
    past_z2: deque[float] = deque(maxlen=WINDOW)
    result = []
    for end in range(1, len(series) + 1):
        noise = _noise(series[:end], (medians or series)[:end], past_z2)
        result.append(_decide(series[:end], noise, limits))
        if result[-1].word not in CHANGED:
            past_z2.append(noise.z2(series[end - 1]))
    return tuple(result)


def word_of_history(spread: Spread, limits: Limits) -> VerdictWord:
    """Return SUSPECT or INCONCLUSIVE: without a reference the machine may be the cause."""
    return without_proof(is_suspect=looks_changed(slower_p(spread), spread.centre, limits.floor))


def _noise(
    series: Sequence[LatencyContrast], medians: Sequence[LatencyContrast], past_z2: Sequence[float]
) -> SeriesNoise:
    window = WINDOW + 1  # includes the blocks of the last checkpoint
    return SeriesNoise(
        between=max(between_variance(series[-window:]), between_variance(medians[-window:])),
        factor=overdispersion(past_z2),
        learned_from=len(past_z2),
    )


def _decide(series: Sequence[LatencyContrast], noise: SeriesNoise, limits: Limits) -> LatencyDecision:
    newest = series[-1].log_ratio
    found = []
    for sessions in POOLS:
        if sessions <= len(series):
            spread = inflated(series[-sessions:], noise)
            word = _word(spread, newest, limits)
            if len(series) <= LEARNING:
                word = _while_learning(word)
            found.append(LatencyDecision(word=word, spread=spread, sessions=sessions, noise=noise))
    return next((d for d in found if d.word in CHANGED), found[0])


def _while_learning(word: VerdictWord) -> VerdictWord:
    if word is VerdictWord.IMPROVED:
        return VerdictWord.INCONCLUSIVE
    return at_most_suspect(word)


def _word(spread: Spread, newest: float, limits: Limits) -> VerdictWord:
    # The newest must show it too: one outlier must not make the three checkpoints after it slow.
    slowdown, speedup = min(spread.centre, newest), -max(spread.centre, newest)
    if slowdown >= limits.floor and slower_p(spread) < limits.alpha_test:
        return VerdictWord.REGRESSED
    if speedup >= limits.floor and faster_p(spread) < limits.alpha_test:
        return VerdictWord.IMPROVED
    return without_proof(is_suspect=looks_changed(slower_p(spread), slowdown, limits.floor))
