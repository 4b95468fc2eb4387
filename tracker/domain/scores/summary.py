"""Mean, standard error and coverage of one benchmark, from its samples. Pure."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from eval_jobs.records.imported import Aggregate
from eval_jobs.types import EvalRecord, EvalResult, SampleScore, SampleStatus
from tracker.domain.scores.grouping import cluster_index
from tracker.domain.scores.sample_columns import LARGEST_SCORE
from tracker.domain.scores.statistics.paired import standard_error


@dataclass(frozen=True, kw_only=True)
class ScoreSummary:
    """One benchmark at one checkpoint. Counts are over planned samples times repeats."""

    mean: float | None
    """Over samples, after averaging repeats, in the metric's own direction; None: nothing was scored."""
    stderr: float | None
    """Cluster-robust if clusters group samples; None: fewer than two samples or clusters."""
    units: int | None = None
    """Number of samples, or of their clusters, behind `stderr`; None: unknown."""
    planned: int
    scored: int
    truncated: int
    unscored: int
    error: int
    coverage: float
    """(scored + truncated) / planned; 0 if nothing was planned."""


@dataclass(frozen=True, kw_only=True)
class SampleMean:
    """One sample, averaged over its repeats that have a score."""

    score: float
    cluster_id: str


@dataclass(frozen=True, kw_only=True)
class Answered:
    """One sample with a score."""

    sample: SampleScore
    answer: str | None
    """None if deleted to save space."""


def summarise(result: EvalResult) -> ScoreSummary:
    """Return mean, standard error, counts and coverage of `result`."""
    if result.aggregate is not None:
        return _of_aggregate(result.aggregate)
    counts = Counter(map(_counted_as, result.samples))
    means = sample_means(result)
    values = np.array([m.score for m in means.values()], dtype=np.float64)
    clusters = cluster_index([m.cluster_id for m in means.values()])
    planned = len(result.samples)
    with_score = counts[SampleStatus.SCORED] + counts[SampleStatus.TRUNCATED]
    return ScoreSummary(
        mean=float(values.mean()) if values.size else None,
        stderr=standard_error(values, clusters),
        units=values.size if clusters is None else int(clusters.max()) + 1,
        planned=planned,
        scored=counts[SampleStatus.SCORED],
        truncated=counts[SampleStatus.TRUNCATED],
        unscored=counts[SampleStatus.UNSCORED],
        error=counts[SampleStatus.ERROR],
        coverage=with_score / planned if planned else 0.0,
    )


def sample_means(result: EvalResult) -> dict[str, SampleMean]:
    """Return each sample that has a score by its ID, in the order of the result, with repeats averaged."""
    scores: dict[str, list[float]] = {}
    clusters: dict[str, str] = {}
    for sample in result.samples:
        if sample.score is not None and has_score(sample):
            scores.setdefault(sample.sample_id, []).append(sample.score)
            clusters.setdefault(sample.sample_id, sample.cluster_id)
    return {
        key: SampleMean(score=math.fsum(values) / len(values), cluster_id=clusters[key])
        for key, values in scores.items()
    }


def result_of(record: EvalRecord, benchmark: str) -> EvalResult | None:
    """Return a record's result of a benchmark; None if there is none or it failed."""
    return next((result for result in record.results if result.benchmark == benchmark), None)


def answers_of(result: EvalResult) -> dict[str, Answered]:
    """Return the first repeat with a score of each sample, by its ID."""
    found: dict[str, Answered] = {}
    for sample in filter(has_score, result.samples):
        answer = sample.answer if result.has_texts else None
        found.setdefault(sample.sample_id, Answered(sample=sample, answer=answer))
    return found


def first_detail(samples: Iterable[SampleScore]) -> str:
    """Return the first reason why a sample has no score; empty if there is none."""
    return next((sample.detail for sample in samples if sample.detail and not has_score(sample)), "")


def has_score(sample: SampleScore) -> bool:
    """Return whether a sample counts: it was scored (or truncated and scored) and the score is a usable number."""
    counts = sample.status in (SampleStatus.SCORED, SampleStatus.TRUNCATED)
    return counts and sample.score is not None and abs(sample.score) <= LARGEST_SCORE  # NaN and Inf compare False


def _of_aggregate(aggregate: Aggregate) -> ScoreSummary:
    """Return the summary of an imported mean; samples without a score are unknown."""
    samples = aggregate.samples or 0
    return ScoreSummary(
        mean=aggregate.mean,
        stderr=aggregate.stderr,
        units=aggregate.samples,
        planned=samples,
        scored=samples,
        truncated=0,
        unscored=0,
        error=0,
        coverage=1.0,
    )


def _counted_as(sample: SampleScore) -> SampleStatus:
    if sample.status in (SampleStatus.SCORED, SampleStatus.TRUNCATED) and not has_score(sample):
        return SampleStatus.UNSCORED  # the status implies a score, but there is none: never a wrong answer
    return sample.status
