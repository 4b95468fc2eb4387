"""Simulated training runs: which of a benchmark's items each checkpoint gets right.

    series = simulate(seed=7, case=Case(world="real", trend="improve", plant="drop3"))
    series.benchmarks[0].scores      # (100, 100) of 0 and 1: checkpoints x items

An item is right with probability logistic(scale * discrimination * (ability - difficulty) + drift), the two-parameter
model of item response theory. `scale` is chosen so that 5 to 15 % of the items flip between neighbouring checkpoints
of a model that gets half of them right; `drift` is a slow AR(1) of every item. `ability` follows the expected accuracy:
a plateau or 15 points gained, a jitter of the whole checkpoint (tau), a jitter of each cluster, and the planted loss.

The same seed draws the same random numbers whatever the case: runs with and without a plant differ by the plant alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.uint8]
Floats = NDArray[np.float64]
Float32s = NDArray[np.float32]
Ints = NDArray[np.int64]

CHECKPOINTS = 100
SIZES = (100,) * 5 + (500,) * 6 + (1319,) * 7 + (14042,) * 2
CLUSTERS = {100: 10, 500: 20, 1319: 20, 14042: 57}
FEW_CLUSTERS = 5
"""Of a benchmark of another size."""
ONSETS = (40, 50, 60, 70)

GAIN, GAIN_CHECKPOINTS = 0.15, 20.0
"""What an improving run gains in all, and the time constant of 1 - exp(-t / constant)."""
DRIFT_CORRELATION = 0.95
"""Of an item's drift (standard deviation 1 on the logistic scale) at neighbouring checkpoints."""


@dataclass(frozen=True, kw_only=True)
class World:
    """Noise beyond the items' own flips, standard deviations as fractions of 1 (.01 is one point)."""

    tau: float
    """Median over benchmarks of the jitter that all items of a checkpoint share."""
    tau_log_sd: float
    cluster: float
    """Jitter that the items of one cluster share."""


@dataclass(frozen=True, kw_only=True)
class Plant:
    """A true loss of accuracy in one benchmark of each size."""

    loss: float
    ramp: int = 1
    """Checkpoints until the whole loss is there."""
    lasts: int = CHECKPOINTS
    cluster_share: float = 1.0
    """Share of the clusters that lose; at least one does."""
    horizon: int = 10
    """An alarm counts as found up to so many checkpoints from the onset on."""

    def at(self, age: Ints) -> Floats:
        """Return the loss at `age` checkpoints after the onset, same shape; negative ages are healthy."""
        grown = np.clip(age + 1, 0, self.ramp) / self.ramp
        return self.loss * np.where(age < self.lasts, grown, 0.0)


WORLDS = {
    "pure": World(tau=0.0, tau_log_sd=0.0, cluster=0.0),
    "real": World(tau=0.003, tau_log_sd=0.5, cluster=0.008),
    "rough": World(tau=0.008, tau_log_sd=0.3, cluster=0.008),
}
TRENDS = ("plateau", "improve")
PLANTS = {
    "drop1": Plant(loss=0.01),
    "drop2": Plant(loss=0.02),
    "drop3": Plant(loss=0.03),
    "drop5": Plant(loss=0.05),
    "drop10": Plant(loss=0.10),
    "drift": Plant(loss=0.09, ramp=30, horizon=30),
    "subset": Plant(loss=0.20, cluster_share=0.05),
    "recover": Plant(loss=0.05, lasts=3, horizon=4),
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """Which series: a key of WORLDS, one of TRENDS, a key of PLANTS or None for a healthy run."""

    world: str
    trend: str
    plant: str | None = None


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One benchmark of a run."""

    scores: Scores = field(repr=False)
    """(T, n), 0 or 1."""
    groups: Ints = field(repr=False)
    """(n,), cluster of each item, 0 to C - 1."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One run."""

    benchmarks: tuple[Benchmark, ...]
    onset: Ints
    """(K,), first checkpoint of the planted loss; CHECKPOINTS where there is none."""


def simulate(seed: int, case: Case, sizes: tuple[int, ...] = SIZES) -> Series:
    """Return one run of CHECKPOINTS checkpoints; a planted loss hits the first benchmark of each size, at ONSETS."""
    root = np.random.default_rng([seed, 0x5E71E5])
    onset = np.full(len(sizes), CHECKPOINTS)
    hit = [sizes.index(n) for n in sorted(set(sizes))]
    drawn = root.permutation(ONSETS)[: len(hit)]
    if case.plant is not None:
        onset[hit] = drawn
    streams = root.spawn(len(sizes))
    benchmarks = tuple(_benchmark(n, case, int(at), rng) for n, at, rng in zip(sizes, onset, streams, strict=True))
    return Series(benchmarks=benchmarks, onset=onset)


@dataclass(frozen=True, kw_only=True)
class Items:
    """The items of one benchmark, each array of shape (n,)."""

    slope: Float32s
    difficulty: Float32s
    groups: Ints


def draw_items(n: int, rng: np.random.Generator) -> Items:
    """Draw `n` items."""
    discrimination = rng.lognormal(0.0, 0.3, n)
    difficulty = rng.normal(size=n)
    p = _logistic(np.outer(_SCALES, (discrimination * difficulty)[:: max(1, n // 1500)]))  # some of the items will do
    flips = (2 * p * (1 - p)).mean(axis=1)  # falls as the scale rises
    scale = np.interp(rng.uniform(0.05, 0.15), flips[::-1], _SCALES[::-1])
    _, groups = np.unique(np.sort(rng.integers(CLUSTERS.get(n, FEW_CLUSTERS), size=n)), return_inverse=True)
    return Items(
        slope=(scale * discrimination).astype(np.float32), difficulty=difficulty.astype(np.float32), groups=groups
    )


def chances_of(items: Items, expected: Floats, rng: np.random.Generator) -> Float32s:
    """Draw the probability that each item is right, (T, n), from the expected accuracy of each cluster, (T, C)."""
    curve = _logistic(_ATTENUATION * items.slope * (_ABILITIES[:, None] - items.difficulty)).mean(axis=1)
    ability = np.interp(expected, curve, _ABILITIES).astype(np.float32)
    logit = _drift(expected.shape[0], items.slope.size, rng)
    logit += items.slope * (ability[:, items.groups] - items.difficulty)
    return _logistic(logit)


# --- private

_Array = TypeVar("_Array", Float32s, Floats)

_ABILITIES = np.linspace(-4, 4, 121, dtype=np.float32)
_SCALES = np.geomspace(0.3, 60, 121)
_ATTENUATION = (1 + (16 * np.sqrt(3) / (15 * np.pi)) ** 2) ** -0.5
"""Mean of logistic(x + N(0, 1)) is about logistic(_ATTENUATION * x) (Johnson, Kotz and Balakrishnan 1995)."""


def _benchmark(n: int, case: Case, onset: int, rng: np.random.Generator) -> Benchmark:
    items = draw_items(n, rng)
    expected = _expected(case, onset, int(items.groups[-1]) + 1, rng)
    chances = chances_of(items, expected, rng)
    right = rng.random(chances.shape, dtype=np.float32) < chances
    return Benchmark(scores=right.view(np.uint8), groups=items.groups)


def _expected(case: Case, onset: int, n_clusters: int, rng: np.random.Generator) -> Floats:
    """Expected accuracy of each checkpoint and cluster, (T, C)."""
    world, time = WORLDS[case.world], np.arange(CHECKPOINTS)
    tau = world.tau * rng.lognormal(0.0, world.tau_log_sd)
    level = rng.uniform(0.4, 0.8) + tau * rng.normal(size=CHECKPOINTS)
    if case.trend == "improve":
        level -= GAIN * np.exp(-time / GAIN_CHECKPOINTS)
    expected = level[:, None] + world.cluster * rng.normal(size=(CHECKPOINTS, n_clusters))
    if onset < CHECKPOINTS and case.plant is not None:
        plant = PLANTS[case.plant]
        losing = max(1, round(plant.cluster_share * n_clusters))
        expected[:, :losing] -= plant.at(time - onset)[:, None]
    return expected


def _drift(length: int, n: int, rng: np.random.Generator) -> Float32s:
    """Draw a stationary AR(1) of variance 1 for each item, (T, n)."""
    drift = rng.standard_normal((length, n), dtype=np.float32)
    drift[1:] *= (1 - DRIFT_CORRELATION**2) ** 0.5
    for t in range(1, length):
        drift[t] += DRIFT_CORRELATION * drift[t - 1]
    return drift


def _logistic(x: _Array) -> _Array:
    """1 / (1 + exp(-x)), without its overflow."""
    result = np.tanh(x / 2)
    result += 1
    result /= 2
    return result
