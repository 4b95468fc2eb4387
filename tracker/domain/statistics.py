"""Paired statistics of two checkpoints: tests, intervals, equivalence, power. Pure.

    test = paired_test(candidate, baseline, clusters)   # which test, one-sided p both ways, 95 % interval
    tost_p(test.spread, margin=0.02)                    # equivalence
    mde(test.spread.stderr, alpha=1e-5)                 # what it would have found

Scores are oriented before they come here: up is better. `delta` is candidate minus baseline.
Sources: Fagerland, Lydersen and Laake 2013 (mid-p McNemar); Bonett and Price 2012 (interval of paired proportions);
Miller 2024, arXiv 2411.00640 (paired and clustered standard errors of evaluations).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def standard_error(values: FloatArray, clusters: IntArray | None = None) -> float | None:
    """Return the standard error of the mean of `values`, shape (n,); None when it cannot be estimated.

    Without clusters: sample standard deviation / sqrt(n). With clusters (index of each value's cluster, shape (n,),
    0 to C - 1): sqrt(C / (C - 1) * sum over clusters of (sum in cluster of (x - mean))^2) / n, the cluster-robust form
    of Miller 2024, also used by Inspect AI. It needs two values, or two clusters.
    """
    n = values.size
    if n < 2:
        return None
    residuals = values - values.mean()
    if clusters is None:
        return math.sqrt(float(residuals @ residuals) / (n - 1) / n)
    sums = np.bincount(clusters, weights=residuals)
    if sums.size < 2:
        return None
    return math.sqrt(float(sums @ sums) * sums.size / (sums.size - 1)) / n
