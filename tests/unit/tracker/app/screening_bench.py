"""A world with screens, and a worker in it that asks what a plan says: what tests of screens share."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache

from eval_jobs import screening
from eval_jobs.identity import benchmark_fingerprint
from eval_jobs.queue.rules import lease_end
from eval_jobs.screening import Question
from eval_jobs.types import (
    Benchmark,
    BenchmarkFailure,
    Checkpoint,
    Cost,
    EvalPlan,
    EvalRecord,
    EvalResult,
    Outcome,
    SampleScore,
    SampleStatus,
    Screen,
    ServeSpec,
    Suite,
)
from tests.records import checkpoint_of
from tests.unit.tracker.app.fake_world import FakeWorld
from tracker.app.tick import tick
from tracker.app.world import MeasurementPlan, WatchState, World
from tracker.domain.records.alerts import AlertState
from tracker.domain.records.policy import Policy
from tracker.domain.records.types import VerdictWord
from tracker.domain.verdicts.screening import Screening

RUN = "screened"
START = datetime(2026, 3, 14, 9, 0, tzinfo=UTC)
SAMPLES = 400
COST = Cost(loading_s=1, evaluating_s=2, probing_s=0)
"""Of every evaluation."""
SUITE = Suite(
    name="default",
    benchmarks=(Benchmark(name="sums", adapter="exact"), Benchmark(name="facts", adapter="exact")),
)
SCREENING = Screening(screen=Screen(samples=100), every=5, first=12)
LOST_AT = 2000


def checkpoint(step: int) -> Checkpoint:
    return replace(checkpoint_of(RUN, step), ready_at=START + timedelta(minutes=step))


screen_of = cache(screening.screen_of)
"""Every plan of a benchmark asks for the same."""


def is_right(benchmark: str, key: int, step: int, lost_at: int | None) -> bool:
    """Say whether a sample is right: 70 of 100 at first, 3 of 100 change by chance; `sums` loses a quarter."""
    is_lost = lost_at is not None and benchmark == "sums" and step >= lost_at and key % 4 == 0
    return (chance(benchmark, key) < 0.7 and not is_lost) is not (chance(benchmark, key, step) < 0.03)


@cache
def chance(*of: object) -> float:
    return random.Random(" ".join(map(str, of))).random()  # noqa: S311 - no secret


@cache
def questions_of(benchmark: str) -> tuple[Question, ...]:
    return tuple(Question(key=f"{benchmark}-{i}", subset="default") for i in range(SAMPLES))


@cache
def hidden_from(benchmark: str) -> frozenset[str]:
    """Return the screen of a benchmark."""
    return screen_of(questions_of(benchmark), SCREENING.screen)


@dataclass(kw_only=True)
class Bench:
    """A world with a worker that asks what a plan says, and counts how often it asks each sample."""

    screening: Screening | None = SCREENING
    lost_at: int | None = None
    is_hidden: bool = False
    """The loss spares the screen."""
    fakes: FakeWorld = field(default_factory=FakeWorld)
    asked: Counter[tuple[int, str, str]] = field(default_factory=Counter)
    plans: list[EvalPlan] = field(default_factory=list)
    records: dict[str, EvalRecord] = field(default_factory=dict)
    fails: Callable[[EvalPlan], bool] = lambda _: False
    _world: World | None = None
    state: WatchState = field(default_factory=WatchState)

    @property
    def world(self) -> World:
        if self._world is None:
            self.start_again()
        assert self._world is not None
        return self._world

    def start_again(self) -> None:
        """Forget what a watcher keeps in memory."""
        self.fakes.source.start_again()
        self.state = WatchState()
        measurement = MeasurementPlan(suites=(SUITE,), serve=ServeSpec(), loads=(), screening=self.screening)
        self._world = replace(
            self.fakes.world(), measurement=measurement, policy=Policy(planned_checkpoints=40, min_effect=0.01)
        )

    def use(self, world: World) -> None:
        """Go on in another world."""
        self._world = world

    def save(self, step: int) -> None:
        """Let the trainer write one checkpoint, and carry out all that follows."""
        self.fakes.source.put(checkpoint(step))
        self.settle()

    def settle(self) -> None:
        tick(self.world, self.state, self.fakes.clock.now())
        while self.work():
            tick(self.world, self.state, self.fakes.clock.now())

    def work(self, at_once: int = 1) -> bool:
        """Carry out the plans whose turn it is, by so many workers at the same time."""
        now = self.fakes.clock.now()
        claims = [self.fakes.queue.claim(worker=f"w{i}", now=now, lease_until=lease_end(now)) for i in range(at_once)]
        for claim in claims:
            if claim is not None:
                self.plans.append(claim.plan)
                self.fakes.clock.sleep(1.0)
                self.records[claim.plan.id] = self.record_of(claim.plan)
                assert self.fakes.queue.finish(claim, self.records[claim.plan.id], now=now)
        return any(claims)

    def record_of(self, plan: EvalPlan) -> EvalRecord:
        outcomes = tuple(self._outcome(plan, benchmark) for benchmark in plan.suite.benchmarks)
        at = self.fakes.clock.now()
        return EvalRecord(
            plan=plan, outcomes=outcomes, probes=(), engine=None, started_at=at, finished_at=at, cost=COST
        )

    def words(self, step: int) -> dict[str, VerdictWord]:
        """Return the newest word on every benchmark at a step."""
        reports = sorted((r for r in self.fakes.history.reports(RUN) if r.step == step), key=lambda r: r.created_at)
        return {v.benchmark: v.word for r in reports for v in r.verdicts}

    def kinds(self) -> list[str]:
        return [kind_of(plan) for plan in self.plans]

    def firing(self) -> list[int | None]:
        return [a.step for a in self.fakes.alerting.alerts if a.state is AlertState.FIRING]

    def _outcome(self, plan: EvalPlan, benchmark: Benchmark) -> Outcome:
        fingerprint = benchmark_fingerprint(benchmark, plan.suite)
        if self.fails(plan):
            return BenchmarkFailure(
                benchmark=benchmark.name, fingerprint=fingerprint, code="E-X", message="no", hint="", retryable=False
            )
        everything = questions_of(benchmark.name)
        part = plan.suite.part
        chosen = {q.key for q in everything} if part is None else screen_of(everything, part.screen)
        asked = [q for q in everything if (q.key in chosen) is not (part is not None and part.is_rest)]
        step = plan.checkpoint.step
        self.asked.update((step, benchmark.name, q.key) for q in asked)
        return EvalResult(
            benchmark=benchmark.name,
            fingerprint=fingerprint,
            metric="accuracy",
            samples=tuple(self._sample(benchmark.name, q.key, step) for q in asked),
            duration_s=len(asked) * 0.1,
            left_out=SAMPLES - len(asked),
            input_tokens=len(asked) * 10,
            output_tokens=len(asked) * 2,
        )

    def _sample(self, benchmark: str, key: str, step: int) -> SampleScore:
        is_spared = self.is_hidden and key in hidden_from(benchmark)
        right = is_right(benchmark, int(key.rpartition("-")[2]), step, None if is_spared else self.lost_at)
        return SampleScore(sample_id=key, subset="default", score=float(right), status=SampleStatus.SCORED)


def kind_of(plan: EvalPlan) -> str:
    """Return the step of a plan and how much it asks: `100 whole`, `200 screen` or `200 rest sums`."""
    part = plan.suite.part
    if part is None:
        return f"{plan.checkpoint.step} whole"
    if not part.is_rest:
        return f"{plan.checkpoint.step} screen"
    return f"{plan.checkpoint.step} rest {' '.join(b.name for b in plan.suite.benchmarks)}"


def through(bench: Bench, last: int) -> None:
    for step in range(100, last + 1, 100):
        bench.save(step)
