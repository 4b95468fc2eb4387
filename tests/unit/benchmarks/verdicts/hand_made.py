"""Runs of a few checkpoints, written by hand."""

from collections.abc import Sequence

import numpy as np

from benchmarks.verdicts.series import Benchmark, Scores, Series
from benchmarks.verdicts.view import Bools, Detector, View


def series_of(*scores: Scores) -> Series:
    """A healthy run of benchmarks (T, n), each item a cluster of its own."""
    benchmarks = tuple(Benchmark(scores=x, groups=np.arange(x.shape[1])) for x in scores)
    return Series(benchmarks=benchmarks, onset=np.full(len(scores), scores[0].shape[0]))


def right(counts: Sequence[int], n: int) -> Scores:
    """(T, n) scores whose first `counts[t]` items are right at checkpoint t: every change is one way."""
    return (np.arange(n) < np.array(counts)[:, None]).astype(np.uint8)


def flags_of(detector: Detector, series: Series) -> Bools:
    """Show the run checkpoint by checkpoint; (T, K)."""
    view = View(series)
    detector.reset(view.meta())
    return np.array([detector.step(view.at(t)) for t in range(series.benchmarks[0].scores.shape[0])])
