"""Samples as columns say what the samples say."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_jobs.types import EvalResult, SampleScore, SampleStatus
from tracker.domain.scores.sample_columns import SampleColumns, averaged, columns_of, in_order_of
from tracker.domain.scores.summary import sample_means, summarise

SAMPLES = st.lists(
    st.builds(
        SampleScore,
        sample_id=st.sampled_from("abcdef"),
        subset=st.sampled_from(["x", "y"]),
        score=st.none() | st.floats(-5, 5) | st.sampled_from([0.0, 1.0, math.nan, math.inf, 1e200]),
        status=st.sampled_from(SampleStatus),
        cluster_id=st.sampled_from(["", "passage"]),
        output_tokens=st.none() | st.integers(0, 300),
    ),
    max_size=12,
)


def result_with(samples: list[SampleScore]) -> EvalResult:
    return EvalResult(benchmark="b", fingerprint="f", metric="m", samples=tuple(samples), duration_s=1.0)


def unique(samples: list[SampleScore]) -> list[SampleScore]:
    return list({s.sample_id: s for s in samples}.values())


@given(SAMPLES)
def test_the_mean_of_each_sample_is_the_one_that_reports_show(samples: list[SampleScore]) -> None:
    result = result_with(samples)
    means = averaged(columns_of(samples))
    found = {i: s for i, s in zip(means.questions.sample_ids, means.scores.tolist(), strict=True) if not math.isnan(s)}
    assert found == pytest.approx({key: mean.score for key, mean in sample_means(result).items()}, abs=1e-12)
    assert columns_of(samples).coverage == summarise(result).coverage


@given(SAMPLES)
def test_every_sample_is_there_once_in_the_order_of_first_appearance(samples: list[SampleScore]) -> None:
    means = averaged(columns_of(samples))
    first = {s.sample_id: s for s in reversed(samples)}
    assert means.questions.sample_ids.tolist() == list(dict.fromkeys(s.sample_id for s in samples))
    assert means.questions.subsets.tolist() == [first[i].subset for i in means.questions.sample_ids]
    assert means.questions.cluster_ids.tolist() == [first[i].cluster_id for i in means.questions.sample_ids]


def answer(sample_id: str, score: float | None, status: SampleStatus, tokens: int | None = None) -> SampleScore:
    return SampleScore(sample_id=sample_id, subset="s", score=score, status=status, output_tokens=tokens)


def test_only_answers_with_a_score_count_for_length_and_truncation() -> None:
    samples = (
        answer("a", 1.0, SampleStatus.SCORED, 10),
        answer("a", 0.0, SampleStatus.TRUNCATED, 20),
        answer("a", 1.0, SampleStatus.ERROR, 1000),
        answer("b", 0.5, SampleStatus.SCORED),
        answer("b", 1.0, SampleStatus.SCORED, 8),
        answer("c", None, SampleStatus.UNSCORED, 5),
    )
    means = averaged(columns_of(samples))
    np.testing.assert_array_equal(means.scores, [0.5, 0.75, math.nan])
    np.testing.assert_array_equal(means.truncated, [0.5, 0.0, math.nan])
    np.testing.assert_array_equal(means.output_tokens, [15.0, 8.0, math.nan])
    assert columns_of(samples).coverage == pytest.approx(4 / 6)


def test_without_repeats_nothing_is_copied() -> None:
    columns = columns_of([answer("a", 1.0, SampleStatus.SCORED), answer("b", 0.0, SampleStatus.SCORED)])
    assert averaged(columns) is columns


def test_nothing_planned_is_nothing_covered() -> None:
    columns = columns_of(())
    assert (columns.questions.sample_ids.size, columns.coverage) == (0, 0.0)
    assert averaged(columns).questions.sample_ids.size == 0


def by_sample(columns: SampleColumns) -> dict[str, tuple[str, ...]]:
    assert columns.truncated is not None
    assert columns.output_tokens is not None
    numbers = np.stack([columns.scores, columns.truncated, columns.output_tokens], axis=1)
    return {i: tuple(map(str, row)) for i, row in zip(columns.questions.sample_ids.tolist(), numbers, strict=True)}


@given(SAMPLES, st.integers(0, 100))
def test_the_same_questions_in_another_order_share_one_object(samples: list[SampleScore], seed: int) -> None:
    known = columns_of(unique(samples)).questions
    others = [
        replace(s, score=0.25, status=SampleStatus.SCORED, output_tokens=i) for i, s in enumerate(unique(samples))
    ]
    random.Random(seed).shuffle(others)  # noqa: S311 - made-up data
    columns = columns_of(others)
    shared = in_order_of(columns, known)
    assert shared is not None
    assert shared.questions is known
    assert by_sample(shared) == by_sample(columns)


def test_other_questions_are_not_taken_for_the_same() -> None:
    columns = columns_of([answer("a", 1.0, SampleStatus.SCORED), answer("b", 1.0, SampleStatus.SCORED)])
    a, b = answer("a", 1.0, SampleStatus.SCORED), answer("b", 1.0, SampleStatus.SCORED)
    for other in ([a], [a, replace(b, sample_id="c")], [a, replace(b, subset="t")], [a, replace(b, cluster_id="p")]):
        assert in_order_of(columns, columns_of(other).questions) is None
        assert in_order_of(columns_of(other), columns.questions) is None
