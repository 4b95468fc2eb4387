from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.verdicts.series import Case, simulate
from tests.unit.tracker.domain.forgetting.building import levels, unit_of
from tracker.domain.forgetting.levels import Forgetting, LedgerSubject, expected_largest, forgetting_of, last_width
from tracker.domain.regression.detector import jitter_of
from tracker.domain.scores.matrix import FloatArray

FORGETS = (0.1, 0.3, 0.6, 0.8, 0.8, 0.8, 0.8, 0.5, 0.3, 0.2, 0.2, 0.2)


def found_of(unit: LedgerSubject) -> Forgetting:
    found = forgetting_of(unit)
    assert found is not None
    return found


@st.composite
def score_tables(draw: st.DrawFn) -> FloatArray:
    shape = draw(st.tuples(st.integers(6, 30), st.integers(5, 25)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return (rng.random(shape) < rng.random(shape[1])).astype(np.float64)


def test_a_loss_is_measured_from_the_best_block_to_the_newest() -> None:
    found = found_of(unit_of(levels(100, FORGETS)))
    assert (found.peak.first_step, found.peak.last_step, found.peak.mean) == pytest.approx((500, 600, 0.8))
    assert (found.last.first_step, found.last.checkpoints, found.last.mean) == pytest.approx((1100, 2, 0.2))
    assert found.forgetting == pytest.approx(0.6)
    assert found.ci_low < 0.6 < found.ci_high
    assert found.relative == pytest.approx(0.75)


def test_retention_is_the_share_kept_of_what_was_learned() -> None:
    found = found_of(unit_of(levels(100, FORGETS)))
    assert found.retention == pytest.approx((0.2 - 0.2) / (0.8 - 0.2))
    half = found_of(unit_of(levels(100, (0.2, 0.2, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.5, 0.5))))
    assert half.retention == pytest.approx(0.5)


def test_what_never_rose_has_no_retention() -> None:
    assert found_of(unit_of(levels(100, (0.8,) * 8 + (0.3,) * 4))).retention is None
    slight = (0.80, 0.80, *(0.81,) * 6, *(0.3,) * 4)
    assert found_of(unit_of(levels(100, slight))).retention is None


def test_a_rise_that_may_be_chance_has_no_retention() -> None:
    rng = np.random.default_rng(3)
    plateau = (rng.random((60, 20)) < 0.5).astype(float)
    found = found_of(unit_of(plateau))
    assert found.peak.mean > plateau[:10].mean() + 0.02
    assert found.retention is None


def test_what_still_improves_has_a_negative_forgetting_and_no_relative_one() -> None:
    found = found_of(unit_of(levels(100, np.linspace(0.1, 0.9, 20).tolist())))
    assert found.forgetting < 0
    assert found.relative is None
    assert found.p_value > 0.99


def test_a_transient_dip_is_told_and_is_no_forgetting() -> None:
    found = found_of(unit_of(levels(200, (0.8,) * 10 + (0.4,) + (0.8,) * 9)))
    assert (found.dip.step, found.dip.depth) == pytest.approx((1100, 0.4))
    assert found.forgetting == pytest.approx(0.0)


def test_a_healthy_plateau_shows_raw_forgetting_and_dips_of_about_the_size_that_chance_gives() -> None:
    rng = np.random.default_rng(5)
    raws, chances, dips, dip_chances = [], [], [], []
    for _ in range(60):
        ability = rng.random(500)
        found = found_of(unit_of((rng.random((50, 500)) < ability).astype(float)))
        raws.append(found.raw)
        chances.append(found.raw_by_chance)
        dips.append(found.dip.depth)
        dip_chances.append(found.dip.by_chance)
    assert np.mean(raws) == pytest.approx(np.mean(chances), rel=0.1)
    assert np.mean(dips) == pytest.approx(np.mean(dip_chances), rel=0.2)


@pytest.mark.slow
def test_the_interval_covers_the_true_forgetting_of_a_plateau() -> None:
    rng = np.random.default_rng(6)
    covered = 0
    for _ in range(200):
        ability = rng.random(300)
        found = found_of(unit_of((rng.random((40, 300)) < ability).astype(float)))
        covered += found.ci_low <= 0 <= found.ci_high
    assert covered >= 180  # 95 % less the choice of the best of four blocks, which the p-value pays for


def _simulated(plant: str | None) -> list[Forgetting]:
    """Return the ledger of one benchmark of 500 samples in each of 40 simulated runs with jitter."""
    found = []
    for seed in range(900, 940):
        series = simulate(seed, Case(world="real", trend="plateau", plant=plant), sizes=(500,))
        unit = unit_of(series.benchmarks[0].scores)
        (jitter,) = jitter_of([unit.track])
        found.append(found_of(replace(unit, jitter=jitter)))
    return found


def test_a_healthy_run_with_jitter_is_rarely_said_to_have_lost_anything() -> None:
    healthy = _simulated(None)
    assert sum(f.p_value < 0.05 for f in healthy) <= 6  # 2 expected; more than 6 in 1 case of 300
    assert sum(f.p_value < 0.001 for f in healthy) == 0
    assert abs(float(np.mean([f.forgetting for f in healthy]))) < 0.015


def test_a_loss_of_five_points_is_found_and_measured() -> None:
    fallen = _simulated("drop5")
    assert sum(f.p_value < 0.01 for f in fallen) >= 32
    assert float(np.mean([f.forgetting for f in fallen])) == pytest.approx(0.05, abs=0.015)
    assert float(np.mean([f.relative for f in fallen if f.relative is not None])) > 0.05


@pytest.mark.parametrize(("checkpoints", "last"), [(5, 1), (6, 2), (14, 2), (15, 3), (20, 4), (100, 4)])
def test_short_runs_average_fewer_of_the_newest(checkpoints: int, last: int) -> None:
    assert found_of(unit_of(levels(50, [0.5] * checkpoints))).last.checkpoints == last
    assert last_width(checkpoints) >= last


@pytest.mark.parametrize("checkpoints", [0, 1, 4])
def test_too_few_checkpoints_have_no_forgetting(checkpoints: int) -> None:
    assert forgetting_of(unit_of(np.zeros((checkpoints, 50)))) is None


def test_too_few_samples_have_no_forgetting() -> None:
    assert forgetting_of(unit_of(np.ones((10, 4)))) is None


def test_checkpoints_that_do_not_count_are_not_looked_at() -> None:
    values = levels(100, (*FORGETS[:6], 1.0, *FORGETS[6:]))
    unit = unit_of(values)
    kept = np.array([row for row in range(13) if row != 6])
    found = found_of(replace(unit, counted=kept))
    assert (found.peak.first_step, found.peak.last_step) == (500, 600)


def test_a_score_where_lower_is_better_is_reported_as_it_is() -> None:
    unit = replace(unit_of(levels(100, FORGETS)), higher_is_better=False)
    found = found_of(unit)
    assert (found.peak.mean, found.last.mean) == pytest.approx((0.2, 0.8))
    assert found.forgetting == pytest.approx(0.6)


@given(score_tables(), st.integers(0, 2**32 - 1))
def test_the_order_of_samples_does_not_matter(values: FloatArray, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(values.shape[1])
    one, other = forgetting_of(unit_of(values)), forgetting_of(unit_of(values[:, order]))
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert one.peak == other.peak
        assert one.forgetting == pytest.approx(other.forgetting, abs=1e-12)
        assert one.stderr == pytest.approx(other.stderr, rel=1e-9)
        assert one.p_value == pytest.approx(other.p_value, rel=1e-6)


@given(score_tables())
def test_the_numbers_belong_together(values: FloatArray) -> None:
    found = found_of(unit_of(values))
    assert found.forgetting == pytest.approx(found.peak.mean - found.last.mean, abs=1e-12)
    assert found.ci_low <= found.forgetting <= found.ci_high
    assert 0 <= found.p_value <= 1
    assert found.raw <= 1


def test_the_largest_of_more_is_larger() -> None:
    assert expected_largest(1) == 0
    assert expected_largest(2) == pytest.approx(0.5642, abs=0.03)  # 1 / sqrt(pi)
    assert expected_largest(100) == pytest.approx(2.5076, abs=0.02)
