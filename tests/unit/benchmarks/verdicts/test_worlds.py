"""The rough worlds are as rough as they say, and the engine is run on them on the product's way."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.verdicts.series import Floats
from benchmarks.verdicts.worlds import WORLDS, World, alarms, draw

LONG = World(sizes=(1319,), checkpoints=400, tau=0.02, tau_log_sd=0.0, cluster=0.0, gain=0.0)


def means(world: World) -> Floats:
    found: Floats = draw(world, 7, improves=False).scores[0].mean(axis=1)
    return found


@pytest.mark.parametrize("name", WORLDS)
def test_every_world_is_judged(name: str) -> None:
    short = replace(WORLDS[name], sizes=(30, 100), checkpoints=6)
    run = draw(short, 3, improves=True)
    assert [scores.shape for scores in run.scores] == [(6, 30), (6, 100)]
    assert alarms(short, run).shape == (6, 2)


def test_jitter_has_the_size_and_the_memory_that_are_asked_for() -> None:
    fresh, lasting = np.diff(means(LONG)), np.diff(means(replace(LONG, rho=0.8)))
    assert 0.02 < fresh.std() / np.sqrt(2) < 0.03  # with the samples' own flips
    assert lasting.std() < 0.7 * fresh.std()


def test_a_loud_benchmark_is_one_among_quiet_ones() -> None:
    run = draw(replace(WORLDS["loud"], sizes=(1319,) * 3, cluster=0.0), 7, improves=False)
    spreads = [np.diff(scores.mean(axis=1)).std() for scores in run.scores]
    assert spreads[1] > 3 * max(spreads[0], spreads[2])


def test_answers_without_a_score_and_repeats() -> None:
    scores = draw(replace(LONG, checkpoints=20, errors=0.1, repeats=4), 7, improves=False).scores[0]
    assert np.isnan(scores).mean() == pytest.approx(0.1, abs=0.01)
    assert set(np.unique(scores[~np.isnan(scores)])) == {0.0, 0.25, 0.5, 0.75, 1.0}


def test_a_benchmark_at_chance_stays_there_while_others_dip_at_restarts() -> None:
    world = replace(WORLDS["restarts"], sizes=(1319, 1319), checkpoints=60, tau=0.0, cluster=0.0, at_chance=1)
    at_chance, other = (scores.mean(axis=1) for scores in draw(world, 7, improves=False).scores)
    assert at_chance[30:34].mean() == pytest.approx(0.25, abs=0.02)
    assert other[30] < other[25:30].mean() - 0.01
