"""A detector sees exact statistics of the past and nothing of the future."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.verdicts.series import Case, simulate
from benchmarks.verdicts.view import View
from tests.unit.benchmarks.verdicts.hand_made import right, series_of

SERIES = simulate(3, Case(world="real", trend="improve"), (100, 500))


def test_the_future_cannot_be_seen() -> None:
    view = View(SERIES).at(7)
    assert view.means().shape == (2, 8)
    assert np.array_equal(view.scores(1, 7), SERIES.benchmarks[1].scores[7])
    with pytest.raises(IndexError, match="checkpoint 8 lies in the future of 7"):
        view.scores(1, 8)


def test_a_contrast_is_that_of_the_items() -> None:
    weights = np.zeros((2, 31))
    weights[:, 29:] = 0.5
    weights[0, 3:13] = weights[1, 15:25] = -0.1
    contrast = View(SERIES).at(30).contrast(weights)
    for k, benchmark in enumerate(SERIES.benchmarks):
        d = weights[k] @ benchmark.scores[:31]
        assert contrast.difference[k] == pytest.approx(d.mean(), rel=1e-9)
        assert contrast.variance[k] == pytest.approx(d.var(ddof=1) / d.size, rel=1e-9)


def test_the_best_checkpoint_is_the_best_earlier_one() -> None:
    view = View(series_of(right([3, 7, 5, 9], 10))).at(3)
    assert view.reference("best").tolist() == [1]
    assert view.reference("previous").tolist() == [2]


def test_p_is_mcnemars_with_the_mid_p_correction() -> None:
    scores = right([60, 52], 100)
    scores[1, 90:93] = 1  # 8 lost, 3 gained
    view = View(series_of(scores)).at(1)
    expected = stats.binom.sf(8, 11, 0.5) + stats.binom.pmf(8, 11, 0.5) / 2
    assert view.p_worse("previous")[0] == pytest.approx(expected, rel=1e-12)
    assert view.p_worse("best")[0] == view.p_worse("previous")[0]
