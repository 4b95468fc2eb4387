"""Reference values for the latency statistics, by plain loops over numpy and scipy.stats: shares no code with them.

python -m tests.unit.tracker.domain.latency_oracle > tests/golden/latency.json
"""

import json
import math
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import optimize, stats

Case = dict[str, Any]


def contrast(candidate: Sequence[float], reference: Sequence[float], quantile: float, starts: Sequence[Any]) -> Case:
    """L and its moving-block bootstrap error, blocks of 10 pairs."""
    draws = []
    for blocks in starts:
        a = [candidate[start + i] for start in blocks for i in range(10)]
        b = [reference[start + i] for start in blocks for i in range(10)]
        draws.append(math.log(np.percentile(a, 100 * quantile) / np.percentile(b, 100 * quantile)))
    ratio = np.percentile(candidate, 100 * quantile) / np.percentile(reference, 100 * quantile)
    return {"log_ratio": math.log(ratio), "stderr": float(stats.tstd(draws))}


def between(blocks: Sequence[Sequence[float]]) -> Case:
    """Paule and Mandel's variance between blocks; each row is L and its error of the first and of the second block."""

    def mean_square(variance: float) -> float:
        return float(np.mean([(a - b) ** 2 / (s * s + t * t + variance * 4 / 3) for a, s, b, t in blocks]))

    if mean_square(0.0) <= 1:
        return {"between": 0.0}
    return {"between": float(optimize.brentq(lambda v: mean_square(v) - 1, 0.0, 100.0, xtol=1e-18, rtol=1e-14))}


def pooled(blocks: Sequence[Sequence[float]], between_variance: float, past_z2: Sequence[float]) -> Case:
    """The mean L of several checkpoints, its variance that of requests and of starts, times the overdispersion."""
    h = len(past_z2)
    factor = max((10 + sum(min(z2, 9) for z2 in past_z2)) / (10 + h), 1.0)
    centre = sum((a + b) / 2 for a, _, b, _ in blocks) / len(blocks)
    variance = sum((s * s + t * t) / 4 + between_variance for _, s, _, t in blocks)
    stderr = math.sqrt(factor * variance) / len(blocks)
    low, high = stats.t.interval(0.95, 10 + h, loc=centre, scale=stderr)
    return {
        "overdispersion": factor,
        "centre": centre,
        "stderr": stderr,
        "df": 10 + h,
        "p_slower": float(stats.t.sf(centre / stderr, 10 + h)),
        "p_faster": float(stats.t.cdf(centre / stderr, 10 + h)),
        "ci_low": float(low),
        "ci_high": float(high),
    }


def history(log_time: float, past: Sequence[float]) -> Case:
    """A log time against the mean of the last ten before it."""
    steps = [b - a for a, b in pairwise(past)]
    robust = 1.4826 * float(np.median([abs(s) for s in steps])) / math.sqrt(2)
    plain = float(stats.tstd(steps)) / math.sqrt(2)
    base = past[-10:]
    centre = log_time - sum(base) / len(base)
    stderr = max(robust, plain, 0.004) * math.sqrt(1 + 1 / len(base))
    df = max(4.0, 0.6 * len(past))
    return {"centre": centre, "stderr": stderr, "df": df, "p_slower": float(stats.t.sf(centre / stderr, df))}


def decision(series: Sequence[Sequence[float]], alpha_test: float, floor: float) -> Case:
    """The word for the last checkpoint of a series, its noise learned from those before it."""
    past: list[float] = []
    for end in range(1, len(series) + 1):
        variance, learned = between(series[max(0, end - 31) : end])["between"], list(past[-30:])
        word, sessions = _word(series[:end], variance, learned, alpha_test=alpha_test, floor=floor)
        if word not in ("regressed", "improved"):
            a, s, b, t = series[end - 1]
            past.append(((a + b) / 2) ** 2 / ((s * s + t * t) / 4 + variance))
    factor = pooled([[0, 1, 0, 1]], 0.0, learned)["overdispersion"]
    return {"word": word, "sessions": sessions, "overdispersion": factor, "between": variance}


def golden() -> Case:
    """All reference cases."""
    rng = np.random.default_rng(20260314)
    return {
        "about": "Reference values of tests/unit/tracker/domain/latency_oracle.py. Log ratios; above 0 is slower.",
        "contrast": [_contrast_case(rng, n, q, slow) for n in (100, 215) for q in (0.5, 0.95) for slow in (1.0, 1.15)],
        "between": [_between_case(rng, n, scale) for n in (1, 5, 31) for scale in (0.3, 1, 3)],
        "pooled": [_pooled_case(rng, m, h) for m in (1, 2, 4) for h in (0, 3, 30)],
        "history": [_history_case(rng, n, change) for n in (3, 10, 30) for change in (0.0, 0.04, -0.2)],
        "decision": [_expected_decision([[0.05, 0.02, 0.05, 0.02]])]
        + [_decision_case(rng, n, change) for n in (1, 6, 45) for change in (0.0, 0.05, 0.2, -0.25)],
    }


# --- private


def _word(
    series: Sequence[Sequence[float]], variance: float, learned: Sequence[float], *, alpha_test: float, floor: float
) -> tuple[str, int]:
    newest = (series[-1][0] + series[-1][2]) / 2
    is_learning = len(series) <= 5
    alone = "inconclusive"
    for m in (m for m in (1, 2, 4) if m <= len(series)):
        found = pooled(series[-m:], variance, learned)
        is_slow = min(found["centre"], newest) >= floor
        is_fast = max(found["centre"], newest) <= -floor
        if is_slow and found["p_slower"] < alpha_test and not is_learning:
            return "regressed", m
        if is_fast and found["p_faster"] < alpha_test and not is_learning:
            return "improved", m
        if m == 1 and is_slow and found["p_slower"] < 0.01:
            alone = "suspect"
    return alone, 1


def _contrast_case(rng: np.random.Generator, n: int, quantile: float, slow: float) -> Case:
    load = np.exp(0.1 * np.sin(np.arange(n) / 9))
    candidate, reference = (
        np.round(200 * k * load * np.exp(0.2 * rng.standard_normal(n)), 3).tolist() for k in (slow, 1)
    )
    starts = rng.integers(0, n - 9, size=(24, n // 10)).tolist()
    values = {"candidate_ms": candidate, "reference_ms": reference, "quantile": quantile, "starts": starts}
    return values | {"expect": contrast(candidate, reference, quantile, starts)}


def _between_case(rng: np.random.Generator, n: int, scale: float) -> Case:
    blocks = _blocks(rng, n, between=0.01 * scale)
    return {"blocks": blocks, "expect": between(blocks)}


def _pooled_case(rng: np.random.Generator, m: int, h: int) -> Case:
    past_z2 = np.round(4 * rng.chisquare(1, h), 4).tolist()
    values = {"blocks": _blocks(rng, m, between=0.02), "between_variance": 1e-4 * (h > 0), "past_z2": past_z2}
    return values | {"expect": pooled(*values.values())}


def _blocks(rng: np.random.Generator, n: int, *, between: float) -> list[list[float]]:
    errors = rng.uniform(0.008, 0.016, (n, 2))
    log_ratios = rng.normal(0, np.hypot(errors, between))
    rows = np.stack([log_ratios[:, 0], errors[:, 0], log_ratios[:, 1], errors[:, 1]], axis=1)
    result: list[list[float]] = np.round(rows, 5).tolist()
    return result


def _history_case(rng: np.random.Generator, n: int, change: float) -> Case:
    past = np.round(5.3 + rng.normal(0, 0.02, n), 5).tolist()
    log_time = round(5.3 + change, 5)
    return {"log_time": log_time, "past": past, "expect": history(log_time, past)}


def _decision_case(rng: np.random.Generator, n: int, change: float) -> Case:
    blocks = _blocks(rng, n, between=0.005)
    return _expected_decision(
        blocks[:-3] + [[round(a + change, 5), s, round(b + change, 5), t] for a, s, b, t in blocks[-3:]]
    )


def _expected_decision(series: Sequence[Sequence[float]]) -> Case:
    values = {"series": series, "alpha_test": 1e-4, "floor": 0.03}
    return values | {"expect": decision(series, 1e-4, 0.03)}


if __name__ == "__main__":
    json.dump(golden(), sys.stdout, separators=(",", ":"))
    sys.stdout.write("\n")
