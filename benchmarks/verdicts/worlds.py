"""False alarms of the shipped engine in healthy runs that are noisier than those it was chosen on.

    python -m benchmarks.verdicts.worlds [--runs 400] [--only loud,bursts] [--procs 2] [--seed N]

Prints for each world the share of healthy runs with any alarm (95 % interval) and the alarms of 100 runs, and how often
all benchmarks together show a loss that several of them have. The jitter of a checkpoint, which all items of a
benchmark share, has a standard deviation of tau. The seeds are new at each start, unless one is named.
"""

from __future__ import annotations

import argparse
import multiprocessing
import secrets
import sys
import time
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from benchmarks.verdicts.detector import Engine, Tracker, TrackerWithSubsets
from benchmarks.verdicts.scoring import Rate
from benchmarks.verdicts.series import Floats, Ints, chances_of, draw_items
from benchmarks.verdicts.table import aligned
from benchmarks.verdicts.view import ALPHA, Bools, Meta

SIZES = (100,) * 2 + (500,) * 3 + (1319,) * 5
LEVELS = (0.4, 0.8)
BURST_CHANCE = 0.04
"""Of each checkpoint."""
RESTART_EVERY = 30
RESTART_LASTS = 3.0
"""Time constant of the recovery, in checkpoints."""


ONSET = 50
"""First checkpoint of a loss that several benchmarks have together."""


@dataclass(frozen=True, kw_only=True)
class SuiteLoss:
    """What several benchmarks lose together."""

    points: float
    """As a fraction of 1."""
    benchmarks: int
    lasts: int = 1000

    def at(self, time_now: Ints) -> Floats:
        """Return the loss at each checkpoint."""
        age = time_now - ONSET
        lost: Floats = np.where((age >= 0) & (age < self.lasts), self.points, 0.0)
        return lost


@dataclass(frozen=True, kw_only=True)
class World:
    """What is healthy in one kind of run. The defaults are the base world, as in `series.WORLDS`."""

    sizes: tuple[int, ...] = SIZES
    checkpoints: int = 100
    tau: float = 0.003
    """Median over the benchmarks."""
    tau_log_sd: float = 0.5
    cluster: float = 0.008
    """Jitter that the items of one cluster share."""
    loud: float = 0.0
    """Tau of one benchmark in the middle; 0: like the others."""
    rho: float = 0.0
    """Correlation of the jitter at neighbouring checkpoints (AR(1))."""
    df: int = 0
    """Degrees of freedom of the jitter, Student's t of standard deviation tau; 0: normal."""
    burst: float = 0.0
    """Standard deviation of a jitter that all benchmarks share at few checkpoints."""
    restart: float = 0.0
    """Loss of all benchmarks at a restart of the learning rate, regained soon."""
    at_chance: int = 0
    """Benchmarks that never leave .25."""
    gain: float = 0.15
    """Gained by every second run, saturating."""
    end: tuple[float, float] = LEVELS
    """Range of the final levels."""
    repeats: int = 1
    """Answers to each question, whose mean is its score."""
    errors: float = 0.0
    """Share of the answers without a score."""
    has_subsets: bool = False
    lost: SuiteLoss | None = None
    """What is not healthy; None: everything is."""


WORLDS = {
    "base": World(),
    "loud": World(tau=0.0015, tau_log_sd=0.0, loud=0.02),
    "unlike": World(tau_log_sd=1.2),
    "ar60": World(tau=0.008, tau_log_sd=0.0, rho=0.6),
    "ar80": World(tau=0.008, tau_log_sd=0.0, rho=0.8),
    "t3": World(tau=0.003, df=3),
    "t3_rough": World(tau=0.008, df=3),
    "bursts": World(burst=0.02),
    "restarts": World(restart=0.03),
    "chance": World(at_chance=6),
    "saturating": World(gain=0.5, end=(0.93, 0.98)),
    "n30": World(sizes=(30,) * 10),
    "repeats": World(repeats=4),
    "errors": World(errors=0.02),
    "T400": World(checkpoints=400, sizes=(100, 500, 500, 500, 1319)),
    "subsets": World(has_subsets=True),
    "all": World(tau_log_sd=1.2, rho=0.4, df=4, burst=0.01, at_chance=2, errors=0.01),
}


LOSSES = {
    "broken": World(checkpoints=60, lost=SuiteLoss(points=0.05, benchmarks=5, lasts=1)),
    "everywhere": World(checkpoints=60, sizes=(500,) * 10, lost=SuiteLoss(points=0.015, benchmarks=8)),
}
"""Runs in which several benchmarks lose something together."""

SOON = 4
"""A loss counts as found within so many checkpoints."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One healthy run."""

    scores: tuple[Floats, ...] = field(repr=False)
    """Of each benchmark, (T, n); NaN: no score."""
    groups: tuple[Ints, ...] = field(repr=False)


class UpToNow:
    """`view.Seen` of a run."""

    def __init__(self, run: Run) -> None:
        self.t = 0
        self._run = run

    def scores(self, k: int, s: int) -> Floats:
        """Return (n,) scores of benchmark `k` at checkpoint `s`."""
        scores: Floats = self._run.scores[k][s]
        return scores


def draw(world: World, seed: int, *, improves: bool) -> Run:
    """Draw one run."""
    root = np.random.default_rng([seed, 0x30B1D5])
    shared = _shared(world, root)
    order = np.random.default_rng([seed, 0x05DE5]).permutation(len(world.sizes))
    scores, groups = [], []
    for k, (n, rng) in enumerate(zip(world.sizes, root.spawn(len(world.sizes)), strict=True)):
        items = draw_items(n, rng)
        level = _level(world, k, shared, rng, improves=improves)
        if world.lost is not None and order[k] < world.lost.benchmarks:
            level -= world.lost.at(np.arange(world.checkpoints))
        clusters = int(items.groups[-1]) + 1
        expected = level[:, None] + world.cluster * rng.normal(size=(world.checkpoints, clusters))
        chances = chances_of(items, np.clip(expected, 0.001, 0.999), rng)
        right = np.mean([rng.random(chances.shape) < chances for _ in range(world.repeats)], axis=0)
        right[rng.random(chances.shape) < world.errors] = np.nan
        scores.append(right)
        groups.append(items.groups)
    return Run(scores=tuple(scores), groups=tuple(groups))


def alarms(world: World, run: Run) -> Bools:
    """Return (T, K): the alarms of the engine on the way that the product takes."""
    engine = Engine()
    detector = TrackerWithSubsets(engine) if world.has_subsets else Tracker("tracker", engine)
    detector.reset(_meta(world, run))
    seen, found = UpToNow(run), []
    for seen.t in range(world.checkpoints):
        found.append(detector.step(seen))
    return np.array(found)


def _meta(world: World, run: Run) -> Meta:
    sizes = np.array(world.sizes)
    restarts = tuple(range(RESTART_EVERY, world.checkpoints, RESTART_EVERY)) if world.restart else ()
    return Meta(
        K=sizes.size,
        T_plan=world.checkpoints,
        n=sizes,
        groups=list(run.groups),
        alpha=ALPHA,
        restarts=restarts,
    )


def delay_of(world: World, run: Run) -> int | None:
    """Return after how many checkpoints all benchmarks together show the loss of `world`; None: not within `SOON`."""
    engine, onset = Engine(), ONSET
    detector = Tracker("tracker", engine)
    detector.reset(_meta(world, run))
    seen = UpToNow(run)
    for seen.t in range(onset + SOON):
        detector.step(seen)
        if engine.suite(seen) and seen.t >= onset:
            return seen.t - onset
    return None


def main() -> None:
    """Print the tables."""
    arguments = _arguments()
    began_s = time.monotonic()
    seeds = range(arguments.seed, arguments.seed + arguments.runs)
    alarmed = [("world", "runs with an alarm", "% of runs (95 % interval)", "alarms of 100 runs")]
    found = [("loss", "found at once, %", f"found within {SOON} checkpoints, %")]
    with multiprocessing.get_context("spawn").Pool(arguments.procs) as pool:
        for name in arguments.only or (*WORLDS, *LOSSES):
            if name in WORLDS:
                alarmed.append(_row(name, pool.map(partial(_count, name), seeds, 4)))
                sys.stderr.write(f"{alarmed[-1]}\n")
            else:
                found.append(_loss_row(name, pool.map(partial(_delay, name), seeds, 4)))
                sys.stderr.write(f"{found[-1]}\n")
    for rows in (alarmed, found):
        if len(rows) > 1:
            sys.stdout.write(f"{aligned(rows)}\n\n")
    sys.stdout.write(f"{arguments.runs} runs each, seeds from {arguments.seed}, {time.monotonic() - began_s:.0f} s\n")


# --- private


def _count(name: str, seed: int) -> int:
    world = WORLDS[name]
    return int(alarms(world, draw(world, seed, improves=seed % 2 == 0)).sum())


def _delay(name: str, seed: int) -> int | None:
    world = LOSSES[name]
    return delay_of(world, draw(world, seed, improves=seed % 2 == 0))


def _loss_row(name: str, delays: list[int | None]) -> tuple[str, str, str]:
    soon = [delay for delay in delays if delay is not None]
    rates = (Rate(count=count, total=len(delays)) for count in (soon.count(0), len(soon)))
    at_once, within = (f"{100 * r.share:.0f} ({100 * r.interval()[0]:.0f}-{100 * r.interval()[1]:.0f})" for r in rates)
    return name, at_once, within


def _row(name: str, counts: list[int]) -> tuple[str, str, str, str]:
    rate = Rate(count=sum(count > 0 for count in counts), total=len(counts))
    share, low, high = (100 * x for x in (rate.share, *rate.interval()))
    return name, str(rate.count), f"{share:.1f} ({low:.1f}-{high:.1f})", f"{100 * sum(counts) / len(counts):.0f}"


def _shared(world: World, rng: np.random.Generator) -> Floats:
    """Draw what all benchmarks gain or lose at each checkpoint, (T,)."""
    time_now = np.arange(world.checkpoints)
    bursts = world.burst * rng.normal(size=time_now.size) * (rng.random(time_now.size) < BURST_CHANCE)
    since = time_now % RESTART_EVERY
    dips = np.where(time_now >= RESTART_EVERY, world.restart * np.exp(-since / RESTART_LASTS), 0.0)
    shared: Floats = bursts - dips
    return shared


def _level(world: World, k: int, shared: Floats, rng: np.random.Generator, *, improves: bool) -> Floats:
    """Draw the expected accuracy of benchmark `k` at each checkpoint, (T,)."""
    tau = world.tau * rng.lognormal(0.0, world.tau_log_sd)
    if world.loud and k == len(world.sizes) // 2:
        tau = world.loud
    if k < world.at_chance:
        return np.full(world.checkpoints, 0.25)
    level: Floats = rng.uniform(*world.end) + tau * _jitter(world, rng) + shared
    if improves:
        level -= world.gain * np.exp(-np.arange(world.checkpoints) / (0.2 * world.checkpoints))
    return level


def _jitter(world: World, rng: np.random.Generator) -> Floats:
    """Draw a stationary series of variance 1, (T,)."""
    length = world.checkpoints
    if world.df:
        noise = rng.standard_t(world.df, size=length) * ((world.df - 2) / world.df) ** 0.5
    else:
        noise = rng.normal(size=length)
    series: Floats = np.empty(length)
    series[0] = noise[0]
    for t in range(1, length):
        series[t] = world.rho * series[t - 1] + (1 - world.rho**2) ** 0.5 * noise[t]
    return series


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.verdicts.worlds",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=400, help="runs of each kind")
    parser.add_argument("--only", type=lambda text: text.split(","), help=f"of {', '.join((*WORLDS, *LOSSES))}")
    parser.add_argument("--procs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 40), help="of the first run")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.only or ()) - set(WORLDS) - set(LOSSES))
    if unknown:
        parser.error(f"--only: no world {', '.join(unknown)}")
    return arguments


if __name__ == "__main__":
    main()
