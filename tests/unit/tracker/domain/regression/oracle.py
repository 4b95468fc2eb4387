"""Reference values for the verdict engine, by plain numpy over whole score tables and scipy.stats: shares no code.

python -m tests.unit.tracker.domain.regression.oracle > tests/golden/verdicts.json
"""

import json
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Case = dict[str, Any]
Table = NDArray[np.float64]
"""Shape (checkpoints, samples)."""

START, FLOOR, HISTORY = 0.004, 0.0015, 40

EQUAL = {1: 0.25, 2: 0.25, 4: 0.25, 8: 0.25}, {"recent": 0.5, "peak": 0.5}
UNEQUAL = {1: 0.1, 2: 0.2, 4: 0.3, 8: 0.4}, {"recent": 0.65, "peak": 0.35}
"""Shares of the level by size of the new block and by baseline."""


def contrast(table: Table, new: Sequence[int], base: Sequence[int]) -> tuple[float, float]:
    """Return D and the variance of a mean of per-sample differences."""
    d = table[list(new)].mean(axis=0) - table[list(base)].mean(axis=0)
    return float(d.mean()), float(d.var(ddof=1) / d.size)


def second_differences(table: Table) -> tuple[list[float], list[float]]:
    """Return c and its item variance at every checkpoint from the third on."""
    c = [table[t] - 2 * table[t - 1] + table[t - 2] for t in range(2, len(table))]
    return [float(d.mean()) for d in c], [float(d.var(ddof=1) / d.size) for d in c]


def jitter(histories: Sequence[tuple[Sequence[float], Sequence[float]]]) -> list[tuple[float, float]]:
    """Return tau^2 and the variance of its estimate, by benchmark, from (c, item variance of c) of each."""
    excess, error, length = [], [], []
    for deltas, variances in histories:
        squares = np.square(deltas[-HISTORY:])
        items = np.mean(variances[-HISTORY:]) if len(squares) else 0.0
        if len(squares) >= 3:
            squares = np.clip(squares, None, 3.5**2 * max(np.median(squares) / 0.4549, items))
        mean = squares.mean() if len(squares) else 0.0
        excess.append((mean - items) / 6)
        error.append(2 * (max(mean, items) / 6) ** 2 / max(len(squares) / 2, 1))
        length.append(len(squares))
    known = [k for k, h in enumerate(length) if h >= 3]
    shared = 0.0
    if known:
        weights = np.array([1 / (error[k] + START**4) for k in known])
        shared = max(0.0, float(np.average(np.array([excess[k] for k in known]), weights=weights)))
    found = []
    for k, h in enumerate(length):
        if h < 3:
            found.append((START**2, 3 * START**4))
            continue
        prior = 1.5 * max((5 * START**2 + h * shared) / (5 + h), FLOOR**2)
        b = 3 * prior**2 / (3 * prior**2 + error[k])
        found.append((float(max(prior + b * (excess[k] - prior), FLOOR**2)), float(b * error[k])))
    return found


def pooled(delta: float, variance: float, tau2: float, tau2_variance: float, m: float, width: float) -> Case:
    """Return se, df and both one-sided p."""
    a = 1 / m + 1 / width
    se2 = variance + a * tau2
    df = float(np.clip(2 * se2**2 / max(a**2 * tau2_variance, 1e-30), 4, 1e6))
    t = stats.t(df)
    z = delta / math.sqrt(se2)
    return {"stderr": math.sqrt(se2), "df": df, "p_worse": float(t.cdf(z)), "p_better": float(t.sf(z))}


def verdict(delta: float, stderr: float, df: float | None, alpha_test: float, effect: float) -> Case:
    """Return the word of one test, its TOST p at a margin of `effect`, and the effect found with 80 % power."""
    law = stats.norm() if df is None else stats.t(df)
    p_worse, p_better = float(law.cdf(delta / stderr)), float(law.sf(delta / stderr))
    tost = max(float(law.sf((delta + effect) / stderr)), float(law.cdf((delta - effect) / stderr)))
    word = "inconclusive"
    if p_worse < 0.01 and delta <= -effect:
        word = "suspect"
    if tost < 0.05:
        word = "equivalent"
    if p_better < alpha_test and delta >= effect:
        word = "improved"
    if p_worse < alpha_test and delta <= -effect:
        word = "regressed"
    detectable = float((stats.norm.isf(alpha_test) + stats.norm.ppf(0.8)) * stderr)
    return {"word": word, "p_worse": p_worse, "p_better": p_better, "equivalence_p": tost, "mde": detectable}


def before_the_loss(table: Table, t: int, m: int, baseline: str) -> float | None:
    """Return the mean item variance of the same contrast, of full width, at the 30 checkpoints before the new block."""
    found = []
    for past in range(max(0, t - m - 29), t - m + 1):
        bases = {name: base for name, base, _ in _bases(table, past, m)} if past + 1 >= m else {}
        if len(bases.get(baseline, ())) == 10:
            found.append(contrast(table, range(past + 1 - m, past + 1), bases[baseline])[1])
    return float(np.mean(found)) if len(found) >= 5 else None


def trace(tables: Sequence[Table], alpha: float, planned: int, *, shipped: bool) -> list[list[Any]]:
    """Return every test of a run, checkpoint by checkpoint, each seen from the whole table up to there.

    Plain: equal shares of the level, and the item variance of now. Shipped: unequal ones, and that before the loss.
    Rows: t, benchmark, m, baseline, first and last of its block, blocks it is the best of, D, se, df, p, tau, level.
    """
    by_size, by_baseline = UNEQUAL if shipped else EQUAL
    found: list[list[Any]] = []
    for t in range(len(tables[0])):
        taus = jitter([second_differences(table[: t + 1]) for table in tables])
        for k, table in enumerate(tables):
            for m in (1, 2, 4, 8):
                for name, base, factor in _bases(table, t, m):
                    delta, variance = contrast(table, range(t + 1 - m, t + 1), base)
                    tau2, doubt = taus[k]
                    a = 1 / m + 1 / len(base)
                    if shipped:
                        past = before_the_loss(table, t, m, name)
                        variance = variance if past is None else max(past, 0.6 * variance)
                        doubt += 2 * variance**2 / table.shape[1] / a**2
                    test = pooled(delta, variance, tau2, doubt, m, len(base))
                    p = min(1.0, test["p_worse"] * factor)
                    level = alpha / planned / len(tables) * by_size[m] * by_baseline[name]
                    shown = [delta, test["stderr"], test["df"], p, math.sqrt(tau2), level]
                    found.append([t, k, m, name, base[0], base[-1], factor, *shown])
    return found


def golden() -> Case:
    """Return all cases; made-up numbers from a fixed seed."""
    rng = np.random.default_rng(2026)
    tables = [_made_up_run(rng, 80, 0.0), _made_up_run(rng, 160, 0.25)]
    return {
        "about": "Reference values from the oracle in tests/unit/tracker/domain/regression; D is new - baseline.",
        "jitter": [_jitter_case(rng, lengths) for lengths in ((2, 2), (3, 12, 30), (50, 60, 45), (0, 40))],
        "contrast": [_contrast_case(rng, n, m, width) for n, m, width in ((30, 1, 2), (50, 2, 10), (70, 8, 10))],
        "pooled": [_pooled_case(rng, m, width) for m in (1, 2, 4, 8) for width in (2, 10, 1)],
        "verdict": [_verdict_case(*numbers) for numbers in _VERDICTS],
        "run": {
            "scores": [["".join(str(int(x)) for x in row) for row in table] for table in tables],
            "alpha": 0.05,
            "planned": 100,
            "min_effect": 0.01,
            "plain": trace(tables, 0.05, 100, shipped=False),
            "shipped": trace(tables, 0.05, 100, shipped=True),
        },
    }


# --- private

_VERDICTS = (
    (-0.04, 0.006, None, 1e-5),
    (-0.04, 0.006, 25.0, 1e-5),
    (-0.04, 0.006, 4.5, 1e-5),
    (-0.03, 0.011, None, 1e-5),
    (-0.004, 0.0008, None, 1e-5),
    (-0.0099, 0.0001, None, 1e-5),
    (0.0005, 0.004, 12.0, 1e-5),
    (0.05, 0.007, None, 1e-5),
    (0.05, 0.007, 6.0, 1e-5),
    (-0.011, 0.03, None, 1e-5),
    (-0.02, 0.0078, 9.0, 1e-5),
    (0.0, 0.02, None, 2e-3),
)


def _bases(table: Table, t: int, m: int) -> list[tuple[str, list[int], int]]:
    end = t + 1 - m
    found: list[tuple[str, list[int], int]] = []
    if end >= 2:
        found.append(("recent", list(range(max(0, end - 10), end)), 1))
    count = end // 10
    if count >= 2:
        blocks = [list(range(10 * i, 10 * i + 10)) for i in range(count)]
        found.append(("peak", max(blocks, key=lambda block: float(table[block].mean())), count))
    return found


def _made_up_run(rng: np.random.Generator, n: int, loss: float) -> Table:
    """Return 30 checkpoints; from the 24th on every sample is right less often by `loss`."""
    ability = rng.beta(4, 2, n)
    return np.array([(rng.random(n) < ability - loss * (t >= 24)).astype(float) for t in range(30)])


def _jitter_case(rng: np.random.Generator, lengths: Sequence[int]) -> Case:
    sizes = np.resize([0.002, 0.01, 0.03], len(lengths))
    histories = [
        (np.round(rng.normal(0, size, h), 6).tolist(), np.round(rng.uniform(0.2, 1, h) * size**2, 9).tolist())
        for h, size in zip(lengths, sizes, strict=True)
    ]
    expect = [{"tau2": tau2, "variance": variance} for tau2, variance in jitter(histories)]
    return {"histories": [{"deltas": c, "item_variances": v} for c, v in histories], "expect": expect}


def _contrast_case(rng: np.random.Generator, n: int, m: int, width: int) -> Case:
    table = np.round(rng.random((m + width, n)), 2)
    table = np.where(rng.random(table.shape) < 0.6, np.round(table), table)  # most are 0 or 1, some in between
    delta, variance = contrast(table, range(width, width + m), range(width))
    return {"scores": table.tolist(), "m": m, "expect": {"delta": delta, "item_variance": variance}}


def _pooled_case(rng: np.random.Generator, m: int, width: int) -> Case:
    delta, variance = round(float(rng.normal(-0.02, 0.02)), 6), round(float(rng.uniform(1e-5, 2e-4)), 9)
    tau2, tau2_variance = round(float(rng.uniform(2e-6, 5e-5)), 9), round(float(rng.uniform(1e-11, 2e-9)), 13)
    inputs = {"delta": delta, "item_variance": variance, "tau2": tau2, "variance": tau2_variance}
    return {**inputs, "m": m, "width": width, "expect": pooled(delta, variance, tau2, tau2_variance, m, width)}


def _verdict_case(delta: float, stderr: float, df: float | None, alpha_test: float) -> Case:
    inputs = {"delta": delta, "stderr": stderr, "df": df, "alpha_test": alpha_test, "effect": 0.01}
    return {**inputs, "expect": verdict(delta, stderr, df, alpha_test, 0.01)}


if __name__ == "__main__":
    json.dump(golden(), sys.stdout, separators=(",", ":"))
    sys.stdout.write("\n")
