from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from eval_jobs.errors import BadData, DiskFull, EndpointFailed, StoreError, TrackerError
from eval_jobs.execute.interrupts import WAKE_SIGNAL, Interrupts, Stopped
from eval_jobs.execute.worker.claiming import ClaimFilter
from eval_jobs.execute.worker.execution_window import ExecutionWindow
from eval_jobs.execute.worker.main import IDLE_S, STORE_RETRY_S, Worker, work
from eval_jobs.identity import benchmark_fingerprint
from eval_jobs.ports import ShowProgress
from eval_jobs.queue.rules import MAX_ATTEMPTS, MAX_CRASHES
from eval_jobs.queue_types import Claim
from eval_jobs.records.progress import Progress, Stage
from eval_jobs.run import Tools
from eval_jobs.types import (
    Benchmark,
    BenchmarkFailure,
    Endpoint,
    EngineInfo,
    EvalRecord,
    EvalResult,
    SampleScore,
    SampleStatus,
    Suite,
)
from tests.fakes.clock import FakeClock
from tests.fakes.engine import FakeEngine
from tests.fakes.prober import FakeProber
from tests.fakes.queue import FakeQueue
from tests.records import forgetting_run

PLANS = tuple(record.plan for record in forgetting_run(checkpoints=3, samples=2, trouble=False).records)
LEASE_S = 60.0
ENDPOINT = Endpoint(
    base_url="http://127.0.0.1:9/v1",
    model="fake",
    api_key_env="",
    info=EngineInfo(name="fake", version="1", load_method="remote", load_s=0.0, log=""),
)

Script = Callable[[Benchmark, ShowProgress], None]
"""What happens while a benchmark is evaluated; returning gives a result."""


class ScriptedEvaluator:
    def __init__(self) -> None:
        self.script: Script = lambda *_: None
        self.evaluated: list[tuple[str, str]] = []
        self.forgotten: list[str] = []
        self.left: tuple[str, ...] = ()
        """By an earlier worker."""

    def evaluate(
        self, suite: Suite, endpoint: Endpoint, *, plan_id: str, progress: ShowProgress
    ) -> tuple[EvalResult | TrackerError, ...]:
        del endpoint
        outcomes: list[EvalResult | TrackerError] = []
        for benchmark in suite.benchmarks:
            self.evaluated.append((plan_id, benchmark.name))
            try:
                self.script(benchmark, progress)
            except TrackerError as error:
                outcomes.append(error)
            else:
                outcomes.append(_result(benchmark, suite))
        return tuple(outcomes)

    def prepare(self, suite: Suite, *, api_key_env: str) -> None:
        """Nothing takes long here."""

    def kept(self) -> tuple[str, ...]:
        return self.left

    def forget(self, plan_id: str) -> None:
        self.forgotten.append(plan_id)

    def close(self) -> None:
        """Nothing to close."""


def _result(benchmark: Benchmark, suite: Suite) -> EvalResult:
    return EvalResult(
        benchmark=benchmark.name,
        fingerprint=benchmark_fingerprint(benchmark, suite),
        metric="accuracy",
        samples=(SampleScore(sample_id="a", subset="", score=1.0, status=SampleStatus.SCORED),),
        duration_s=0.0,
    )


class UnreliableQueue(FakeQueue):
    """Its database refuses `refusals[method]` times."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals: dict[str, int] = {}

    def claim(self, **arguments: object) -> Claim | None:
        self._refuse("claim")
        return super().claim(**arguments)  # type: ignore[arg-type]

    def finish(self, claim: Claim, record: EvalRecord, **arguments: object) -> bool:
        self._refuse("finish")
        return super().finish(claim, record, **arguments)  # type: ignore[arg-type]

    def release(self, claim: Claim, **arguments: object) -> None:
        self._refuse("release")
        super().release(claim, **arguments)  # type: ignore[arg-type]

    def done(self, plan_ids: Collection[str]) -> frozenset[str]:
        self._refuse("done")
        return super().done(plan_ids)

    def _refuse(self, method: str) -> None:
        if self.refusals.get(method, 0) > 0:
            self.refusals[method] -= 1
            raise StoreError("the database is away", hint="wait")


class Bench:
    """A worker on fakes, which stops by itself when the queue is empty."""

    def __init__(self, interrupts: Interrupts, queue: UnreliableQueue | None = None) -> None:
        self.queue = queue or UnreliableQueue()
        self.clock = StopsWhenIdle(interrupts)
        self.evaluator = ScriptedEvaluator()
        self.engine = FakeEngine(ENDPOINT)
        self.interrupts = interrupts
        tools = Tools(engine=self.engine, evaluator=self.evaluator, prober=FakeProber(), clock=self.clock)
        claims = ClaimFilter(window=ExecutionWindow(self.clock))
        self.worker = Worker(
            name="a", queue=self.queue, tools=tools, interrupts=interrupts, claim_filter=claims, lease_s=LEASE_S
        )

    def add(self, *plans: int) -> None:
        for index in plans:
            self.queue.add(PLANS[index], now=self.clock.now())

    def again(self) -> Bench:
        """Return another worker on the same queue, as after a restart."""
        interrupts = Interrupts()
        interrupts.install()
        return Bench(interrupts, self.queue)

    def run(self) -> None:
        with pytest.raises(Stopped):
            work(self.worker)


class StopsWhenIdle(FakeClock):
    def __init__(self, interrupts: Interrupts) -> None:
        super().__init__()
        self._interrupts = interrupts

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if seconds == IDLE_S:
            self._interrupts.stop()


@pytest.fixture
def bench() -> Iterator[Bench]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, WAKE_SIGNAL)}
    interrupts = Interrupts()
    interrupts.install()
    yield Bench(interrupts)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def failures(record: EvalRecord) -> list[BenchmarkFailure]:
    return [outcome for outcome in record.outcomes if isinstance(outcome, BenchmarkFailure)]


REFUSED = EndpointFailed("connection refused", hint="start it")


def raising(error: TrackerError) -> Script:
    def script(*_: object) -> None:
        raise error

    return script


def test_plans_are_carried_out_lowest_step_first_and_handed_in(bench: Bench) -> None:
    bench.add(2, 0, 1)
    bench.run()
    records = bench.queue.finished()
    assert [record.plan for record in records] == list(PLANS)
    assert bench.engine.served_steps == [100, 200, 300]
    assert [failures(record) for record in records] == [[], [], []]
    assert bench.evaluator.forgotten == [plan.id for plan in PLANS]


def test_the_progress_is_visible_while_the_plan_runs(bench: Bench) -> None:
    bench.worker = replace(bench.worker, lease_s=0.1)  # so that it beats every 25 ms
    seen = threading.Event()

    def script(benchmark: Benchmark, progress: ShowProgress) -> None:
        said = Progress(stage=Stage.EVALUATING, benchmarks=(benchmark.name,), done=120, total=300)
        progress(said)
        while not seen.wait(0.01):
            if [running.progress for running in bench.queue.state().running] == [said]:
                seen.set()

    bench.evaluator.script = script
    bench.add(0)
    bench.run()
    assert seen.is_set()


def test_a_plan_that_has_nothing_to_say_for_long_is_shown_again_and_again(bench: Bench) -> None:
    shown = list[str]()
    bench.worker = replace(bench.worker, lease_s=0.1, show=shown.append)
    many = threading.Event()

    def script(_: Benchmark, progress: ShowProgress) -> None:
        progress(Progress(stage=Stage.EVALUATING, note="thinking"))
        while not many.wait(0.01):
            if sum("thinking" in line for line in shown) > 3:
                many.set()

    bench.evaluator.script = script
    bench.add(0)
    bench.run()
    assert many.is_set()


def test_a_failure_that_may_pass_is_tried_four_times_with_growing_waits(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.evaluator.script = raising(REFUSED)
    bench.add(0)
    with caplog.at_level("WARNING"):
        bench.run()
    (record,) = bench.queue.finished()
    assert {failure.code for failure in failures(record)} == {"E-EVAL-ENDPOINT"}
    assert len(bench.engine.served_steps) == 4
    notes = [line for line in caplog.messages if f"UTC: E-EVAL-ENDPOINT: {REFUSED.message}" in line]
    assert [number for number in (2, 3, 4) if f"attempt {number} at " in notes[number - 2]] == [2, 3, 4]
    assert [s for s in bench.clock.slept if s not in (IDLE_S,)] == [10.0, 30.0, 90.0]


def test_one_benchmark_that_the_engine_did_not_survive_is_tried_again(bench: Bench) -> None:
    def script(benchmark: Benchmark, _: ShowProgress) -> None:
        if benchmark.name == PLANS[0].suite.benchmarks[-1].name and len(bench.engine.served_steps) == 1:
            raise REFUSED

    bench.evaluator.script = script
    bench.add(0)
    bench.run()
    (record,) = bench.queue.finished()
    assert failures(record) == []
    assert len(bench.engine.served_steps) == 2
    assert bench.evaluator.forgotten == [PLANS[0].id]


def test_answers_are_kept_while_a_failure_may_still_pass(bench: Bench) -> None:
    bench.evaluator.script = raising(DiskFull("no space is left", hint="free some"))
    bench.add(0)
    bench.run()
    (record,) = bench.queue.finished()
    assert {failure.code for failure in failures(record)} == {"E-STORE-DISK"}
    assert bench.evaluator.forgotten == []


def test_answers_are_dropped_when_no_failure_will_pass(bench: Bench) -> None:
    bench.evaluator.script = raising(BadData("line 3 is broken", hint="correct it"))
    bench.add(0)
    bench.run()
    assert len(bench.engine.served_steps) == 1
    assert bench.evaluator.forgotten == [PLANS[0].id]


def test_being_stopped_again_and_again_uses_up_no_try(bench: Bench) -> None:
    bench.add(0)
    for _ in range(MAX_ATTEMPTS):
        stopped = bench.again()
        stopped.evaluator.script = lambda *_: signal.raise_signal(signal.SIGTERM)
        stopped.run()
    last = bench.again()
    last.evaluator.script = raising(REFUSED)
    last.run()
    assert len(last.engine.served_steps) == MAX_ATTEMPTS


def test_a_failure_that_passed_leaves_no_trace(bench: Bench) -> None:
    def script(*_: object) -> None:
        if len(bench.engine.served_steps) == 1:
            raise REFUSED

    bench.evaluator.script = script
    bench.add(0)
    bench.run()
    (record,) = bench.queue.finished()
    assert failures(record) == []


def test_an_unexpected_error_is_a_record_and_the_next_plan_still_runs(bench: Bench) -> None:
    def script(*_: object) -> None:
        if bench.engine.served_steps == [100]:
            raise ZeroDivisionError("a bug")

    bench.evaluator.script = script
    bench.add(0, 1)
    bench.run()
    first, second = bench.queue.finished()
    assert "unexpected ZeroDivisionError: a bug" in failures(first)[0].message
    assert "worker-" in failures(first)[0].hint
    assert failures(second) == []
    assert bench.engine.serving_step is None


def test_stopping_in_the_middle_gives_the_plan_back(bench: Bench) -> None:
    bench.evaluator.script = lambda *_: signal.raise_signal(signal.SIGTERM)
    bench.add(0, 1)
    bench.run()
    assert bench.queue.finished() == ()
    assert [one.plan_id for one in bench.queue.state().waiting] == [plan.id for plan in PLANS[:2]]
    assert bench.engine.serving_step is None
    assert bench.evaluator.forgotten == []


def test_stopping_while_the_database_is_away_still_stops(bench: Bench) -> None:
    bench.evaluator.script = lambda *_: signal.raise_signal(signal.SIGTERM)
    bench.queue.refusals = {"release": 1}
    bench.add(0)
    bench.run()
    assert [running.plan for running in bench.queue.state().running] == [PLANS[0]]


def test_a_worker_that_lost_its_lease_drops_the_plan_and_takes_the_next(bench: Bench) -> None:
    bench.worker = replace(bench.worker, lease_s=0.1)

    def script(*_: object) -> None:
        if bench.engine.served_steps == [100]:
            bench.clock.advance(1000)
            later = bench.clock.now() + timedelta(hours=1)
            taken = bench.queue.claim(worker="b", now=bench.clock.now(), lease_until=later)
            assert taken is not None
            threading.Event().wait(300)  # until the heartbeat finds out

    bench.evaluator.script = script
    bench.add(0, 1)
    bench.run()
    assert [record.plan for record in bench.queue.finished()] == [PLANS[1]]
    assert [(r.plan, r.worker) for r in bench.queue.state().running] == [(PLANS[0], "b")]
    assert bench.evaluator.forgotten == [PLANS[1].id]


def test_results_wait_for_a_database_that_is_away(bench: Bench) -> None:
    bench.queue.refusals = {"finish": 3}
    bench.add(0)
    bench.run()
    assert [record.plan for record in bench.queue.finished()] == [PLANS[0]]
    assert bench.clock.slept.count(STORE_RETRY_S) == 3
    assert len(bench.engine.served_steps) == 1


def test_a_queue_that_does_not_answer_is_asked_again(bench: Bench) -> None:
    bench.queue.refusals = {"claim": 2}
    bench.add(0)
    bench.run()
    assert len(bench.queue.finished()) == 1


def test_answers_that_a_worker_killed_after_handing_in_left_are_dropped_by_the_next_start(bench: Bench) -> None:
    bench.add(0)
    bench.add(1)
    bench.run()
    done = bench.queue.finished()[0].plan.id
    bench.evaluator.forgotten.clear()
    bench.evaluator.left = (done, "a plan of another queue")
    bench.queue.refusals = {"done": 1}
    bench.run()
    assert bench.evaluator.forgotten == []
    bench.run()
    assert bench.evaluator.forgotten == [done]


def test_a_plan_that_brought_down_three_workers_is_not_tried_again(bench: Bench) -> None:
    bench.add(0)
    for _ in range(MAX_CRASHES):
        now = bench.clock.now()
        assert bench.queue.claim(worker="killed", now=now, lease_until=now + timedelta(seconds=LEASE_S)) is not None
        bench.clock.advance(LEASE_S)
    bench.run()
    (record,) = bench.queue.finished()
    failure = failures(record)[0]
    assert (failure.code, failure.retryable) == ("E-PLAN-POISONED", False)
    assert "crashed 3 consecutive workers: killed at 'the start'; killed" in failure.message
    assert "logs" in failure.hint
    assert bench.engine.served_steps == []
