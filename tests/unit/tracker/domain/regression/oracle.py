"""Reference values for the verdict engine, by plain numpy over whole score tables and scipy.stats: shares no code.

python -m tests.unit.tracker.domain.regression.oracle > tests/golden/verdicts.json
"""

import json
import math
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Case = dict[str, Any]
Table = NDArray[np.float64]
"""Shape (checkpoints, samples)."""

HISTORY = 40
TAUS = np.geomspace(0.0005, 0.1, 45)
CENTRES = np.geomspace(0.001, 0.025, 15)
WIDTHS = {0.2: 2.0, 0.4: 3.0, 0.7: 2.0, 1.1: 1.0, 1.6: 0.5}
PERSISTENCES = {0.0: 0.67, 0.2: 0.1, 0.4: 0.08, 0.55: 0.055, 0.7: 0.045, 0.8: 0.03, 0.88: 0.02}
"""Correlation of the jitter at neighbouring checkpoints, and its probability before a run has shown anything."""

Part = tuple[int, Sequence[float], Sequence[float]]
"""Checkpoints in a block, second differences of blocks, and their item variances."""
Known = list[tuple[float, float, float, float]]
"""For every persistence: itself, its probability, mean of tau^2, mean of tau^4."""

EQUAL = {1: 0.25, 2: 0.25, 4: 0.25, 8: 0.25}, {"recent": 0.5, "peak": 0.5}
UNEQUAL = {1: 0.1, 2: 0.2, 4: 0.3, 8: 0.4}, {"recent": 0.65, "peak": 0.35}
"""Shares of the level by size of the new block and by baseline."""


def contrast(table: Table, new: Sequence[int], base: Sequence[int]) -> tuple[float, float]:
    """Return D and the variance of a mean of per-sample differences."""
    d = table[list(new)].mean(axis=0) - table[list(base)].mean(axis=0)
    return float(d.mean()), float(d.var(ddof=1) / d.size)


def second_differences(table: Table) -> list[Part]:
    """Return c and its item variance of all neighbouring triples of blocks, for blocks of each size."""
    found: list[Part] = []
    for size in (1, 2, 4, 6):
        newest = table[-HISTORY - 2 :]
        c = []
        for start in range(len(newest) - 3 * size + 1):
            one, two, three = (newest[start + i * size : start + (i + 1) * size].mean(axis=0) for i in range(3))
            if size == 1 or not _has_jump(newest, start, start + 3 * size):
                c.append(one - 2 * two + three)
        found.append((size, [float(d.mean()) for d in c], [float(d.var(ddof=1) / d.size) for d in c]))
    return found


def _has_jump(table: Table, start: int, end: int) -> bool:
    """Return whether a neighbouring pair differs by more than 6 standard deviations of what pairs usually do."""
    moves = np.abs(np.diff(table.mean(axis=1)))
    return bool((moves[start : end - 1] > 6 * np.median(moves) / 0.6745).any())


def quadratic(weights: Sequence[float], places: Sequence[int], r: float) -> float:
    """Return the variance of a weighted sum of an AR(1) of variance 1 at `places`."""
    w, at = np.array(weights), np.array(places)
    correlation = np.where(at[:, None] == at, 1.0, r ** np.abs(at[:, None] - at).astype(float))
    return float(w @ correlation @ w)


def jitter(histories: Sequence[Sequence[Part]]) -> list[Known]:
    """Return what is known of the jitter of each benchmark: Bayes' rule, one cell of the grid after the other."""
    likelihood = np.ones((len(histories), len(PERSISTENCES), TAUS.size))
    for k, parts in enumerate(histories):
        logs = np.zeros((len(PERSISTENCES), TAUS.size))
        for size, deltas, variances in parts:
            squares = np.square(deltas[-HISTORY:])
            if len(squares) < 3:
                continue
            items, df = float(np.mean(variances[-HISTORY:])), len(squares) / 2 / size
            mean = np.clip(squares, None, 3.5**2 * max(np.median(squares) / 0.4549, items)).mean()
            triple = [1 / size] * size + [-2 / size] * size + [1 / size] * size
            for i, r in enumerate(PERSISTENCES):
                expected = items + quadratic(triple, range(3 * size), r) * TAUS**2
                logs[i] += stats.chi2(df, scale=expected / df).logpdf(mean)
        likelihood[k] = np.exp(logs - logs.max())
    posterior = np.zeros_like(likelihood)
    cells: list[tuple[float, int, NDArray[np.float64]]] = []
    for i, chance in enumerate(PERSISTENCES.values()):
        for weight, prior in _priors():
            joint = likelihood[:, i] * prior
            cells.append((math.log(chance * weight) + float(np.log(joint.sum(axis=1)).sum()), i, joint))
    largest = max(cell for cell, _, _ in cells)
    for cell, i, joint in cells:
        posterior[:, i] += math.exp(cell - largest) * joint / joint.sum(axis=1, keepdims=True)
    return [_known(one / one.sum()) for one in posterior]


@cache
def _priors() -> list[tuple[float, NDArray[np.float64]]]:
    """Return for every centre and width of tau its weight and the distribution of tau over the grid."""
    found = []
    for width, weight in WIDTHS.items():
        for centre in CENTRES:
            prior = stats.norm(np.log(centre), width).pdf(np.log(TAUS))
            by_centre = float(stats.norm(np.log(0.003), 0.5).pdf(np.log(centre)))
            found.append((weight * by_centre, prior / prior.sum()))
    return found


def _known(posterior: NDArray[np.float64]) -> Known:
    found = []
    for r, cells in zip(PERSISTENCES, posterior, strict=True):
        weights = cells / cells.sum()
        found.append((r, float(cells.sum()), float(weights @ TAUS**2), float(weights @ TAUS**4)))
    return found


def tau_of(known: Known) -> float:
    """Return the root of the mean of tau^2."""
    return math.sqrt(sum(chance * tau2 for _, chance, tau2, _ in known))


def pooled(delta: float, variance: float, n: int, known: Known, shares: Sequence[float]) -> Case:
    """Return the scale, df and both one-sided p, from the inverse gamma with the mean and variance of the variance."""
    total = variance * (1 + 2 / n) + sum(p * a * tau2 for (_, p, tau2, _), a in zip(known, shares, strict=True))
    doubt = 2 * variance**2 / n
    doubt += sum(p * a**2 * (tau4 - tau2**2) for (_, p, tau2, tau4), a in zip(known, shares, strict=True))
    shape = 2 + total**2 / max(doubt, 1e-30)
    df, scale = 2 * shape, math.sqrt(total * (shape - 1) / shape)
    t = stats.t(df)
    return {"stderr": scale, "df": df, "p_worse": float(t.cdf(delta / scale)), "p_better": float(t.sf(delta / scale))}


def verdict(delta: float, stderr: float, df: float | None, alpha_test: float, effect: float) -> Case:
    """Return the word of one test, its TOST p at a margin of `effect`, and the effect found with 80 % power."""
    law = stats.norm() if df is None else stats.t(df)
    p_worse, p_better = float(law.cdf(delta / stderr)), float(law.sf(delta / stderr))
    tost = max(float(law.sf((delta + effect) / stderr)), float(law.cdf((delta - effect) / stderr)))
    word = "inconclusive"
    if p_worse < 0.01 and delta <= -effect:
        word = "suspect"
    if p_better < 0.01 and delta >= effect:
        word = "rising"
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


def noise(tables: list[Table]) -> list[Known]:
    """Return the jitter from the checkpoints before those that may be averaged, if 24 are and it does not persist."""
    early = [table[:-8] if len(table) >= 32 else table for table in tables]
    found = jitter([second_differences(table) for table in early])
    persistence = max(sum(r * probability for r, probability, _, _ in known) for known in found)
    if persistence < 0.25:
        return found
    return jitter([second_differences(table) for table in tables])


def trace(tables: Sequence[Table], alpha: float, planned: int, *, shipped: bool) -> list[list[Any]]:
    """Return every test of a run, checkpoint by checkpoint, each seen from the whole table up to there.

    Plain: equal shares of the level, and the item variance of now. Shipped: unequal ones, and that before the loss.
    Rows: t, benchmark, m, baseline, first and last of its block, blocks it is the best of, D, se, df, p, tau, level.
    """
    by_size, by_baseline = UNEQUAL if shipped else EQUAL
    found: list[list[Any]] = []
    for t in range(len(tables[0])):
        taus = noise([table[: t + 1] for table in tables])
        for k, table in enumerate(tables):
            for m in (1, 2, 4, 8):
                for name, base, factor in _bases(table, t, m):
                    delta, variance = contrast(table, range(t + 1 - m, t + 1), base)
                    if shipped:
                        past = before_the_loss(table, t, m, name)
                        variance = variance if past is None else max(past, 0.6 * variance)
                    weights = [-1 / len(base)] * len(base) + [1 / m] * m
                    places = [*base, *range(t + 1 - m, t + 1)]
                    shares = [quadratic(weights, places, r) for r in PERSISTENCES]
                    test = pooled(delta, variance, table.shape[1], taus[k], shares)
                    p = min(1.0, test["p_worse"] * factor)
                    level = alpha / planned / len(tables) * by_size[m] * by_baseline[name]
                    shown = [delta, test["stderr"], test["df"], p, tau_of(taus[k]), level]
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
    if end >= 1:
        found.append(("recent", list(range(max(0, end - 10), end)), 1))
    count = end // 10
    if count >= 2:
        blocks = [list(range(10 * i, 10 * i + 10)) for i in range(count)]
        found.append(("peak", max(blocks, key=lambda block: float(table[block].mean())), count))
    return found


def _made_up_run(rng: np.random.Generator, n: int, loss: float) -> Table:
    """Return 40 checkpoints; from the 24th on every sample is right less often by `loss`."""
    ability = rng.beta(4, 2, n)
    return np.array([(rng.random(n) < ability - loss * (t >= 24)).astype(float) for t in range(40)])


def _jitter_case(rng: np.random.Generator, lengths: Sequence[int]) -> Case:
    sizes = np.resize([0.002, 0.01, 0.03], len(lengths))
    histories: list[list[Part]] = []
    for length, size in zip(lengths, sizes, strict=True):
        parts: list[Part] = []
        for block in (1, 4):
            h = max(length - 3 * block, 0)
            deltas, variances = rng.normal(0, size, h), rng.uniform(0.2, 1, h) * size**2
            parts.append((block, np.round(deltas, 6).tolist(), np.round(variances, 9).tolist()))
        histories.append(parts)
    return {"histories": histories, "expect": jitter(histories)}


def _contrast_case(rng: np.random.Generator, n: int, m: int, width: int) -> Case:
    table = np.round(rng.random((m + width, n)), 2)
    table = np.where(rng.random(table.shape) < 0.6, np.round(table), table)  # most are 0 or 1, some in between
    delta, variance = contrast(table, range(width, width + m), range(width))
    return {"scores": table.tolist(), "m": m, "expect": {"delta": delta, "item_variance": variance}}


def _pooled_case(rng: np.random.Generator, m: int, width: int) -> Case:
    delta, variance = round(float(rng.normal(-0.02, 0.02)), 6), round(float(rng.uniform(1e-5, 2e-4)), 9)
    tau2, tau2_variance = round(float(rng.uniform(2e-6, 5e-5)), 9), round(float(rng.uniform(1e-11, 2e-9)), 13)
    inputs = {"delta": delta, "item_variance": variance, "tau2": tau2, "variance": tau2_variance}
    known = [(0.0, 1.0, tau2, tau2**2 + tau2_variance)]
    expect = pooled(delta, variance, 100, known, [1 / m + 1 / width])
    return {**inputs, "m": m, "width": width, "expect": expect}


def _verdict_case(delta: float, stderr: float, df: float | None, alpha_test: float) -> Case:
    inputs = {"delta": delta, "stderr": stderr, "df": df, "alpha_test": alpha_test, "effect": 0.01}
    return {**inputs, "expect": verdict(delta, stderr, df, alpha_test, 0.01)}


if __name__ == "__main__":
    json.dump(golden(), sys.stdout, separators=(",", ":"))
    sys.stdout.write("\n")
