"""The simulated watch with screens: the plain one where a screen holds everything, and cheaper where it does not."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from benchmarks.screening import Run, summary, table
from benchmarks.verdicts.screened import watch
from benchmarks.verdicts.series import Case, Series, simulate
from eval_jobs.types import Screen
from tracker.domain.verdicts.screening import Screening

JUDGED = range(20, 70)


@pytest.fixture(scope="module")
def series() -> Series:
    return simulate(3, Case(world="real", trend="improve", plant="drop10"), (100, 500))


def test_a_screen_of_everything_is_asking_everything(series: Series) -> None:
    full = watch(series, None, JUDGED)
    screened = watch(series, Screening(screen=Screen(samples=500), every=10, first=20), JUDGED)
    assert np.array_equal(full.flags, screened.flags)
    assert (full.asked, screened.asked, screened.loads) == (1.0, 1.0, 0)
    assert full.flags.any()


def test_a_part_finds_a_large_loss_for_fewer_samples(series: Series) -> None:
    full = watch(series, None, JUDGED)
    screened = watch(series, Screening(screen=Screen(samples=100), every=10, first=20), JUDGED)
    assert screened.asked < 0.95  # all samples are asked while a loss is open
    assert screened.loads > 0
    k = 1
    assert abs(int(full.flags[:, k].argmax()) - int(screened.flags[:, k].argmax())) <= 3
    assert not (screened.flags & (np.arange(100)[:, None] < series.onset)).any()


def test_the_last_line_counts_losses_of_all_sizes_and_healthy_runs() -> None:
    lost = Run(
        kind="drop3",
        seed=1,
        false={"full": False, "screen": False},
        delays={"full": {"100": 1, "500": 2}, "screen": {"100": None, "500": 4}},
        asked=0.5,
        loads=3,
        errors=[0.001, -0.001],
        covered=0.9,
    )
    healthy = Run(
        kind="pure",
        seed=2,
        false={"full": False, "screen": True},
        delays={"full": {}, "screen": {}},
        asked=0.4,
        loads=1,
        errors=[0.002],
        covered=1.0,
    )
    runs = [lost, Run(**json.loads(json.dumps(asdict(lost)))), healthy]
    assert summary(runs).splitlines()[-1] == (
        "power_full=1.000 power_screen=0.500 fwer_full=0.000 fwer_screen=1.000 saved=0.600"
    )
    assert "| drop3 n=100 | 100 | 0 | -100 (-100 to -100) | 50 % | 3 |" in table(runs)
