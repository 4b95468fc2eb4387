"""The rules of `ports.Clock`, over the fake and the system's."""

from datetime import UTC, timedelta

import pytest

from eval_jobs.host.clock import SystemClock
from eval_jobs.ports import Clock
from tests.fakes.clock import FakeClock


@pytest.fixture(params=[FakeClock, SystemClock])
def clock(request: pytest.FixtureRequest) -> Clock:
    made: Clock = request.param()
    return made


def test_the_time_is_utc_and_says_so(clock: Clock) -> None:
    assert clock.now().utcoffset() == timedelta()
    assert clock.now().tzinfo is UTC


def test_time_never_runs_backwards_and_passes_while_sleeping(clock: Clock) -> None:
    before = clock.now()
    clock.sleep(0.02)
    assert clock.now() >= before + timedelta(seconds=0.015)


def test_seconds_that_nobody_can_set_pass_while_sleeping(clock: Clock) -> None:
    before = clock.monotonic_s()
    clock.sleep(0.02)
    assert clock.monotonic_s() >= before + 0.015


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_sleeping_no_time_returns_at_once(clock: Clock, seconds: float) -> None:
    before = clock.now()
    clock.sleep(seconds)
    assert clock.now() >= before
