"""A run whose settings change while it is watched: real queue and history, an evaluator that counts questions."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from eval_jobs.errors import EndpointFailed, TrackerError
from eval_jobs.ports import Note, ShowProgress
from eval_jobs.queue.database_sql import open_database
from eval_jobs.queue.rules import lease_end
from eval_jobs.queue.sql_queue import SqlQueue
from eval_jobs.run import Tools, run_plan
from eval_jobs.types import (
    Benchmark,
    Checkpoint,
    Endpoint,
    EngineInfo,
    EvalResult,
    Generation,
    ProbeLoad,
    ServeSpec,
    Suite,
)
from tests.fakes.engine import FakeEngine
from tests.fakes.evaluator import FakeEvaluator
from tests.fakes.prober import FakeProber
from tests.records import checkpoint_of
from tests.unit.tracker.app.fake_world import FakeWorld
from tracker.adapters.checkpoints.pins.store import FolderOfPins
from tracker.adapters.history.store_sql import SqlHistory
from tracker.app.daemon import StopRule, watch
from tracker.app.steps.alerting import AlertDispatcher
from tracker.app.world import MeasurementPlan, QueueOrder, Tick, WatchState, World
from tracker.domain.records.policy import Policy
from tracker.domain.records.types import Report, VerdictWord
from tracker.domain.verdicts.screening import Screening

RUN, QUESTIONS = "changing", 40
LOAD = ProbeLoad(name="default", requests=4)

Right = Callable[[str, int, int, int], bool]
"""(benchmark, number of the question, step, max_tokens) -> whether the answer is right."""


class Changing:
    """One run in a folder; `watch` starts a watcher with some benchmarks and its worker."""

    def __init__(self, folder: Path, is_right: Right) -> None:
        self.database = open_database(f"sqlite:///{folder}/tracker.db")
        self.fakes = FakeWorld()
        self.fakes.run = replace(self.fakes.run, run_id=RUN, curves=(), phases=())
        self.queue = SqlQueue(self.database, run=RUN)
        self.history = SqlHistory(self.database, folder / "samples")
        self.evaluator = CountingEvaluator(is_right)
        self.screening: Screening | None = None
        self.load = LOAD
        self.given_up = frozenset[str]()
        """URIs of checkpoints whose pins were deleted."""
        self._folder = folder

    @property
    def asked(self) -> Counter[tuple[int, str]]:
        """How many questions were asked by step and benchmark since the last call."""
        asked, self.evaluator.asked = self.evaluator.asked, Counter()
        return asked

    def save(self, *steps: int, digest: str = "", run_id: str = RUN) -> None:
        """Let the trainer write checkpoints."""
        for step in steps:
            made = checkpoint_of(run_id, step)
            self.fakes.source.put(replace(made, digest=digest or made.digest))

    def watch(
        self, names: Mapping[str, int], *, wait_s: float = 600.0, seconds: float = 1e9, is_cut: bool = False
    ) -> list[Tick]:
        """Watch with benchmarks of these names and `max_tokens`, until all is done or the settings change.

        They change after so many seconds; `is_cut`: no worker evaluates anything.
        """
        self.fakes.source.start_again()
        world = self.world(names, wait_s=wait_s)
        passes: list[Tick] = []
        began = self.fakes.clock.now()

        def show(passed: Tick, state: object) -> None:
            assert state is not None
            passes.append(passed)
            self.fakes.clock.advance(1.0)

        stop = StopRule(
            training_ended=lambda: True,
            quiet_s=2.0,
            is_superseded=lambda: (self.fakes.clock.now() - began).total_seconds() >= seconds,
        )
        keep = (lambda: None) if is_cut else self.work
        watch(world, WatchState(), clock=self.fakes.clock, keep_workers=keep, stop=stop, show=show)
        return passes

    def world(self, names: Mapping[str, int], *, wait_s: float = 0.0) -> World:
        world, pins = self.fakes.world(), _Pins(self._folder / "pins")
        pins.deleted = self.given_up
        return replace(
            world,
            queue=self.queue,
            history=self.history,
            dispatcher=AlertDispatcher(alerts=self.history, records=self.history, alerting=self.fakes.alerting),
            keeping=replace(
                world.keeping,
                pins=pins,
                queue=self.queue,
                records=self.history,
                texts=self.history,
                gaps=self.history,
            ),
            measurement=MeasurementPlan(
                suites=(self.suite(names),),
                serve=ServeSpec(),
                loads=(self.load,),
                screening=self.screening,
                questions_of=lambda _: QUESTIONS,
            ),
            policy=Policy(planned_checkpoints=20),
            order=QueueOrder(max_waiting=1000, reask_wait_s=wait_s),
        )

    def suite(self, names: Mapping[str, int]) -> Suite:
        benchmarks = []
        for name, max_tokens in names.items():
            data = self._folder / f"{name}.jsonl"
            rows = ({"question": f"{name} {n}", "answer": "yes"} for n in range(QUESTIONS))
            data.write_text("".join(json.dumps(row) + "\n" for row in rows))
            benchmarks.append(Benchmark(name=name, adapter="exact", data=str(data), max_tokens=max_tokens))
        return Suite(name="skills", benchmarks=tuple(benchmarks), generation=Generation(max_tokens=64))

    def work(self, at_most: int = 1000) -> None:
        """Evaluate the plans whose turn it is, by one worker."""
        for _ in range(at_most):
            now = self.fakes.clock.now()
            claim = self.queue.claim(worker="w", now=now, lease_until=lease_end(now))
            if claim is None:
                return
            assert self.queue.finish(claim, run_plan(claim.plan, tools=self.tools(), progress=lambda _: None), now=now)

    def tools(self) -> Tools:
        info = EngineInfo(name="fake", version="1", load_method="cold", load_s=0.0, log="")
        endpoint = Endpoint(base_url="http://127.0.0.1:9/v1", model="", api_key_env="", info=info)
        return Tools(engine=_Engine(endpoint), evaluator=self.evaluator, prober=FakeProber(), clock=self.fakes.clock)

    def reports(self) -> dict[int, Report]:
        """Return the newest report of each step."""
        return {r.step: r for r in sorted(self.history.reports(RUN), key=lambda r: (r.step, r.created_at))}

    def words(self, benchmark: str) -> dict[int, VerdictWord]:
        """Return the newest verdict on a benchmark by step."""
        reports = self.reports().items()
        return {step: v.word for step, report in reports for v in report.verdicts if v.benchmark == benchmark}


class _Pins(FolderOfPins):
    """A folder without pins, some of which were deleted."""

    deleted = frozenset[str]()

    def given_up(self) -> frozenset[str]:
        return self.deleted


class CountingEvaluator(FakeEvaluator):
    """Counts by step and benchmark; `fails` names the benchmarks without a result."""

    def __init__(self, is_right: Right) -> None:
        super().__init__(str)
        self.asked: Counter[tuple[int, str]] = Counter()
        self.fails = frozenset[str]()
        self.is_right = is_right

    def evaluate(
        self, suite: Suite, endpoint: Endpoint, *, plan_id: str, progress: ShowProgress
    ) -> tuple[EvalResult | TrackerError, ...]:
        step = int(endpoint.model)
        limits = {one.name: one.max_tokens or 0 for one in suite.benchmarks}

        def answer(question: str) -> str:
            name, number = question.split()
            if name in self.fails:
                raise EndpointFailed("the server is away", hint="wait")
            self.asked[step, name] += 1
            return "yes" if self.is_right(name, int(number), step, limits[name]) else "no"

        self.answer = answer
        found = super().evaluate(suite, endpoint, plan_id=plan_id, progress=progress)
        self.forget(plan_id)
        return found


class _Engine(FakeEngine):
    @contextmanager
    def serving(self, checkpoint: Checkpoint, spec: ServeSpec, *, progress: Note) -> Iterator[Endpoint]:
        with super().serving(checkpoint, spec, progress=progress) as endpoint:
            yield replace(endpoint, model=str(checkpoint.step))
