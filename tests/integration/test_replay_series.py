"""Published training runs, judged from their means and standard errors as far as they were known at each checkpoint."""

import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from benchmarks.replay_seeds import configurations, seed_noise
from benchmarks.replay_series import BROKEN, HEADLINE, TRAINED_FROM, Replayed, Run, read_runs, replay, since, without
from tests.requires import PROJECT, shared_data
from tracker.domain.records.types import VerdictWord
from tracker.domain.scores.matrix import FloatArray
from tracker.domain.scores.suspicion import at_most_suspect

PYTHIA = tuple(name for name in HEADLINE if name.startswith("pythia"))


@cache
def run(name: str) -> Run:
    """Return one run."""
    return read_runs(shared_data("checkpoint_evals"))[name]


@cache
def replayed(name: str) -> Replayed:
    """Return one run from step 3,000 on, judged."""
    return replay(name, since(run(name), TRAINED_FROM))


@cache
def whole(name: str) -> Replayed:
    """Return one run with its untrained checkpoints, judged."""
    return replay(name, run(name))


@cache
def mended(name: str) -> Replayed:
    """Return one run without its broken checkpoints, judged."""
    return replay(name, without(run(name), *BROKEN[name]))


def test_the_noise_model_holds_on_healthy_benchmarks() -> None:
    without_trend = {name: replayed(name).z_without_trend.std() for name in HEADLINE}
    assert min(without_trend.values()) > 0.6, without_trend
    assert max(without_trend.values()) <= 1.1, without_trend
    z = {name: replayed(name).z for name in HEADLINE}
    assert all(values.size > 700 for values in z.values())
    assert 0.7 < np.concatenate(list(z.values())).std() <= 1.1
    for name in ("pythia-70m/zero-shot", "pythia-160m/zero-shot", "tr12a"):
        assert z[name].std() <= 1.1, name
    # The rises of the larger models are no noise, they learn; nor is the dip of tr3d.
    z["tr3d"] = mended("tr3d").z
    falls = {name: _root_mean_square(values[values < 0]) for name, values in z.items()}
    assert max(falls.values()) <= 1.1, falls


@pytest.mark.parametrize("name", ["pythia-70m/zero-shot", "pythia-70m/five-shot"])
def test_the_late_loss_of_lambada_is_found(name: str) -> None:
    said = replayed(name).losses["lambada_openai"]
    assert said.word in {VerdictWord.REGRESSED, VerdictWord.FORGOTTEN}
    assert said.learned
    assert said.step >= 123000
    assert said.p < 1e-5
    assert at_most_suspect(said.word) is VerdictWord.SUSPECT


@pytest.mark.parametrize("name", ["pythia-410m/zero-shot", "pythia-1.4b/zero-shot", "pythia-410m/five-shot"])
def test_models_that_lose_nothing_raise_no_alarm(name: str) -> None:
    assert replayed(name).losses == {}
    assert replayed(name).together == ()


def test_what_is_too_small_in_lambada_of_160m_shows_in_all_together() -> None:
    assert replayed("pythia-160m/zero-shot").together == (133000, 143000)


@pytest.mark.parametrize("name", PYTHIA)
@pytest.mark.parametrize("chance", [66 / 104, 0.5, None])
def test_wsc_is_never_called_forgotten(name: str, chance: float | None) -> None:
    """It falls from 63 to 37 % without any checkpoint ever having solved it: the other answer to every question."""
    other = {"wsc": replace(run(name)["wsc"], chance=chance)}
    said = replay(name, other).losses["wsc"]
    assert said.word is VerdictWord.REGRESSED
    assert not said.learned


@pytest.mark.parametrize("name", HEADLINE)
def test_nothing_is_called_lost_that_was_learned_and_kept(name: str) -> None:
    """What was above guessing and raises an alarm has fallen in the published numbers; nothing else is forgotten."""
    known = {
        "pythia-70m/zero-shot": {"lambada_openai", "sciq", "arc_easy"},
        "pythia-160m/zero-shot": {"lambada_openai", "sciq"},
        "tr3d": {"lambada", "sciq", "arc_easy"},
    }
    losses = whole(name).losses
    assert {benchmark for benchmark, said in losses.items() if said.learned} <= known.get(name, set())
    assert all(said.word is VerdictWord.REGRESSED for said in losses.values() if not said.learned)


def test_the_broken_checkpoint_of_tr3d_is_found_by_all_together_and_no_loss_of_a_benchmark() -> None:
    """All fall at step 42,000 and are back at the next: one checkpoint alone shows no loss."""
    assert replayed("tr3d").together == (42000,)
    assert mended("tr3d").together == ()
    assert not any(said.learned for said in replayed("tr3d").losses.values())
    assert not any(said.learned for said in mended("tr3d").losses.values())


def test_runs_of_other_seeds_differ_by_more_than_one_run_trembles() -> None:
    found = {name: seed_noise(losses) for name, losses in configurations(shared_data("seed_repeats"))}
    fine = [n for n in found.values() if n.evaluations >= 11]
    assert len(fine) >= 7
    assert np.median([n.seeds / n.jitter for n in fine]) > 2
    assert min(n.persistence for n in fine) > 0.8


@pytest.mark.parametrize("program", ["replay_series", "replay_seeds"])
def test_without_the_data_it_says_what_is_missing(program: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{program}", "--data", tmp_path],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert str(tmp_path) in done.stderr
    assert "--data FOLDER" in done.stderr


# --- private


def _root_mean_square(values: FloatArray) -> float:
    return float(np.sqrt(np.mean(values**2)))
