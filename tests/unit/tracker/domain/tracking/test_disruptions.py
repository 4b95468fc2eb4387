"""Moments of the training after which a dip is expected."""

import math
from collections.abc import Sequence

import pytest

from tracker.domain.records.policy import Phase
from tracker.domain.records.types import CurvePoint
from tracker.domain.tracking.disruptions import disruptions_of


def curve(key: str, values: Sequence[float]) -> list[CurvePoint]:
    return [CurvePoint(key=key, step=10 * at, value=value) for at, value in enumerate(values)]


def cosine(steps: int, peak: float = 3e-4) -> list[float]:
    return [peak * (0.55 + 0.45 * math.cos(math.pi * at / steps)) for at in range(steps)]


WARMUP = [1e-5, 1e-4, 2e-4]


@pytest.mark.parametrize(
    ("values", "steps"),
    [
        ([*WARMUP, *cosine(30)], []),
        ([*WARMUP, *cosine(30), *cosine(30)], [320]),
        ([*WARMUP, *cosine(30), *WARMUP, *cosine(20)], [330]),  # with a warm-up: from its start
        ([3e-4] * 40, []),
        ([*WARMUP, *cosine(30), *cosine(30), *cosine(30)], [320, 620]),
        ([0.0, 0.0, 1e-4, 0.0, 0.0, 1e-4], [30]),
        ([], []),
    ],
)
def test_restarts_of_the_learning_rate(values: Sequence[float], steps: Sequence[int]) -> None:
    found = disruptions_of(curve("train/learning_rate", values), ())
    assert [d.step for d in found] == steps
    assert {d.what for d in found} <= {"restart of the learning rate"}


def test_the_batch_size_and_phases() -> None:
    points = [*curve("train/global_batch_size", [64, 64, 128, 128]), *curve("train/loss", [3.0, 1.0, 3.0])]
    phases = (Phase(name="pretrain", from_step=0), Phase(name="code", from_step=25))
    found = [(d.step, d.what) for d in disruptions_of(points, phases)]
    assert found == [(10, "change of the batch size"), (25, "phase code")]
