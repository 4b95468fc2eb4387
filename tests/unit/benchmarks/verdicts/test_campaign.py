"""A campaign of all detectors, small: jobs, the engine itself, the table, the command."""

import re
import sys

import numpy as np
import pytest

from benchmarks.verdicts.__main__ import main
from benchmarks.verdicts.campaign import NULLS, Results, detectors, plan, run_job
from benchmarks.verdicts.detector import DEFAULT, make
from benchmarks.verdicts.scoring import RunScore
from benchmarks.verdicts.series import PLANTS, Case, simulate
from benchmarks.verdicts.table import markdown, summary
from tests.unit.benchmarks.verdicts.hand_made import flags_of

SUMMARY = re.compile(r"fwer_pure=\d\.\d+ fwer_real_plateau=\d\.\d+ fwer_real_improve=\d\.\d+ fwer_rough=\d\.\d+")


def test_jobs_share_no_seed_and_take_the_trends_in_turn() -> None:
    jobs = plan(4, 3, ("bh",), first_seed=10)
    assert len({job.seed for job in jobs}) == len(jobs) == 4 * len(NULLS) + 3 * len(PLANTS)
    assert sum(job.case == Case(world="rough", trend="improve") for job in jobs) == 2
    assert sum(job.case.plant == "drop3" for job in jobs) == 3
    assert plan(4, 3, ("bh",), first_seed=10) == jobs


def test_a_job_scores_the_detectors_it_names() -> None:
    job = next(job for job in plan(1, 1, ("5pt_best", "bh"), first_seed=1) if job.kind == "drop10")
    scores = run_job(job)
    assert set(scores) == {"5pt_best", "bh"}
    assert all(set(s.delays) == {100, 500, 1319, 14042} for s in scores.values())
    assert scores["bh"].false_flags > 0


@pytest.mark.slow
def test_the_engine_finds_large_losses_says_nothing_before_and_forgets_the_run_before() -> None:
    series = simulate(4, Case(world="real", trend="improve", plant="drop10"), (500, 1319))
    engine = next(d for d in make() if d.name == DEFAULT)
    flags = flags_of(engine, series)
    for k, onset in enumerate(series.onset):
        assert not flags[:onset, k].any()
        assert flags[onset : onset + 3, k].any()
    assert np.array_equal(flags_of(engine, series), flags)


def test_names_are_unique_and_ours_come_first() -> None:
    names = [d.name for d in detectors()]
    assert len(set(names)) == len(names)
    assert names[0] == DEFAULT


def test_the_table_shows_rates_intervals_power_and_delays() -> None:
    quiet = RunScore(false_flags=0, healthy=2000, delays={})
    loud = RunScore(false_flags=8, healthy=2000, delays={})
    results: Results = {kind: {"ours": [quiet, quiet, loud, quiet]} for kind in NULLS}
    results["drop5"] = {"ours": [RunScore(false_flags=0, healthy=10, delays={500: d}) for d in (2, 3, None, 4)]}
    lines = markdown(results, ["ours"]).splitlines()
    assert len({len(line) for line in lines}) == 1
    cells = dict([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    assert cells["FWER rough"] == "25 (0.6-80.6)"
    assert cells["flags per 1000, real"] == "1.00"
    assert cells["drop5 n=500"] == "75 (3)"
    assert SUMMARY.fullmatch(summary(results, "ours"))


def test_an_unknown_detector_is_named_with_those_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks.verdicts", "--only", "bhh"])
    with pytest.raises(SystemExit, match=f"no detector bhh; there are .*{DEFAULT}"):
        main()
