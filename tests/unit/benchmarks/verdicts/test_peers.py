"""The peers' rules on runs written by hand, and against scipy where it knows the rule."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.verdicts.peers import Peer, peers
from benchmarks.verdicts.series import Case, simulate
from benchmarks.verdicts.view import ALPHA, BASELINES, View
from tests.unit.benchmarks.verdicts.hand_made import flags_of, right, series_of

SERIES = simulate(4, Case(world="real", trend="improve", plant="drop10"), (100, 500))


def peer(name: str) -> Peer:
    return next(p for p in peers() if p.name == name)


@pytest.mark.parametrize(
    ("name", "counts", "flagged"),
    [
        ("2pt_best", [50, 60, 58, 57], [False, False, False, True]),
        ("5pt_best", [60, 55, 54], [False, False, True]),
        ("5pt_previous", [60, 55, 49, 48], [False, False, True, False]),
    ],
)
def test_a_threshold_flags_what_is_more_than_its_points_lower(
    name: str, counts: list[int], flagged: list[bool]
) -> None:
    assert flags_of(peer(name), series_of(right(counts, 100)))[:, 0].tolist() == flagged


def test_the_unpaired_rule_is_two_of_its_standard_errors() -> None:
    n, before = 1000, 600
    error = np.sqrt((0.6 * 0.4 + 0.56 * 0.44) / (n - 1))
    now = [before - int(1000 * 2 * error) + slack for slack in (2, -2)]
    flags = flags_of(peer("unpaired_previous"), series_of(right([before, now[0]], n), right([before, now[1]], n)))
    assert flags[1].tolist() == [False, True]


def test_mcnemar_and_bonferroni_differ_by_the_number_of_comparisons() -> None:
    # The mid-p of n lost and none gained is .5^(n + 1); levels are .025, and .05 / (3 * 100 * 2) = 8.3e-5.
    series = series_of(*(right([60, 60 - lost], 100) for lost in (4, 12, 13)))
    assert flags_of(peer("mcnemar"), series)[1].tolist() == [False, True, True]
    assert flags_of(peer("bonferroni"), series)[1].tolist() == [False, False, True]


def test_benjamini_hochberg_agrees_with_scipy() -> None:
    flags = flags_of(peer("bh"), SERIES)
    view = View(SERIES)
    for t in range(1, flags.shape[0]):
        view.at(t)
        p = np.stack([view.p_worse(b) for b in BASELINES], axis=1)
        adjusted = stats.false_discovery_control(p.ravel()).reshape(p.shape)
        assert np.array_equal(flags[t], np.any(adjusted <= ALPHA, axis=1))
    assert flags.any()


def test_lond_spends_more_after_each_discovery() -> None:
    flags, view = flags_of(peer("lond"), SERIES), View(SERIES)
    p = np.array([[view.at(t).p_worse(b) for b in BASELINES] for t in range(1, view.T_plan)])
    in_order = p.transpose(0, 2, 1).ravel()
    weights = np.arange(1, 2 * view.K * view.T_plan + 1) ** -1.6
    levels, discoveries, found = ALPHA * weights / weights.sum(), 0, []
    for value, level in zip(in_order, levels, strict=False):
        found.append(value <= level * (1 + discoveries))
        discoveries += found[-1]
    assert np.array_equal(flags[1:], np.array(found).reshape(-1, view.K, 2).any(axis=2))
    assert discoveries > 1


def test_the_e_detector_finds_a_large_loss_and_stays_quiet_before_it() -> None:
    flags = flags_of(peer("e-detector"), SERIES)
    for k, onset in enumerate(SERIES.onset):
        assert not flags[:onset, k].any()
        assert flags[onset : onset + 10, k].any()


@pytest.mark.parametrize("name", [p.name for p in peers()])
def test_a_constant_run_is_never_flagged_and_a_new_run_begins_anew(name: str) -> None:
    chosen = peer(name)
    first = flags_of(chosen, SERIES)
    assert not flags_of(chosen, series_of(right([60] * 30, 100))).any()
    assert np.array_equal(flags_of(chosen, SERIES), first)
