"""Stopping an engine that has not answered yet, and a stop that a signal interrupts, on the stand-in for vLLM."""

from dataclasses import replace
from pathlib import Path

import pytest

from eval_jobs.host.clock import SystemClock
from eval_jobs.serve.process.lifecycle import STOP_GRACE_S
from eval_jobs.serve.resident.vllm import VllmEngine
from eval_jobs.types import Checkpoint, ServeSpec
from tests.contract.engine_rules import nothing_to_show
from tests.fakes.vllm_stand_in import write_interpreter
from tests.integration.left_behind import record_of, writers
from tests.tiny_model import checkpoint_record, write_checkpoint


class CountingClock(SystemClock):
    """Knows how long was waited since `slept_s` was last set to 0; can raise once, as a signal does."""

    def __init__(self) -> None:
        self.slept_s = 0.0
        self.interrupt: BaseException | None = None

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds
        interrupt, self.interrupt = self.interrupt, None
        if interrupt is not None:
            raise interrupt
        super().sleep(seconds)


@pytest.fixture
def work_dir(tmp_path: Path) -> Path:
    return tmp_path / "work"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return checkpoint_record(write_checkpoint(tmp_path / "checkpoint"))


@pytest.fixture
def spec(tmp_path: Path) -> ServeSpec:
    return ServeSpec(python=str(write_interpreter(tmp_path)), startup_timeout_s=600)


def test_an_engine_that_has_not_answered_yet_is_not_given_long_to_end(
    checkpoint: Checkpoint, spec: ServeSpec, work_dir: Path
) -> None:
    clock = CountingClock()

    def count_from_here(_: str) -> None:
        if (
            list(work_dir.glob("engines/*.log"))
            and "Loading weights" in next(work_dir.glob("engines/*.log")).read_text()
        ):
            clock.slept_s = 0.0
            raise KeyboardInterrupt

    deaf = replace(spec, args=("--stand-in", "deaf"))
    engine = VllmEngine(work_dir, clock)
    with pytest.raises(KeyboardInterrupt), engine.serving(checkpoint, deaf, progress=count_from_here):
        pytest.fail("it must not be served")
    assert clock.slept_s < STOP_GRACE_S / 2
    assert writers(*work_dir.glob("engines/*.log")) == []


def test_a_stop_that_is_interrupted_is_completed_by_the_next(
    checkpoint: Checkpoint, spec: ServeSpec, work_dir: Path
) -> None:
    clock = CountingClock()
    engine = VllmEngine(work_dir, clock)
    family = replace(spec, args=("--stand-in", "family"))
    with engine.serving(checkpoint, family, progress=nothing_to_show) as endpoint:
        tmp_dir = Path(record_of(work_dir).tmp_dir)
    clock.interrupt = KeyboardInterrupt()  # arrives while the engine is being stopped
    with pytest.raises(KeyboardInterrupt):
        engine.close()
    assert writers(endpoint.info.log)
    engine.close()
    engine.close()
    assert writers(endpoint.info.log) == []
    assert not tmp_dir.exists()
    assert not list(work_dir.glob("engines/*.pid"))
