"""What a worker tells its engine between two checkpoints."""

from eval_jobs.errors import EndpointFailed
from eval_jobs.execute.worker.main import IDLE_S
from eval_jobs.queue.rules import MAX_ATTEMPTS
from tests.fakes.engine import FakeEngine
from tests.unit.eval_jobs.execute.worker.test_main import ENDPOINT, Bench, bench

__all__ = ["bench"]


class NotingEngine(FakeEngine):
    """Knows in which order it was used, let rest and closed."""

    def __init__(self) -> None:
        super().__init__(ENDPOINT)
        self.notes: list[str] = []

    def rest(self) -> None:
        self.notes.append("rest")

    def close(self) -> None:
        self.notes.append(f"close after {len(self.served_steps)}")


def noting(bench: Bench) -> NotingEngine:
    engine = NotingEngine()
    bench.engine = engine
    object.__setattr__(bench.worker.tools, "engine", engine)
    return engine


def test_the_engine_rests_when_nothing_waits_and_not_before(bench: Bench) -> None:
    engine = noting(bench)
    bench.add(0, 1, 2)
    bench.run()
    assert engine.notes == ["rest"]
    assert len(engine.served_steps) == 3
    assert bench.clock.slept == [IDLE_S]


def test_another_try_gets_another_engine(bench: Bench) -> None:
    """Whatever made the first one fail may be in the engine that stays."""

    def script(*_: object) -> None:
        raise EndpointFailed("it answers nothing", hint="")

    engine = noting(bench)
    bench.evaluator.script = script
    bench.add(0)
    bench.run()
    assert engine.notes == [*(f"close after {tries}" for tries in range(1, MAX_ATTEMPTS)), "rest"]
