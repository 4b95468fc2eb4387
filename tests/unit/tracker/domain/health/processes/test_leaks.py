"""Whether a number grows to its limit: steady growth does, a warm-up, steps and noise do not."""

import random

import pytest

from tracker.domain.health.processes.leaks import POINTS, Trend, slope
from tracker.domain.health.processes.signs import sign_of_leak
from tracker.domain.records.training import Severity

GIB = 2**30


def trend(*values: float) -> Trend:
    found = Trend(left_out=POINTS)
    for minute, value in enumerate(values):
        found.take(minute * 60.0, value)
    return found


NOISE = random.Random(7)  # noqa: S311 - no secret
STEADY = [100 * GIB + minute * GIB / 6 + NOISE.gauss(0, GIB / 10) for minute in range(POINTS)]
"""10 GiB an hour."""


def test_steady_growth_reaches_the_limit_although_a_third_of_the_points_is_wild() -> None:
    assert trend(*STEADY).hours_to(200 * GIB) == pytest.approx(9.0, rel=0.1)
    wild = [value if minute % 3 else 300 * GIB for minute, value in enumerate(STEADY)]
    assert slope(tuple((minute * 60.0, value) for minute, value in enumerate(wild))) == pytest.approx(10 * GIB, rel=0.3)


def test_the_first_hour_is_left_out_in_which_caches_fill() -> None:
    found = Trend()
    for minute, value in enumerate([*STEADY, *STEADY[:-1]]):
        found.take(minute * 60.0, value)
        assert found.hours_to(200 * GIB) is None
    found.take(POINTS * 120.0, STEADY[-1])
    assert found.hours_to(200 * GIB) is not None


@pytest.mark.parametrize(
    ("what", "values"),
    [
        ("too few points", STEADY[:-1]),
        ("level", [100 * GIB] * POINTS),
        ("noise", [100 * GIB + NOISE.gauss(0, GIB) for _ in range(POINTS)]),
        ("falls", STEADY[::-1]),
        ("warm-up", [100 * GIB * (1 - 0.5 ** (minute / 5)) for minute in range(POINTS)]),
        ("one step up", [50.0 * GIB] * 30 + [100.0 * GIB] * 30),
        ("slower than it matters", [100 * GIB + minute * GIB / 100 for minute in range(POINTS)]),
    ],
)
def test_what_does_not_grow_on_and_on_is_no_leak(what: str, values: list[float]) -> None:
    assert trend(*values).hours_to(200 * GIB) is None, what


def test_a_leak_is_an_alert_within_a_day_shown_within_a_week_and_nothing_beyond() -> None:
    found = sign_of_leak("memory_leak", trend(*STEADY), STEADY[-1], 200 * GIB)
    assert found is not None
    assert found.trouble.severity is Severity.ALERT
    assert found.text.startswith("memory: 110 GiB of 200 GiB, which it reaches in 9.")
    shown = sign_of_leak("memory_leak", trend(*STEADY), STEADY[-1], 450 * GIB)
    assert shown is not None
    assert shown.trouble.severity is Severity.SHOWN
    files = [float(100 + minute) for minute in range(POINTS)]
    shared = sign_of_leak("shared_memory_leak", trend(*STEADY), STEADY[-1], 200 * GIB)
    assert shared is not None
    assert shared.trouble.title == "Shared memory grows to its limit"
    descriptors = sign_of_leak("descriptor_leak", trend(*files), files[-1], 1024.0)
    assert descriptors is not None
    assert descriptors.text == "open files: 159 of 1,024, which it reaches in 14.4 h"
    assert sign_of_leak("descriptor_leak", trend(*files), files[-1], 1e6) is None
