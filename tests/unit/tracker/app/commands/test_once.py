"""`tracker evaluate`: what a checkpoint that a person names is compared with."""

from dataclasses import replace

import pytest

from eval_jobs.errors import EndpointFailed, EndpointRefused, TrackerError
from eval_jobs.run import Tools
from eval_jobs.types import Benchmark, Endpoint, EngineInfo, EvalResult, OnlyWhen, ReferenceProbe
from tests.fakes.engine import FakeEngine
from tests.fakes.evaluator import FakeEvaluator
from tests.fakes.prober import FakeProber
from tests.imported import fields, given, lm_eval
from tests.unit.tracker.app.fake_world import FakeWorld
from tracker.app.commands.once import evaluate_once
from tracker.domain.imports.lm_eval import sheets_of_lm_eval
from tracker.domain.imports.records import checkpoints_of

ENDPOINT = Endpoint(
    base_url="http://127.0.0.1:1/v1",
    model="m",
    api_key_env="",
    info=EngineInfo(name="fake", version="1", load_method="cold", load_s=0.5, log="", machine="m"),
)


@pytest.mark.parametrize(("index", "served"), [(2, [300, 200, 300]), (1, [200]), (0, [100])])
def test_a_named_checkpoint_is_timed_against_the_first_that_was_measured(index: int, served: list[int]) -> None:
    fakes = FakeWorld()
    fakes.history.append(fakes.run.records[1])
    world = fakes.world()
    suite = replace(world.measurement.suites[0], benchmarks=())
    world = replace(world, measurement=replace(world.measurement, suites=(suite,), reference="first"))
    engine = FakeEngine(ENDPOINT)
    tools = Tools(engine=engine, evaluator=FakeEvaluator(str), prober=FakeProber(), clock=fakes.clock)
    checkpoint = fakes.run.records[index].plan.checkpoint
    [(record, _)] = evaluate_once(checkpoint, world, tools=tools, progress=lambda _: None).results
    assert engine.served_steps == served
    assert [p.reference_step for p in record.reference_probes if isinstance(p, ReferenceProbe)] == served[1:2]


def test_a_checkpoint_that_was_imported_cannot_be_served_as_the_first() -> None:
    fakes = FakeWorld()
    (sheet,) = sheets_of_lm_eval(fields(lm_eval({"copa": 0.5}, step=1)), {}, given())
    (imported,) = checkpoints_of([sheet], run_id=fakes.run.run_id, suite="skills")
    fakes.history.append(imported.record)
    world = fakes.world()
    world = replace(world, measurement=replace(world.measurement, reference="first"))
    engine = FakeEngine(ENDPOINT)
    tools = Tools(engine=engine, evaluator=FakeEvaluator(str), prober=FakeProber(), clock=fakes.clock)
    evaluate_once(fakes.run.records[0].plan.checkpoint, world, tools=tools, progress=lambda _: None)
    assert engine.served_steps == [100]


@pytest.mark.parametrize("may_pass", [True, False])
def test_what_was_answered_is_kept_for_another_try_when_the_failure_may_pass(*, may_pass: bool) -> None:
    fakes = FakeWorld()
    forgotten: list[str] = []

    class Failing(FakeEvaluator):
        def evaluate(self, *_: object, **__: object) -> tuple[EvalResult | TrackerError, ...]:
            return ((EndpointFailed if may_pass else EndpointRefused)("no", hint="look"),)

        def forget(self, plan_id: str) -> None:
            forgotten.append(plan_id)

    world = fakes.world()
    suite = replace(world.measurement.suites[0], benchmarks=(Benchmark(name="b", adapter="exact"),))
    world = replace(world, measurement=replace(world.measurement, suites=(suite,), loads=()))
    tools = Tools(engine=FakeEngine(ENDPOINT), evaluator=Failing(str), prober=FakeProber(), clock=fakes.clock)
    checkpoint = fakes.run.records[0].plan.checkpoint
    [(record, _)] = evaluate_once(checkpoint, world, tools=tools, progress=lambda _: None).results
    assert forgotten == ([] if may_pass else [record.plan.id])


def test_a_checkpoint_that_a_person_names_does_not_wait_for_the_hours() -> None:
    fakes = FakeWorld()
    world = fakes.world()
    closed = OnlyWhen(hours="00:00-00:01", time_zone="UTC", gpu_below_pct=0.1)
    serve = replace(world.measurement.serve, only_when=closed)
    world = replace(world, measurement=replace(world.measurement, serve=serve, loads=()))
    engine = FakeEngine(ENDPOINT)
    tools = Tools(engine=engine, evaluator=FakeEvaluator(str), prober=FakeProber(), clock=fakes.clock)
    fakes.clock.jump(12 * 3600)
    [(record, _)] = evaluate_once(
        fakes.run.records[0].plan.checkpoint, world, tools=tools, progress=lambda _: None
    ).results
    assert engine.served_steps == [100]
    assert record.cost is not None
