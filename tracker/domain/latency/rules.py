"""When a checkpoint is called slower or faster. Pure.

    decisions(series, Limits(alpha_test=1e-5, floor=math.log1p(0.03)))[-1]     # the newest checkpoint

A checkpoint is judged by its own ratio, and confirmed by the mean of the newest 2 and 4: a small slowdown shows when it
stays. Measuring one checkpoint again would confirm what its own start of the engine did to it.
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
from tracker.domain.scores.statistics import Spread
from tracker.domain.scores.suspicion import at_most_suspect, looks_worse, without_proof

POOLS = (1, 2, 4)
"""How many of the newest checkpoints are averaged; each is one more test."""

LEARNING = 5
"""Earlier checkpoints without which the noise between starts is not known well enough to call anything changed."""

CHANGED = frozenset({VerdictWord.REGRESSED, VerdictWord.IMPROVED})


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one test is held to."""

    alpha_test: float
    floor: float
    """Smallest log ratio that matters."""


@dataclass(frozen=True, kw_only=True)
class LatencyDecision:
    """What a series says about its last checkpoint."""

    word: VerdictWord
    spread: Spread
    """Where the true mean log ratio of the newest `sessions` lies."""
    sessions: int
    noise: SeriesNoise


def decisions(
    series: Sequence[LatencyContrast], limits: Limits, medians: Sequence[LatencyContrast] | None = None
) -> tuple[LatencyDecision, ...]:
    """Judge every checkpoint of `series`, oldest first, each by itself and those before it.

    `medians` are the contrasts of the same checkpoints at the median, for a series at another quantile: a start of the
    engine moves all requests, and the median shows it best.
    Those that were found changed teach the factor nothing: a slowdown that stays would hide itself.
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
    """Return SUSPECT or INCONCLUSIVE: without a reference nothing shows that it was not the machine."""
    return without_proof(is_suspect=looks_worse(slower_p(spread), spread.centre, limits.floor))


# --- private


def _noise(
    series: Sequence[LatencyContrast], medians: Sequence[LatencyContrast], past_z2: Sequence[float]
) -> SeriesNoise:
    window = WINDOW + 1  # the last one's own blocks tell, too
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
    # The newest must show it too: one wild checkpoint does not make the three after it slow.
    slowdown, speedup = min(spread.centre, newest), -max(spread.centre, newest)
    if slowdown >= limits.floor and slower_p(spread) < limits.alpha_test:
        return VerdictWord.REGRESSED
    if speedup >= limits.floor and faster_p(spread) < limits.alpha_test:
        return VerdictWord.IMPROVED
    return without_proof(is_suspect=looks_worse(slower_p(spread), slowdown, limits.floor))
