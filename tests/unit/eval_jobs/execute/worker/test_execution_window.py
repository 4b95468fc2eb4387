import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from eval_jobs.errors import ConfigError
from eval_jobs.execute.worker.execution_window import LOOK_AGAIN_S, ExecutionWindow
from eval_jobs.types import EvalPlan, OnlyWhen
from tests.fakes.clock import FakeClock
from tests.records import forgetting_run

PLAN = forgetting_run(checkpoints=1, samples=2, trouble=False).records[0].plan
RUN = PLAN.checkpoint.run_id
NOON = datetime(2026, 6, 10, 12, tzinfo=UTC)
NIGHT = OnlyWhen(hours="20:00-07:00", time_zone="UTC")
IDLE_GPU = OnlyWhen(gpu_below_pct=10, gpu_over_s=5)


def plan(only_when: OnlyWhen) -> EvalPlan:
    return replace(PLAN, serve=replace(PLAN.serve, only_when=only_when))


class Gpu:
    def __init__(self, busy_pct: float = 0.0) -> None:
        self.busy_pct = busy_pct
        self.readings = 0

    def read(self) -> float:
        self.readings += 1
        return self.busy_pct


def nothing_tells() -> float:
    raise ConfigError("cannot query the GPUs", hint="install nvidia-ml-py")


def no_gpu_is_read() -> float:
    raise AssertionError("no plan asks for it")


def window_of(clock: FakeClock, read: Callable[[], float] = no_gpu_is_read) -> ExecutionWindow:
    return ExecutionWindow(clock, read)


def poll(clock: FakeClock, window: ExecutionWindow, *, seconds: float) -> list[tuple[str, ...]]:
    """Look twice a second, as an idle worker does; return what was paused at each look."""
    seen = []
    for _ in range(int(seconds * 2)):
        clock.advance(0.5)
        seen.append(window.paused_runs())
    return seen


def test_a_plan_without_conditions_begins() -> None:
    waiting = window_of(FakeClock(NOON))
    assert waiting.reason(PLAN) == ""
    assert waiting.paused_runs() == ()
    assert waiting.shown == ""


def test_a_plan_outside_its_hours_waits_and_says_until_when() -> None:
    waiting = window_of(FakeClock(NOON))
    why = waiting.reason(plan(NIGHT))
    assert why == "waiting until 20:00 UTC (serve.only_when.hours = 20:00-07:00)"
    assert waiting.paused_runs() == (RUN,)
    assert waiting.shown == f"{RUN}: {why}"


def test_when_the_hours_begin_the_run_is_no_longer_paused() -> None:
    clock = FakeClock(datetime(2026, 6, 10, 19, 59, 40, tzinfo=UTC))
    waiting = window_of(clock)
    assert waiting.reason(plan(NIGHT))
    clock.advance(19)
    assert waiting.paused_runs() == (RUN,)
    clock.advance(1)
    assert waiting.paused_runs() == ()
    assert waiting.reason(plan(NIGHT)) == ""
    assert waiting.shown == ""


def test_what_a_plan_asked_for_is_looked_up_again_after_a_minute() -> None:
    clock = FakeClock(NOON)
    waiting = window_of(clock)
    waiting.reason(plan(NIGHT))
    clock.advance(LOOK_AGAIN_S)
    assert waiting.paused_runs() == (), "the settings may have changed: the worker claims to see them"
    assert waiting.reason(PLAN) == ""


@pytest.mark.parametrize("jump", [timedelta(hours=-5), timedelta(hours=5), timedelta(days=-400)])
def test_a_clock_that_is_set_changes_only_what_the_clock_says(jump: timedelta) -> None:
    clock = FakeClock(NOON)
    waiting = window_of(clock)
    waiting.reason(plan(NIGHT))
    clock.jump(jump.total_seconds())
    assert waiting.paused_runs() == (RUN,), "07:00, 17:00 and noon are no hours of it either"
    clock.jump(timedelta(hours=9).total_seconds() - jump.total_seconds())
    assert waiting.paused_runs() == (), "21:00"


def test_a_busy_gpu_is_waited_for_and_an_idle_one_must_be_idle_for_a_while() -> None:
    clock, gpu = FakeClock(NOON), Gpu(busy_pct=97)
    waiting = window_of(clock, gpu.read)
    assert waiting.reason(plan(IDLE_GPU)) == "measuring GPU utilization for 5 s (serve.only_when.gpu_below_pct)"
    assert set(poll(clock, waiting, seconds=20)) == {(RUN,)}
    assert waiting.reason(plan(IDLE_GPU)) == ("waiting: GPU utilization is 97 % (serve.only_when.gpu_below_pct = 10)")
    gpu.busy_pct = 10
    assert set(poll(clock, waiting, seconds=12)) == {(RUN,)}, "below, not at"
    gpu.busy_pct = 97
    assert set(poll(clock, waiting, seconds=6)) == {(RUN,)}
    gpu.busy_pct = 0
    assert set(poll(clock, waiting, seconds=3)) == {(RUN,)}, "a moment of rest is none"
    assert poll(clock, waiting, seconds=6)[-1] == ()
    assert waiting.reason(plan(IDLE_GPU)) == ""


def test_what_was_read_before_a_plan_says_nothing_after_it() -> None:
    clock, gpu = FakeClock(NOON), Gpu()
    waiting = window_of(clock, gpu.read)
    waiting.reason(plan(IDLE_GPU))
    poll(clock, waiting, seconds=10)
    assert waiting.reason(plan(IDLE_GPU)) == ""
    assert waiting.reason(plan(IDLE_GPU)), "the engine had work in between: the load was its own"


def test_a_gap_between_readings_begins_the_average_anew() -> None:
    clock, gpu = FakeClock(NOON), Gpu()
    waiting = window_of(clock, gpu.read)
    waiting.reason(plan(IDLE_GPU))
    poll(clock, waiting, seconds=4)
    clock.advance(30)  # the database was away
    assert waiting.paused_runs() == (RUN,)
    assert waiting.reason(plan(IDLE_GPU)).startswith("measuring GPU utilization for 5 s")


def test_a_gpu_is_read_once_a_second_at_most() -> None:
    clock, gpu = FakeClock(NOON), Gpu(busy_pct=50)
    waiting = window_of(clock, gpu.read)
    waiting.reason(plan(IDLE_GPU))
    poll(clock, waiting, seconds=10)
    assert gpu.readings == 11


def test_outside_the_hours_no_gpu_is_read() -> None:
    clock, gpu = FakeClock(NOON), Gpu()
    waiting = window_of(clock, gpu.read)
    waiting.reason(plan(replace(IDLE_GPU, hours=NIGHT.hours, time_zone="UTC")))
    poll(clock, waiting, seconds=3)
    assert gpu.readings == 0


def test_a_load_that_nothing_tells_is_waited_for_with_the_reason() -> None:
    clock = FakeClock(NOON)
    waiting = window_of(clock, nothing_tells)
    assert waiting.reason(plan(IDLE_GPU)) == "waiting: cannot query the GPUs (hint: install nvidia-ml-py)"
    assert waiting.paused_runs() == (RUN,)


def test_each_pause_is_told_once_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock(NOON)
    waiting = window_of(clock)
    with caplog.at_level(logging.INFO, logger="eval_jobs.execute.worker.execution_window"):
        for _ in range(3):
            waiting.reason(plan(NIGHT))
            clock.advance(LOOK_AGAIN_S)
            waiting.paused_runs()
        assert len(caplog.records) == 1
        clock.advance(timedelta(hours=9).total_seconds())
        assert waiting.reason(plan(NIGHT)) == ""
        clock.advance(timedelta(hours=12).total_seconds())
        assert waiting.reason(plan(NIGHT))
        assert len(caplog.records) == 2
