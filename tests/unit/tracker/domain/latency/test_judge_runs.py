"""Whole simulated runs of 60 checkpoints: healthy ones raise no alarm, and a slowdown of 20 % is found in all of them.

The noise is harder than a normal one: stalls, load that changes slowly, a machine of the day's mood, and starts of the
engine that differ by 1 to 3 %, which no scatter of requests within a start can show.
"""

import math

import numpy as np
import pytest
from scipy import stats

from tests.deep import sized
from tests.unit.tracker.domain.latency_records import Machine, session_ms
from tracker.domain.latency.rules import POOLS, Limits, decisions
from tracker.domain.latency.statistics import LatencyContrast, block_starts, paired_contrast
from tracker.domain.records.types import VerdictWord

CHECKPOINTS = 60
ALPHA = 0.05
QUANTILES = {0.5: 0.03, 0.95: 0.05}
"""With the smallest change that counts."""
HEALTHY_RUNS = sized(1, 6)
SLOW_RUNS = sized(1, 5)
SLOW_FROM = 20
BLOCK_REQUESTS = 100
MACHINES = (
    Machine(requests=0.25),
    Machine(requests=0.02, starts=0.03, load=0.005),
    Machine(requests=0.02, starts=0.01, load=0.03),
)
"""Requests that scatter; quiet, but no start is like the other; moods that last for a block."""

Run = dict[float, list[LatencyContrast]]


def simulated(seed: int, checkpoints: int, machine: Machine, *, slow: float = 1.0) -> Run:
    """Return the contrasts of one run by quantile; from checkpoint SLOW_FROM on it is `slow` times as slow."""
    rng = np.random.default_rng(seed)
    run: Run = {quantile: [] for quantile in QUANTILES}
    for index in range(checkpoints):
        factor = slow if index >= SLOW_FROM else 1.0
        candidate, reference = session_ms(rng, slow=factor, requests=2 * BLOCK_REQUESTS, machine=machine)
        starts = block_starts(BLOCK_REQUESTS, 1000 * seed + index)
        blocks = (slice(BLOCK_REQUESTS), slice(BLOCK_REQUESTS, None))
        for quantile, contrasts in run.items():
            first, second = (paired_contrast(candidate[b], reference[b], quantile, starts) for b in blocks)
            contrasts.append(LatencyContrast(first, second))
    return run


def regressed(run: Run) -> list[bool]:
    """Return whether each checkpoint is called slower at either quantile."""
    alpha_test = ALPHA / (CHECKPOINTS * len(QUANTILES) * len(POOLS))
    words = [
        [d.word for d in decisions(run[q], Limits(alpha_test=alpha_test, floor=math.log1p(floor)), run[0.5])]
        for q, floor in QUANTILES.items()
    ]
    return [VerdictWord.REGRESSED in both for both in zip(*words, strict=True)]


@pytest.mark.slow
def test_healthy_runs_raise_no_more_alarms_than_the_level_allows() -> None:
    runs = [(machine, seed) for machine in MACHINES for seed in range(HEALTHY_RUNS)]
    alarmed = sum(any(regressed(simulated(seed, CHECKPOINTS, machine))) for machine, seed in runs)
    # Fails when so many alarmed runs would be seen less than once in a hundred times at the level.
    assert stats.binom.sf(alarmed - 1, len(runs), ALPHA) > 0.01


def test_a_slowdown_of_a_fifth_is_found_within_three_checkpoints_and_stays_found() -> None:
    for seed in range(100, 100 + SLOW_RUNS):
        alarms = regressed(simulated(seed, SLOW_FROM + 10, Machine(), slow=1.2))
        assert not any(alarms[:SLOW_FROM])
        assert any(alarms[SLOW_FROM : SLOW_FROM + 3])
        assert sum(alarms[SLOW_FROM + 3 :]) >= 5
