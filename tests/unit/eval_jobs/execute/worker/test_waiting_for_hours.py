"""A worker that may begin only at certain hours, or while the GPU is idle."""

import signal
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from eval_jobs.execute.interrupts import WAKE_SIGNAL, Interrupts, Stopped
from eval_jobs.execute.worker.claiming import ClaimFilter
from eval_jobs.execute.worker.execution_window import ExecutionWindow
from eval_jobs.execute.worker.main import Worker, work
from eval_jobs.run import Tools
from eval_jobs.types import Endpoint, EngineInfo, EvalPlan, OnlyWhen
from tests.fakes.clock import FakeClock
from tests.fakes.engine import FakeEngine
from tests.fakes.evaluator import FakeEvaluator
from tests.fakes.prober import FakeProber
from tests.fakes.queue import FakeQueue
from tests.records import forgetting_run

PLANS = tuple(record.plan for record in forgetting_run(checkpoints=2, samples=2, trouble=False).records)
EVENING = datetime(2026, 6, 10, 19, 50, tzinfo=UTC)
MORNING = datetime(2026, 6, 11, 6, 59, 50, tzinfo=UTC)
NIGHT = OnlyWhen(hours="20:00-07:00", time_zone="UTC")
ENDPOINT = Endpoint(
    base_url="http://127.0.0.1:9/v1",
    model="fake",
    api_key_env="",
    info=EngineInfo(name="fake", version="1", load_method="remote", load_s=0.0, log=""),
)


class EndsAt(FakeClock):
    """Stops the worker at a time, and keeps what its queue shows of plans that wait."""

    def __init__(self, now: datetime, end: datetime, interrupts: Interrupts, queue: FakeQueue) -> None:
        super().__init__(now)
        self._end = end
        self._interrupts = interrupts
        self._queue = queue
        self.notes: set[str] = set()

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.notes |= {waiting.note for waiting in self._queue.state().waiting if waiting.note}
        if self.now() >= self._end:
            self._interrupts.stop()


class SlowEngine(FakeEngine):
    """Every checkpoint takes an hour; remembers when each began."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(ENDPOINT)
        self._clock = clock
        self.began: list[datetime] = []

    def serving(self, *arguments: object, **options: object):  # type: ignore[no-untyped-def]  # noqa: ANN201
        self.began.append(self._clock.now())
        self._clock.advance(3600)
        return super().serving(*arguments, **options)  # type: ignore[arg-type]


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, WAKE_SIGNAL)}
    interrupts = Interrupts()
    interrupts.install()
    yield interrupts
    for number, handler in handlers.items():
        signal.signal(number, handler)


def with_conditions(plan: EvalPlan, only_when: OnlyWhen, run_id: str = "") -> EvalPlan:
    checkpoint = replace(plan.checkpoint, run_id=run_id or plan.checkpoint.run_id)
    return replace(plan, serve=replace(plan.serve, only_when=only_when), checkpoint=checkpoint)


class Scene:
    def __init__(self, interrupts: Interrupts, *, now: datetime, end: datetime) -> None:
        self.queue = FakeQueue()
        self.clock = EndsAt(now, end, interrupts, self.queue)
        self.engine = SlowEngine(self.clock)
        self.shown: list[str] = []
        self.busy_pct = 0.0
        self._interrupts = interrupts

    def run(self, *plans: EvalPlan) -> None:
        for plan in plans:
            self.queue.add(plan, now=self.clock.now())
        tools = Tools(engine=self.engine, evaluator=FakeEvaluator(str), prober=FakeProber(), clock=self.clock)
        worker = Worker(
            name="a",
            queue=self.queue,
            tools=tools,
            interrupts=self._interrupts,
            lease_s=600.0,
            claim_filter=ClaimFilter(window=ExecutionWindow(self.clock, lambda: self.busy_pct)),
            show=self.shown.append,
        )
        with pytest.raises(Stopped):
            work(worker)


def test_a_worker_waits_for_the_hours_and_says_so_where_people_look(interrupts: Interrupts) -> None:
    scene = Scene(interrupts, now=EVENING, end=EVENING.replace(hour=22))
    scene.run(with_conditions(PLANS[0], NIGHT))
    assert [began.strftime("%H:%M") for began in scene.engine.began] == ["20:00"]
    assert scene.clock.notes == {"waiting until 20:00 UTC (serve.only_when.hours = 20:00-07:00)"}
    assert any("waiting until 20:00 UTC" in line for line in scene.shown)
    (record,) = scene.queue.finished()
    assert record.engine is not None


@pytest.mark.slow
def test_what_was_begun_within_the_hours_is_finished_after_them_and_nothing_else_begins(interrupts: Interrupts) -> None:
    scene = Scene(interrupts, now=MORNING, end=MORNING.replace(hour=9))
    scene.run(*(with_conditions(plan, NIGHT) for plan in PLANS))
    assert [began.strftime("%H:%M") for began in scene.engine.began] == ["06:59"]
    assert [record.plan.checkpoint.step for record in scene.queue.finished()] == [PLANS[0].checkpoint.step]
    assert [waiting.step for waiting in scene.queue.state().waiting] == [PLANS[1].checkpoint.step]


def test_a_run_without_conditions_is_not_held_up_by_one_with_them(interrupts: Interrupts) -> None:
    scene = Scene(interrupts, now=EVENING.replace(hour=12), end=EVENING.replace(hour=13))
    scene.run(with_conditions(PLANS[0], NIGHT, "a"), with_conditions(PLANS[1], OnlyWhen(), "b"))
    assert [record.plan.checkpoint.run_id for record in scene.queue.finished()] == ["b"]


@pytest.mark.slow
def test_plans_of_earlier_settings_that_wait_do_not_hold_up_those_of_today(interrupts: Interrupts) -> None:
    noon = EVENING.replace(hour=12)
    scene = Scene(interrupts, now=noon, end=noon.replace(hour=15))
    scene.run(with_conditions(PLANS[0], NIGHT), with_conditions(PLANS[1], OnlyWhen()))
    assert [record.plan.id for record in scene.queue.finished()] == [PLANS[1].id]
    assert (scene.engine.began[0] - noon).total_seconds() < 1
    assert [waiting.step for waiting in scene.queue.state().waiting] == [PLANS[0].checkpoint.step]


def test_settings_that_were_changed_meanwhile_count_within_a_minute(interrupts: Interrupts) -> None:
    noon = EVENING.replace(hour=12)
    scene = Scene(interrupts, now=noon, end=noon.replace(hour=14))
    waiting, corrected = with_conditions(PLANS[0], NIGHT), with_conditions(PLANS[0], OnlyWhen())
    sleep = scene.clock.sleep

    def change(seconds: float) -> None:
        scene.queue.add(corrected, now=scene.clock.now())
        sleep(seconds)

    scene.clock.sleep = change  # type: ignore[method-assign]
    scene.run(waiting)
    (began,) = scene.engine.began
    assert (began - noon).total_seconds() <= 61


def test_waiting_uses_up_no_try(interrupts: Interrupts) -> None:
    scene = Scene(interrupts, now=EVENING.replace(hour=18), end=EVENING.replace(hour=19))
    scene.run(with_conditions(PLANS[0], NIGHT))
    assert scene.engine.began == []
    now = scene.clock.now()
    claim = scene.queue.claim(worker="b", now=now, lease_until=now.replace(hour=23))
    assert claim is not None
    assert (claim.attempt, claim.lost) == (1, 0)


def test_a_worker_waits_for_an_idle_gpu(interrupts: Interrupts) -> None:
    scene = Scene(interrupts, now=EVENING, end=EVENING.replace(hour=22))
    scene.busy_pct = 99.0
    sleep = scene.clock.sleep

    def relax(seconds: float) -> None:
        scene.busy_pct = 99.0 if scene.clock.now() < EVENING.replace(minute=55) else 0.0
        sleep(seconds)

    scene.clock.sleep = relax  # type: ignore[method-assign]
    scene.run(with_conditions(PLANS[0], OnlyWhen(gpu_below_pct=10, gpu_over_s=5)))
    (began,) = scene.engine.began
    waited_s = (began - EVENING.replace(minute=55)).total_seconds()
    assert 5 <= waited_s <= 10
    assert any("GPU utilization is 99 %" in note for note in scene.clock.notes)
