"""When a checkpoint is called slower or faster. Pure.

    decide(series, Limits(alpha_test=1e-5, floor=math.log1p(0.03)))     # the last one of the series

A checkpoint is judged by its own ratio, and confirmed by the mean of the newest 2 and 4: a small slowdown shows when it
stays. Measuring one checkpoint again would confirm what its own start of the engine did to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from tracker.domain.latency_statistics import WINDOW, Contrast, faster_p, inflated, overdispersion, slower_p
from tracker.domain.rules import SUSPECT_P
from tracker.domain.statistics import Spread
from tracker.domain.types import VerdictWord

POOLS = (1, 2, 4)
"""How many of the newest checkpoints are averaged; each is one more test."""

CHANGED = frozenset({VerdictWord.REGRESSED, VerdictWord.IMPROVED})


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one test is held to."""

    alpha_test: float
    floor: float
    """Smallest log ratio that matters."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a series says about its last checkpoint."""

    word: VerdictWord
    spread: Spread
    """Where the true mean log ratio of the newest `sessions` lies."""
    sessions: int
    overdispersion: float


def decide(series: Sequence[Contrast], limits: Limits) -> Decision:
    """Judge the last of `series`, at least one checkpoint long, oldest first.

    The noise is learned from the checkpoints before it. Those that were found changed teach nothing about noise: a
    slowdown that stays would hide itself.
    """
    past_z2: deque[float] = deque(maxlen=WINDOW)
    for end in range(1, len(series)):
        if _decide_one(series[:end], past_z2, limits).word not in CHANGED:
            past_z2.append(series[end - 1].z2)
    return _decide_one(series, past_z2, limits)


def word_of_history(spread: Spread, limits: Limits) -> VerdictWord:
    """Return SUSPECT or INCONCLUSIVE: without a reference nothing shows that it was not the machine."""
    slower = slower_p(spread) < limits.alpha_test and spread.centre >= limits.floor
    return VerdictWord.SUSPECT if slower else VerdictWord.INCONCLUSIVE


# --- private


def _decide_one(series: Sequence[Contrast], past_z2: Sequence[float], limits: Limits) -> Decision:
    factor = overdispersion(past_z2)
    newest = series[-1].log_ratio
    decisions = []
    for sessions in POOLS:
        if sessions <= len(series):
            spread = inflated(series[-sessions:], factor, len(past_z2))
            word = _word(spread, newest, limits)
            decisions.append(Decision(word=word, spread=spread, sessions=sessions, overdispersion=factor))
    return next((d for d in decisions if d.word in CHANGED), decisions[0])


def _word(spread: Spread, newest: float, limits: Limits) -> VerdictWord:
    # The newest must show it too: one wild checkpoint does not make the three after it slow.
    slow, fast = min(spread.centre, newest) >= limits.floor, max(spread.centre, newest) <= -limits.floor
    if slow and slower_p(spread) < limits.alpha_test:
        return VerdictWord.REGRESSED
    if fast and faster_p(spread) < limits.alpha_test:
        return VerdictWord.IMPROVED
    return VerdictWord.SUSPECT if slow and slower_p(spread) < SUSPECT_P else VerdictWord.INCONCLUSIVE
