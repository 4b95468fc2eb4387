"""The simulated runs have the noise and the losses that they promise."""

import importlib.util
import sys
from collections.abc import Iterable
from functools import cache
from types import ModuleType

import numpy as np
import pytest

from benchmarks.verdicts.series import (
    CHECKPOINTS,
    CLUSTERS,
    ONSETS,
    PLANTS,
    SIZES,
    WORLDS,
    Benchmark,
    Case,
    Floats,
    Scores,
    Series,
    simulate,
)
from tests.deep import sized
from tests.requires import shared_data

SEEDS = range(900, 900 + sized(3, 5))
PLATEAU_SD = {
    "pure": {100: 0.0215, 500: 0.0097, 1319: 0.0059, 14042: 0.0019},
    "real": {100: 0.0219, 500: 0.0106, 1319: 0.0075, 14042: 0.0040},
}
"""Standard deviation of one score, from an independent simulator of the same model."""


@cache
def run(seed: int, world: str = "real", trend: str = "plateau", plant: str | None = None) -> Series:
    return simulate(seed, Case(world=world, trend=trend, plant=plant))


def of_size(series: Series, n: int) -> list[Benchmark]:
    return [b for b in series.benchmarks if b.scores.shape[1] == n]


def flip_share(scores: Scores) -> float:
    return float(np.mean(scores[1:] != scores[:-1]))


def means(scores: Scores) -> Floats:
    return np.asarray(scores.mean(axis=1), dtype=np.float64)


def mean_and_error(values: Iterable[float]) -> tuple[float, float]:
    x = np.array(list(values))
    return float(x.mean()), float(x.std(ddof=1) / np.sqrt(x.size))


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    case = Case(world="rough", trend="improve", plant="drop3")
    first, again, other = (simulate(seed, case, (100, 500)) for seed in (5, 5, 6))
    assert all(np.array_equal(a.scores, b.scores) for a, b in zip(first.benchmarks, again.benchmarks, strict=True))
    assert np.array_equal(first.onset, again.onset)
    assert not any(np.array_equal(a.scores, b.scores) for a, b in zip(first.benchmarks, other.benchmarks, strict=True))


def test_a_run_has_the_promised_shape() -> None:
    series = run(900)
    assert tuple(b.scores.shape for b in series.benchmarks) == tuple((CHECKPOINTS, n) for n in SIZES)
    for b in series.benchmarks:
        n_clusters = np.unique(b.groups).size
        assert b.groups.max() + 1 == n_clusters <= CLUSTERS[b.scores.shape[1]]
        assert n_clusters >= 9
        assert set(np.unique(b.scores).tolist()) == {0, 1}


@pytest.mark.slow
def test_five_to_fifteen_percent_of_the_items_flip_between_neighbours() -> None:
    shares = [flip_share(b.scores) for seed in SEEDS for b in run(seed, "pure").benchmarks]
    assert 0.05 < np.percentile(shares, 10) < np.percentile(shares, 90) < 0.15
    assert 0.03 < min(shares) < max(shares) < 0.18
    assert 0.08 < np.mean(shares) < 0.10


@pytest.mark.slow
@pytest.mark.parametrize("world", ["pure", "real"])
@pytest.mark.parametrize("n", sorted(CLUSTERS))
def test_a_score_wanders_on_a_plateau_as_much_as_in_the_reference(world: str, n: int) -> None:
    sds = (float(means(b.scores).std(ddof=1)) for seed in SEEDS for b in of_size(run(seed, world), n))
    mean, error = mean_and_error(sds)
    rounding = 0.00005
    assert abs(mean - PLATEAU_SD[world][n]) < 4 * error + rounding


def test_an_improving_run_gains_15_points() -> None:
    gains = [
        float(means(b.scores)[-5:].mean() - means(b.scores)[0]) for b in run(900, "pure", "improve").benchmarks[11:]
    ]
    assert np.mean(gains) == pytest.approx(0.15, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["drop1", "drop2", "drop3", "drop5", "drop10"])
def test_a_drop_lowers_the_mean_by_what_its_name_says(name: str) -> None:
    points = int(name.removeprefix("drop"))
    lost = [
        float(np.mean(healthy[onset:] - planted[onset:]))
        for seed in SEEDS[:2]
        for healthy, planted, onset in planted_pairs(seed, name)
    ]
    assert PLANTS[name].loss == points / 100
    assert np.mean(lost) == pytest.approx(points / 100, rel=0.15)


def test_a_drift_loses_its_9_points_within_30_checkpoints() -> None:
    for healthy, planted, onset in planted_pairs(900, "drift")[2:]:
        lost = healthy - planted
        assert 0 < lost[onset] < 0.01
        assert lost[onset + 14] == pytest.approx(0.045, abs=0.01)
        assert np.mean(lost[onset + 29 :]) == pytest.approx(0.09, abs=0.01)


def test_a_subset_loss_hits_5_percent_of_the_clusters_and_no_other_item() -> None:
    healthy, planted = run(900, "real", "improve"), run(900, "real", "improve", "subset")
    for k in np.flatnonzero(planted.onset < CHECKPOINTS):
        before, after, onset = healthy.benchmarks[k], planted.benchmarks[k], planted.onset[k]
        tolerance = 0.04 + 0.5 / np.sqrt(after.groups.size)  # few items, few of them near enough to be lost
        hit = after.groups < max(1, round(0.05 * (after.groups.max() + 1)))
        lost = before.scores[onset:].astype(float) - after.scores[onset:]
        assert np.mean(lost[:, hit]) == pytest.approx(0.20, abs=tolerance)
        assert not np.any(lost[:, ~hit])


def test_a_recovery_leaves_no_trace_after_three_checkpoints() -> None:
    for healthy, planted, onset in planted_pairs(900, "recover"):
        assert np.all(healthy[onset : onset + 3] > planted[onset : onset + 3])
        assert np.array_equal(healthy[onset + 3 :], planted[onset + 3 :])


@pytest.mark.parametrize("name", PLANTS)
def test_a_plant_changes_nothing_before_its_onset_and_no_other_benchmark(name: str) -> None:
    healthy, planted = run(900, "real", "improve"), run(900, "real", "improve", name)
    hit = np.flatnonzero(planted.onset < CHECKPOINTS)
    assert [SIZES[k] for k in hit] == sorted(set(SIZES))
    assert sorted(planted.onset[hit]) == list(ONSETS)
    for a, b, onset in zip(healthy.benchmarks, planted.benchmarks, planted.onset, strict=True):
        assert np.array_equal(a.scores[:onset], b.scores[:onset])


def test_worlds_differ_by_their_jitter_only() -> None:
    sds = {
        world: np.mean([np.diff(means(b.scores)).std() for b in of_size(run(900, world), 14042)]) for world in WORLDS
    }
    assert sds["pure"] < sds["real"] < sds["rough"]


@pytest.mark.slow
@pytest.mark.parametrize("world", ["pure", "real"])
def test_statistics_agree_with_the_shared_simulator(world: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    other = load("../verdicts/regression_sim.py")
    theirs = [other.make_run(seed, world, "improve").X for seed in SEEDS[:2]]
    ours = [[b.scores for b in run(seed, world, "improve").benchmarks] for seed in SEEDS[:2]]
    for n in CLUSTERS:
        for statistic in (flip_share, lambda x: float(np.diff(means(x), n=2).std()), lambda x: float(means(x).mean())):
            mine, my_error = mean_and_error(statistic(x) for xs in ours for x in xs if x.shape[1] == n)
            its, its_error = mean_and_error(statistic(x) for xs in theirs for x in xs if x.shape[1] == n)
            assert abs(mine - its) < 4 * np.hypot(my_error, its_error), n


def planted_pairs(seed: int, name: str) -> list[tuple[Floats, Floats, int]]:
    """Mean scores without and with the plant, and its onset, of each benchmark that is hit."""
    healthy, planted = run(seed, "real", "improve"), run(seed, "real", "improve", name)
    return [
        (means(healthy.benchmarks[k].scores), means(planted.benchmarks[k].scores), int(planted.onset[k]))
        for k in np.flatnonzero(planted.onset < CHECKPOINTS)
    ]


def load(relative: str) -> ModuleType:
    path = shared_data(relative)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # its dataclasses look themselves up there
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[path.stem]
    return module
