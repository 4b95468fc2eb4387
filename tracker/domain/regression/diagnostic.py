"""Noise between the checkpoints of a run, and what of it leaves the range in which the error rate was simulated. Pure.

The limits are those of the runs in benchmarks/verdicts/worlds.py whose rate of false alarms was at most 5 %.

Tails: the second differences of the means of each benchmark, without sign, divided by their median, then pooled. Their
95 % quantile is compared with that of a normal distribution, 1.96 / 0.6745. A quantile, because a single loss is no
tail.

Persistence is seen only if it is large beside the noise of the samples: at checkpoint 100, r = .8 is found in 26 of 30
runs with a jitter of 2 points, and in 14 with .8 points; r = .6 is taken for more in 5. A learning curve that bends
looks alike (world `saturating`: 15 at checkpoint 25, none at 100), and jitter with r above .9 looks like a trend.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from tracker.domain.records.calibration import BenchmarkNoise, NoiseAspect, NoiseOfRun, OutOfRange
from tracker.domain.regression.blocks import newest_of
from tracker.domain.regression.detector import Track
from tracker.domain.regression.jitter import MIN_HISTORY, WINDOW, Jitter, persistence_of
from tracker.domain.scores.matrix import FloatArray

LARGEST_JITTER = 0.03
"""World `unlike`: up to 3 points."""

LARGEST_SPREAD = 30.0
"""World `unlike`: 0.1 to 3 points."""

LARGEST_PERSISTENCE = 0.6
"""World `ar60`; in `ar80` up to 10 % of the runs raise a false alarm."""

LONGEST_TAILS = 1.5
"""World `t3`: 95 % of the runs of 10 benchmarks with jitter of Student's t with 3 degrees of freedom are below."""

MIN_DIFFERENCES = 80
"""Minimum number of second differences for `tails`: those of two benchmarks along 42 checkpoints."""

MIN_CHECKPOINTS = 20
"""Minimum number of checkpoints of a benchmark for a statement on its jitter: along fewer, learning looks like it."""

_MIN_OWN = 8
"""Minimum number of second differences of one benchmark for their median."""

_NORMAL_QUANTILES = 1.96 / 0.6745


def diagnosed_noise(benchmarks: Mapping[str, tuple[Track, Jitter]]) -> NoiseOfRun | None:
    """Return the noise of a run up to the candidate, from the track and the jitter of each benchmark, by name.

    None if no benchmark has `MIN_HISTORY` second differences.
    """
    known: list[BenchmarkNoise] = []
    moves: list[FloatArray] = []
    persistence = 0.0
    for name, (track, jitter) in benchmarks.items():
        own = _moves(track)
        if own.size < MIN_HISTORY:
            continue
        moves.append(own)
        known.append(BenchmarkNoise(benchmark=name, jitter=math.sqrt(jitter.tau2), checkpoints=own.size + 2))
        persistence = persistence_of(jitter)  # the same for all: they share r
    if not known:
        return None
    tails, differences = _tails(moves)
    known.sort(key=lambda one: -one.jitter)
    return NoiseOfRun(
        benchmarks=tuple(known),
        persistence=persistence,
        tails=tails,
        differences=differences,
        out_of_range=(*_jitters_out_of_range(known), *_run_out_of_range(persistence, tails)),
    )


def _moves(track: Track) -> FloatArray:
    """Return the newest second differences of the means without their sign, oldest first, shape (h,)."""
    rows = newest_of(track.rows[track.noise_from : track.noise_to], WINDOW)
    moves = np.abs(np.diff(track.scores.means[rows], n=2))
    known: FloatArray = moves[np.isfinite(moves)]
    return known


def _tails(moves: Iterable[FloatArray]) -> tuple[float | None, int]:
    """Return the tails and the number of second differences behind them."""
    scaled = [np.zeros(0)]
    for own in moves:
        median = float(np.median(own))
        if own.size >= _MIN_OWN and median > 0:
            scaled.append(own / median)
    pooled = np.concatenate(scaled)
    if pooled.size < MIN_DIFFERENCES:
        return None, pooled.size
    return float(np.quantile(pooled, 0.95)) / _NORMAL_QUANTILES, pooled.size


def _jitters_out_of_range(known: Sequence[BenchmarkNoise]) -> Iterator[OutOfRange]:
    """Yield what is out of range in the jitters, the largest first."""
    enough = [one for one in known if one.checkpoints >= MIN_CHECKPOINTS]
    if not enough:
        return
    largest, smallest = enough[0], enough[-1]
    if largest.jitter > LARGEST_JITTER:
        aspect, name = NoiseAspect.JITTER, largest.benchmark
        yield OutOfRange(aspect=aspect, value=largest.jitter, limit=LARGEST_JITTER, benchmark=name)
    spread = largest.jitter / smallest.jitter
    if spread > LARGEST_SPREAD:
        yield OutOfRange(aspect=NoiseAspect.SPREAD, value=spread, limit=LARGEST_SPREAD)


def _run_out_of_range(persistence: float, tails: float | None) -> Iterator[OutOfRange]:
    if persistence > LARGEST_PERSISTENCE:
        yield OutOfRange(aspect=NoiseAspect.PERSISTENCE, value=persistence, limit=LARGEST_PERSISTENCE)
    if tails is not None and tails > LONGEST_TAILS:
        yield OutOfRange(aspect=NoiseAspect.TAILS, value=tails, limit=LONGEST_TAILS)
