"""The samples of one result as columns: what memory and arithmetic want, without one object a sample. Pure.

columns = columns_of(result.samples)     # or straight from a file
means = averaged(columns)                # one row a sample, repeats averaged; NaN where nothing was scored
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval_jobs.types import SampleScore, SampleStatus
from tracker.domain.regression.score_matrix import FloatArray

ObjectArray = NDArray[Any]

LARGEST_SCORE = 1e100
"""Beyond this a sum of squares overflows; such a score (the perplexity of broken weights) is no measurement."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SampleColumns:
    """N planned answers; all arrays of shape (N,), in the order of the result."""

    sample_ids: ObjectArray
    subsets: ObjectArray
    cluster_ids: ObjectArray
    scores: FloatArray
    """NaN where an answer has no score that counts."""
    truncated: FloatArray
    """1 where the answer hit the longest length, 0 where not, NaN where it has no score."""
    output_tokens: FloatArray
    """NaN where it is unknown or the answer has no score."""

    @property
    def coverage(self) -> float:
        """Answers with a score / answers planned; 0 when nothing was planned."""
        planned = self.scores.size
        return float(np.count_nonzero(~np.isnan(self.scores))) / planned if planned else 0.0


def columns_of(samples: Sequence[SampleScore]) -> SampleColumns:
    """Return samples as columns."""
    return make_columns(
        sample_ids=_objects([s.sample_id for s in samples]),
        subsets=_objects([s.subset for s in samples]),
        cluster_ids=_objects([s.cluster_id for s in samples]),
        statuses=_objects([str(s.status) for s in samples]),
        numbers=np.array([[_number(s.score), _number(s.output_tokens)] for s in samples], dtype=np.float64).reshape(
            len(samples), 2
        ),
    )


def make_columns(
    *,
    sample_ids: ObjectArray,
    subsets: ObjectArray,
    cluster_ids: ObjectArray,
    statuses: ObjectArray,
    numbers: FloatArray,
) -> SampleColumns:
    """Return columns from raw ones; `numbers` of shape (N, 2) holds scores and output tokens, NaN for none.

    An answer counts when it was scored (or truncated and scored) and its score is a usable number.
    """
    scores, tokens = numbers[:, 0], numbers[:, 1]
    was_truncated = statuses == str(SampleStatus.TRUNCATED)
    with np.errstate(invalid="ignore"):
        counts = ((statuses == str(SampleStatus.SCORED)) | was_truncated) & (np.abs(scores) <= LARGEST_SCORE)
    nothing = np.full(scores.shape, np.nan)
    return SampleColumns(
        sample_ids=sample_ids,
        subsets=subsets,
        cluster_ids=cluster_ids,
        scores=np.where(counts, scores, nothing),
        truncated=np.where(counts, was_truncated.astype(np.float64), nothing),
        output_tokens=np.where(counts, tokens, nothing),
    )


def averaged(columns: SampleColumns) -> SampleColumns:
    """Return one row a sample, in the order of first appearance: the mean over its answers that have a value."""
    first: dict[str, int] = {}
    ids = columns.sample_ids.tolist()
    group = np.fromiter((first.setdefault(i, len(first)) for i in ids), dtype=np.int64, count=len(ids))
    if len(first) == len(ids):
        return columns
    at = np.full(len(first), len(ids), dtype=np.int64)
    np.minimum.at(at, group, np.arange(len(ids)))
    return SampleColumns(
        sample_ids=columns.sample_ids[at],
        subsets=columns.subsets[at],
        cluster_ids=columns.cluster_ids[at],
        scores=_mean_of_groups(columns.scores, group, len(first)),
        truncated=_mean_of_groups(columns.truncated, group, len(first)),
        output_tokens=_mean_of_groups(columns.output_tokens, group, len(first)),
    )


# --- private


def _objects(values: Sequence[str]) -> ObjectArray:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _mean_of_groups(values: FloatArray, group: NDArray[np.int64], n: int) -> FloatArray:
    there = ~np.isnan(values)
    sums = np.bincount(group[there], weights=values[there], minlength=n)
    counts = np.bincount(group[there], minlength=n)
    means: FloatArray = np.divide(sums, counts, out=np.full(n, np.nan), where=counts > 0)
    return means
