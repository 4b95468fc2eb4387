"""The samples of one result as columns, for memory and speed: without one object per sample. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval_jobs.types import SampleScore, SampleStatus
from tracker.domain.scores.grouping import Grouping, cluster_index, grouping_of
from tracker.domain.scores.matrix import FloatArray, IntArray

ObjectArray = NDArray[Any]
StatusArray = NDArray[np.int8]

LARGEST_SCORE = 1e100
"""Larger scores do not count: a sum of squares could overflow. Broken weights have such perplexities."""

STATUSES = tuple(SampleStatus)
"""The statuses by their code."""

_ARRAYS = attrgetter("sample_ids", "subsets", "cluster_ids")
"""Of questions."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Questions:
    """One entry for each planned answer, in the order of the result; all arrays of shape (N,).

    The checkpoints of a run share one object if possible, because names take far more memory than scores.
    """

    sample_ids: ObjectArray
    subsets: ObjectArray
    cluster_ids: ObjectArray

    @cached_property
    def repeats(self) -> Repeats | None:
        """Which answers belong to one sample; None if no sample is repeated."""
        first: dict[str, int] = {}
        ids = self.sample_ids.tolist()
        sample = np.fromiter((first.setdefault(i, len(first)) for i in ids), dtype=np.int64, count=len(ids))
        if len(first) == len(ids):
            return None
        _, positions = np.unique(sample, return_index=True)
        return Repeats(once=self.at(positions), sample=sample)

    @cached_property
    def clusters(self) -> IntArray | None:
        """Index of each answer's cluster, shape (N,); None if no cluster has two."""
        return cluster_index(self.cluster_ids.tolist())

    @cached_property
    def grouping(self) -> Grouping:
        """Subset of each answer."""
        return grouping_of(self.subsets.tolist())

    def at(self, positions: IntArray) -> Questions:
        """Return the questions at `positions`."""
        return Questions(
            sample_ids=self.sample_ids[positions],
            subsets=self.subsets[positions],
            cluster_ids=self.cluster_ids[positions],
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Repeats:
    """Questions with every sample once, in the order of first appearance."""

    once: Questions
    sample: IntArray
    """Shape (N,): the position of each answer's sample in `once`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SampleColumns:
    """N planned answers; all arrays of shape (N,), in the order of the result."""

    questions: Questions
    scores: FloatArray
    """NaN if an answer has no score that counts."""
    truncated: FloatArray | None
    """1 if the answer reached the maximum length, else 0; NaN if it has no score; None: not requested."""
    output_tokens: FloatArray | None
    """NaN if unknown or if the answer has no score; None: not requested."""

    @property
    def coverage(self) -> float:
        """Answers with a score / answers planned; 0 if nothing was planned."""
        planned = self.scores.size
        if planned:
            return float(np.count_nonzero(~np.isnan(self.scores))) / planned
        return 0.0


def columns_of(samples: Sequence[SampleScore]) -> SampleColumns:
    """Return samples as columns."""
    questions = Questions(
        sample_ids=object_array([s.sample_id for s in samples]),
        subsets=object_array([s.subset for s in samples]),
        cluster_ids=object_array([s.cluster_id for s in samples]),
    )
    found = split_columns(
        [(questions, slice(None))],
        statuses=np.array([STATUSES.index(s.status) for s in samples], dtype=np.int8),
        scores=np.array([_number(s.score) for s in samples], dtype=np.float64),
        output_tokens=np.array([_number(s.output_tokens) for s in samples], dtype=np.float64),
    )
    return next(found)


def split_columns(
    parts: Sequence[tuple[Questions, slice]],
    *,
    statuses: StatusArray,
    scores: FloatArray,
    output_tokens: FloatArray | None,
) -> Iterator[SampleColumns]:
    """Yield the columns of several results from raw ones, which hold them one after another.

    Statuses are positions in `STATUSES`, numbers are NaN for none. An answer counts if it was scored (or truncated and
    scored) and its score is a usable number.
    Without `output_tokens` there are only scores: the other columns would take most of the time.
    """
    was_truncated = statuses == STATUSES.index(SampleStatus.TRUNCATED)
    with_score = was_truncated | (statuses == STATUSES.index(SampleStatus.SCORED))
    with np.errstate(invalid="ignore"):
        counts = with_score & (scores <= LARGEST_SCORE) & (scores >= -LARGEST_SCORE)
    scores = np.where(counts, scores, np.nan)
    if output_tokens is None:
        for questions, rows in parts:
            yield SampleColumns(questions=questions, scores=scores[rows], truncated=None, output_tokens=None)
        return
    truncated = np.where(counts, was_truncated, np.nan)
    output_tokens = np.where(counts, output_tokens, np.nan)
    for questions, rows in parts:
        yield SampleColumns(
            questions=questions, scores=scores[rows], truncated=truncated[rows], output_tokens=output_tokens[rows]
        )


def averaged(columns: SampleColumns) -> SampleColumns:
    """Return one row per sample, in the order of first appearance: the mean over its answers that have a value."""
    repeats = columns.questions.repeats
    if repeats is None:
        return columns
    n = repeats.once.sample_ids.size
    return _changed(columns, repeats.once, lambda values: _mean_of_groups(values, repeats.sample, n))


def in_order_of(columns: SampleColumns, questions: Questions) -> SampleColumns | None:
    """Return the same columns with `questions` as object, in its order; None if the questions differ."""
    if columns.questions is questions:
        return columns
    if columns.questions.sample_ids.size != questions.sample_ids.size:
        return None
    order = _order(columns.questions.sample_ids, questions.sample_ids)
    if not all(map(np.array_equal, _ARRAYS(columns.questions.at(order)), _ARRAYS(questions))):
        return None
    return _changed(columns, questions, lambda values: values[order])


def object_array(values: Sequence[str]) -> ObjectArray:
    """Return an array of the same string objects."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _order(mine: ObjectArray, wanted: ObjectArray) -> IntArray:
    """Return the index in `mine` of each of `wanted`, provided both have the same items."""
    if np.array_equal(mine, wanted):
        return np.arange(mine.size)
    order = np.empty(mine.size, dtype=np.int64)
    order[np.argsort(wanted, kind="stable")] = np.argsort(mine, kind="stable")
    return order


def _changed(columns: SampleColumns, questions: Questions, change: Callable[[FloatArray], FloatArray]) -> SampleColumns:
    optional = (columns.truncated, columns.output_tokens)
    truncated, output_tokens = (None if values is None else change(values) for values in optional)
    scores = change(columns.scores)
    return SampleColumns(questions=questions, scores=scores, truncated=truncated, output_tokens=output_tokens)


def _number(value: float | None) -> float:
    if value is None:
        return float("nan")
    return float(value)


def _mean_of_groups(values: FloatArray, group: IntArray, n: int) -> FloatArray:
    there = ~np.isnan(values)
    sums = np.bincount(group[there], weights=values[there], minlength=n)
    counts = np.bincount(group[there], minlength=n)
    means: FloatArray = np.divide(sums, counts, out=np.full(n, np.nan), where=counts > 0)
    return means
