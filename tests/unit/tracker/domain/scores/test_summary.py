"""Summaries of one benchmark at one checkpoint."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_jobs.types import EvalResult, SampleScore, SampleStatus
from tests.unit.tracker.domain.making import result_of, samples_of
from tracker.domain.scores.grouping import cluster_index
from tracker.domain.scores.summary import sample_means, summarise


def with_samples(*samples: SampleScore) -> EvalResult:
    return replace(result_of(()), samples=samples)


def test_errors_count_against_coverage_and_never_as_wrong_answers() -> None:
    summary = summarise(result_of([1.0, 0.0, None, 1.0]))
    assert summary.mean == pytest.approx(2 / 3)
    assert (summary.planned, summary.scored, summary.error, summary.coverage) == (4, 3, 1, 0.75)


def test_a_truncated_answer_counts_with_its_score() -> None:
    right, cut = samples_of([1.0, 0.0])
    summary = summarise(with_samples(right, replace(cut, status=SampleStatus.TRUNCATED)))
    assert (summary.mean, summary.scored, summary.truncated, summary.coverage) == (0.5, 1, 1, 1.0)


def test_what_has_no_score_counts_in_no_mean_whatever_its_status_or_its_number_says() -> None:
    right, broken = samples_of([1.0, 0.0])
    for score in (None, math.nan, math.inf, -math.inf, 1e300):
        summary = summarise(with_samples(right, replace(broken, score=score)))
        assert (summary.mean, summary.scored, summary.unscored, summary.coverage) == (1.0, 1, 1, 0.5), score
    summary = summarise(with_samples(right, replace(broken, status=SampleStatus.ERROR)))
    assert (summary.mean, summary.error) == (1.0, 1)


def test_nothing_scored_has_no_mean_and_one_sample_or_cluster_no_standard_error() -> None:
    nothing = summarise(result_of([None, None]))
    assert (nothing.mean, nothing.stderr, nothing.coverage) == (None, None, 0.0)
    assert summarise(result_of([])).coverage == 0.0
    assert summarise(result_of([1.0])).stderr is None
    assert [summarise(result_of([0.0] * 7, clusters=c)).units for c in ([""] * 7, [*"aabbbcc"])] == [7, 3]
    assert summarise(result_of([1.0, 0.0], clusters=["a", "a"])).stderr is None


def test_repeats_are_averaged_first_and_never_counted_as_samples() -> None:
    one, two = samples_of([1.0, 0.0])
    again = replace(one, repeat=1, score=0.0)
    summary = summarise(with_samples(one, again, two, replace(two, repeat=1)))
    assert (summary.mean, summary.planned, summary.coverage) == (0.25, 4, 1.0)
    assert summary.stderr == pytest.approx(np.std([0.5, 0.0], ddof=1) / math.sqrt(2))


def test_a_repeat_without_a_score_leaves_the_others() -> None:
    one, two = samples_of([1.0, None])
    summary = summarise(with_samples(one, replace(two, sample_id=one.sample_id, repeat=1)))
    assert (summary.mean, summary.coverage) == (1.0, 0.5)


def test_identical_samples_in_one_cluster_count_once() -> None:
    scores = [1.0] * 5 + [0.0] * 5 + [1.0] * 5
    clusters = ["a"] * 5 + ["b"] * 5 + ["c"] * 5
    plain, clustered = summarise(result_of(scores)), summarise(result_of(scores, clusters=clusters))
    three = summarise(result_of([1.0, 0.0, 1.0]))
    assert plain.stderr is not None
    assert clustered.stderr is not None
    assert clustered.stderr == pytest.approx(three.stderr)
    assert clustered.stderr > plain.stderr


def test_clusters_of_one_are_no_clusters() -> None:
    assert cluster_index(["a", "b", "", ""]) is None
    index = cluster_index(["a", "", "a", ""])
    assert index is not None
    assert index.tolist() == [0, 1, 0, 2]


@given(st.lists(st.floats(0, 1), min_size=2, max_size=40), st.randoms())
def test_order_of_samples_does_not_matter(scores: list[float], random: object) -> None:
    samples = list(samples_of(scores))
    random.shuffle(samples)  # type: ignore[attr-defined]
    first, second = summarise(result_of(scores)), summarise(with_samples(*samples))
    assert second.mean == pytest.approx(first.mean)
    assert second.stderr == pytest.approx(first.stderr, abs=1e-12)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=40))
def test_mean_and_standard_error_agree_with_numpy(scores: list[float]) -> None:
    summary = summarise(result_of(scores))
    assert summary.mean == pytest.approx(np.mean(scores))
    assert summary.stderr == pytest.approx(np.std(scores, ddof=1) / math.sqrt(len(scores)), abs=1e-12)


def test_sample_means_keep_the_order_of_the_result() -> None:
    assert list(sample_means(result_of([1.0, None, 0.0]))) == ["s0", "s2"]
