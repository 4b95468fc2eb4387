"""Subset and cluster of each sample. Pure, and importable without the statistics."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Grouping:
    """Subset of each sample."""

    names: tuple[str, ...]
    index: IntArray
    """Shape (n,): position in `names`."""


def grouping_of(subsets: Sequence[str]) -> Grouping:
    """Return the grouping by name, in the order of first appearance."""
    numbers: dict[str, int] = {}
    index = np.array([numbers.setdefault(name, len(numbers)) for name in subsets], dtype=np.int64)
    return Grouping(names=tuple(numbers), index=index)


def cluster_index(cluster_ids: Sequence[str]) -> IntArray | None:
    """Return the index of each sample's cluster, shape (n,); None if no cluster holds two samples.

    An empty id is a cluster of its own.
    """
    # An id from a data file cannot contain NUL, so the key of a lone sample never collides with an id.
    found = grouping_of([cluster_id or f"\0{position}" for position, cluster_id in enumerate(cluster_ids)])
    if len(found.names) < len(cluster_ids):
        return found.index
    return None
