"""The noise of a run, and whether it leaves the range of the simulated runs."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from benchmarks.verdicts.worlds import WORLDS, draw
from tests.unit.tracker.domain.regression.tables import matrix_of, track_of
from tracker.domain.records.calibration import NoiseAspect, NoiseOfRun
from tracker.domain.regression.detector import Track, jitter_of
from tracker.domain.regression.diagnostic import LARGEST_JITTER, LARGEST_PERSISTENCE, MIN_CHECKPOINTS, diagnosed_noise
from tracker.domain.regression.jitter import Jitter, Persistent
from tracker.domain.scores.matrix import FloatArray


def jitter(tau: float, r: float = 0.1) -> Jitter:
    one = Persistent(r=r, probability=1.0, tau2=tau**2, tau4=tau**4)
    return Jitter(tau2=tau**2, variance=0.0, persistent=(one,))


def run(taus: Mapping[str, float], *, checkpoints: int = 42, r: float = 0.1, df: float = 0.0) -> NoiseOfRun | None:
    """The noise of a run whose jitters are known; df: of Student's t, 0: normal."""
    found = {}
    for k, (name, tau) in enumerate(taus.items()):
        rng = np.random.default_rng(k)
        drawn = rng.standard_t(df, checkpoints) if df else rng.normal(size=checkpoints)
        found[name] = (track_of((0.5 + tau * drawn)[:, np.newaxis]), jitter(tau, r))
    return diagnosed_noise(found)


def aspects(noise: NoiseOfRun | None) -> list[NoiseAspect]:
    assert noise is not None
    return [one.aspect for one in noise.out_of_range]


LIKE = {f"b{k}": 0.003 for k in range(10)}


def test_jitters_are_named_largest_first_with_the_checkpoints_behind_them() -> None:
    found = run({"quiet": 0.002, "loud": 0.02})
    assert found is not None
    assert [(one.benchmark, one.checkpoints) for one in found.benchmarks] == [("loud", 42), ("quiet", 42)]
    assert [one.jitter for one in found.benchmarks] == pytest.approx([0.02, 0.002])
    assert (found.persistence, found.differences, found.out_of_range) == (0.1, 80, ())
    assert found.tails == pytest.approx(1.0, abs=0.25)


@pytest.mark.parametrize(
    ("taus", "fields", "expected"),
    [
        (LIKE, {}, []),
        (LIKE | {"b1": LARGEST_JITTER + 0.001}, {}, [NoiseAspect.JITTER]),
        (LIKE | {"b1": LARGEST_JITTER + 0.001}, {"checkpoints": MIN_CHECKPOINTS - 1}, []),
        (LIKE | {"b1": 0.0006, "b2": 0.025}, {}, [NoiseAspect.SPREAD]),
        (LIKE, {"r": LARGEST_PERSISTENCE + 0.01}, [NoiseAspect.PERSISTENCE]),
        (LIKE, {"df": 1.0}, [NoiseAspect.TAILS]),
        ({"b0": 0.003}, {"df": 1.0}, []),
    ],
)
def test_what_leaves_the_simulated_range_is_named(
    taus: Mapping[str, float], fields: Mapping[str, float], expected: Sequence[NoiseAspect]
) -> None:
    assert aspects(run(taus, **fields)) == expected  # type: ignore[arg-type]


def test_too_few_checkpoints_and_an_open_loss_show_nothing() -> None:
    assert run(LIKE, checkpoints=4) is None
    assert diagnosed_noise({}) is None
    lost: FloatArray = np.linspace(0, 1, 40)[:, np.newaxis]
    assert (
        diagnosed_noise({"b": (Track(scores=matrix_of(lost), rows=np.arange(40), noise_to=4), jitter(0.003))}) is None
    )


@pytest.mark.parametrize(("world", "expected"), [("base", []), ("t3_rough", []), ("bursts", [])])
def test_runs_of_simulated_worlds_are_in_range(world: str, expected: Sequence[NoiseAspect]) -> None:
    drawn = draw(WORLDS[world], 7, improves=True)
    tracks = [track_of(table[:60].mean(axis=1, keepdims=True)) for table in drawn.scores]
    named = {str(k): pair for k, pair in enumerate(zip(tracks, jitter_of(tracks), strict=True))}
    assert aspects(diagnosed_noise(named)) == expected
