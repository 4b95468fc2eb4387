"""The score of a whole benchmark from its screen: unbiased over screens, with an interval that covers it as stated."""

import numpy as np
import pytest

from tracker.domain.scores.matrix import FloatArray, IntArray, matrix_of
from tracker.domain.scores.matrix import encoded as encoded_row
from tracker.domain.scores.statistics.estimated import EstimatedScore, estimated_score

N, ASKED = 400, 80


def estimate(
    references: FloatArray, scores: FloatArray, asked: IntArray, clusters: IntArray | None = None
) -> EstimatedScore:
    values = np.full(N, np.nan)
    values[asked] = scores[asked]
    rows = [encoded_row(row, np.zeros(1)) for row in (*references, values)]
    matrix = matrix_of(rows, [None] * len(rows), N)
    found = estimated_score(matrix, len(references), np.arange(len(references)), clusters)
    assert found is not None
    return found


@pytest.mark.parametrize("n_references", [0, 3])
def test_over_many_screens_the_estimate_is_unbiased_and_its_interval_is_honest(n_references: int) -> None:
    rng = np.random.default_rng(5)
    chance = rng.choice([0.02, 0.5, 0.98], size=N, p=[0.3, 0.2, 0.5])
    references = (rng.random((n_references, N)) < chance + 0.02).astype(np.float64)
    scores = (rng.random(N) < chance).astype(np.float64)
    found = [estimate(references, scores, rng.permutation(N)[:ASKED]) for _ in range(1000)]
    errors = np.array([one.score - scores.mean() for one in found])
    covered = np.mean([abs(error) <= one.margin for error, one in zip(errors, found, strict=True)])
    plain = np.sqrt(scores.var() / ASKED * (1 - ASKED / N))
    assert abs(errors.mean()) < 4 * errors.std() / np.sqrt(len(errors))
    assert 0.93 < covered < 0.985
    assert errors.std() < (0.75 if n_references else 1.1) * plain


def test_clusters_count_as_units_and_equal_answers_leave_a_margin() -> None:
    scores, asked, clusters = np.ones(N), np.arange(ASKED), np.arange(N) // 20
    single, clustered = (estimate(np.ones((2, N)), scores, asked, given) for given in (None, clusters))
    assert single.score == clustered.score == 1.0
    assert 0 < single.margin < clustered.margin < 1
