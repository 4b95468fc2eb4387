"""Checkpoints wait while every evaluation would fail, and pending plans follow the settings."""

import logging
from dataclasses import replace

import pytest

from eval_jobs.errors import ConfigError
from eval_jobs.queue.rules import lease_end
from eval_jobs.types import BenchmarkFailure
from tests.fakes.clock import FakeClock
from tests.fakes.source import FakeSource
from tests.unit.tracker.app.fake_world import FakeWorld
from tracker.app.daemon import StopRule, watch
from tracker.app.readiness import RECHECK_S, ReadyGate
from tracker.app.tick import tick
from tracker.app.world import WatchState, World
from tracker.domain.readiness.finding import Finding, error, ok, warning

BROKEN = error("model", "no chat template", "save one")


class Gate:
    """A gate over findings that a test sets."""

    def __init__(self, *, must_be_ready: bool = False) -> None:
        self.clock = FakeClock()
        self.findings: tuple[Finding, ...] = (BROKEN,)
        self.examined = 0
        self.gate = ReadyGate(self.examine, self.clock, must_be_ready=must_be_ready)

    def examine(self, checkpoint: object) -> tuple[Finding, ...]:
        del checkpoint
        self.examined += 1
        return self.findings


def test_checkpoints_are_held_until_a_later_check_finds_no_error(caplog: pytest.LogCaptureFixture) -> None:
    fakes, gate = FakeWorld(), Gate()
    world, state = fakes.world(), WatchState(is_held=gate.gate.is_held)
    fakes.source.put(fakes.run.records[0].plan.checkpoint)
    for _ in range(3):
        tick(world, state, fakes.clock.now())
        gate.clock.advance(RECHECK_S / 2)
        gate.findings = (replace(BROKEN, message="no chat template in step-200"),)  # of a later checkpoint
    assert (gate.examined, fakes.queue.waiting()) == (2, ())
    assert [record.message for record in caplog.records] == [
        "model: no chat template (hint: save one)",
        "evaluations wait until this is fixed; checkpoints are pinned meanwhile",
    ]
    gate.findings = (warning("disk", "nearly full", "free space"), ok("model", "usable"))
    gate.clock.advance(RECHECK_S)
    tick(world, state, fakes.clock.now())
    assert len(fakes.queue.waiting()) == 1
    gate.findings = (BROKEN,)
    gate.clock.advance(RECHECK_S)
    assert not gate.gate.is_held(fakes.run.records[0].plan.checkpoint), "it stays open"


def test_an_error_that_was_shown_before_is_not_logged_again_but_that_evaluations_wait_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fakes, gate = FakeWorld(), Gate()
    gate.gate.shown = (BROKEN,)
    gate.gate.is_held(fakes.run.records[0].plan.checkpoint)
    gate.findings = (BROKEN, error("engine", "not installed", "install it"))
    gate.clock.advance(RECHECK_S)
    gate.gate.is_held(fakes.run.records[0].plan.checkpoint)
    assert [record.message for record in caplog.records] == [
        "evaluations wait until this is fixed; checkpoints are pinned meanwhile",
        "engine: not installed (hint: install it)",
    ]


def test_without_a_user_an_error_ends_the_command() -> None:
    fakes, gate = FakeWorld(), Gate(must_be_ready=True)
    with pytest.raises(ConfigError, match="model: no chat template"):
        gate.gate.is_held(fakes.run.records[0].plan.checkpoint)


def begin(fakes: FakeWorld, world: World) -> None:
    """Watch for one pass, as a new process."""
    source = FakeSource()
    source.put(fakes.run.records[0].plan.checkpoint)
    watch(
        replace(world, source=source),
        WatchState(),
        clock=fakes.clock,
        keep_workers=lambda: None,
        stop=StopRule(training_ended=lambda: False, quiet_s=1.0, is_superseded=lambda: True),
        show=lambda *_: None,
    )


def test_a_plan_that_failed_waits_again_with_the_settings_of_now() -> None:
    fakes = FakeWorld()
    begin(fakes, world := fakes.world())
    now = fakes.clock.now()
    claim = fakes.queue.claim(worker="w", now=now, lease_until=lease_end(now))
    assert claim is not None
    failed = BenchmarkFailure(
        benchmark="facts", fingerprint="", code="E-SERVE-START", message="no memory", hint="use less", retryable=False
    )
    fakes.queue.finish(claim, replace(fakes.run.records[0], plan=claim.plan, outcomes=(failed,)), now=now)
    begin(fakes, world)
    serve = replace(world.measurement.serve, gpu_memory_utilization=0.3)
    changed = replace(world, measurement=replace(world.measurement, serve=serve))
    watch(
        replace(changed, source=FakeSource()),  # nothing is planned in this pass
        WatchState(),
        clock=fakes.clock,
        keep_workers=lambda: None,
        stop=StopRule(training_ended=lambda: False, quiet_s=1.0, is_superseded=lambda: True),
        show=lambda *_: None,
    )
    (again,) = fakes.queue.waiting()
    assert (again.id, again.serve.gpu_memory_utilization) == (claim.plan.id, 0.3)


def test_workers_rest_while_an_examination_finds_errors() -> None:
    fakes, gate = FakeWorld(), Gate()
    assert not gate.gate.errors
    gate.gate.is_held(fakes.run.records[0].plan.checkpoint)
    assert gate.gate.errors
    gate.findings = ()
    gate.clock.advance(RECHECK_S)
    gate.gate.is_held(fakes.run.records[0].plan.checkpoint)
    assert not gate.gate.errors


def test_pending_plans_of_other_settings_are_replaced(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    fakes = FakeWorld()
    world = fakes.world()
    begin(fakes, world)
    begin(fakes, world)
    (old,) = fakes.queue.waiting()
    assert caplog.records == [], "the same settings replace nothing"
    suite = world.measurement.suites[0]
    changed = replace(suite, generation=replace(suite.generation, max_tokens=17))
    begin(fakes, replace(world, measurement=replace(world.measurement, suites=(changed,))))
    (new,) = fakes.queue.waiting()
    assert (old.suite.generation.max_tokens == 17, new.suite.generation.max_tokens) == (False, 17)
    assert [record.message for record in caplog.records] == [
        "replaced the pending evaluations of 1 checkpoint: settings changed"
    ]
