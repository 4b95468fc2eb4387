"""Whole simulated runs of 60 checkpoints: healthy ones raise no alarm, and a slowdown of 20 % is found in all of them.

The noise is harder than a normal one: stalls, load that changes slowly, a machine of the day's mood, and starts of the
engine that differ by 1 %, which no scatter of requests within a start can show.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from tests.unit.tracker.domain.latency_records import session_ms
from tracker.domain.latency_rules import POOLS, Limits, decide
from tracker.domain.latency_statistics import Contrast, block_starts, paired_contrast
from tracker.domain.types import VerdictWord

CHECKPOINTS = 60
ALPHA = 0.05
QUANTILES = {0.5: 0.03, 0.95: 0.05}
"""With the smallest change that counts."""
HEALTHY_RUNS = 20
SLOW_RUNS = 5
SLOW_FROM = 20
REQUESTS = 200

Run = dict[float, list[Contrast]]


def simulated(seed: int, checkpoints: int, *, slow: float = 1.0) -> Run:
    """Return the contrasts of one run by quantile; from checkpoint SLOW_FROM on it is `slow` times as slow."""
    rng = np.random.default_rng(seed)
    run: Run = {quantile: [] for quantile in QUANTILES}
    for index in range(checkpoints):
        candidate, reference = session_ms(rng, slow=slow if index >= SLOW_FROM else 1.0, requests=REQUESTS)
        starts = block_starts(REQUESTS, 1000 * seed + index)
        for quantile, contrasts in run.items():
            contrasts.append(paired_contrast(candidate, reference, quantile, starts))
    return run


def regressed(run: Run) -> list[bool]:
    """Return whether each checkpoint is called slower at either quantile."""
    count = len(run[0.5])
    alpha_test = ALPHA / (CHECKPOINTS * len(QUANTILES) * len(POOLS))
    return [
        any(
            _word(run[q][:end], Limits(alpha_test=alpha_test, floor=math.log1p(floor)))
            for q, floor in QUANTILES.items()
        )
        for end in range(1, count + 1)
    ]


def _word(series: Sequence[Contrast], limits: Limits) -> bool:
    return decide(series, limits).word is VerdictWord.REGRESSED


def test_healthy_runs_raise_no_more_alarms_than_the_level_allows() -> None:
    alarmed = sum(any(regressed(simulated(seed, CHECKPOINTS))) for seed in range(HEALTHY_RUNS))
    # Fails when so many alarmed runs would be seen less than once in a hundred times at the level.
    assert stats.binom.sf(alarmed - 1, HEALTHY_RUNS, ALPHA) > 0.01


def test_a_slowdown_of_a_fifth_is_found_within_three_checkpoints_and_stays_found() -> None:
    for seed in range(100, 100 + SLOW_RUNS):
        alarms = regressed(simulated(seed, SLOW_FROM + 10, slow=1.2))
        assert not any(alarms[:SLOW_FROM])
        assert any(alarms[SLOW_FROM : SLOW_FROM + 3])
        assert sum(alarms[SLOW_FROM + 3 :]) >= 5
