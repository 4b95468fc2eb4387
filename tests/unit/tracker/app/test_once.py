"""`tracker run`: what a checkpoint that a person names is compared with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eval_jobs.run import Tools
from eval_jobs.types import Endpoint, EngineInfo, ReferenceProbe
from tests.fakes.engine import FakeEngine
from tests.fakes.evaluator import FakeEvaluator
from tests.fakes.prober import FakeProber
from tests.unit.tracker.app.fake_world import FakeWorld
from tracker.app.once import evaluate_once

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
    [(record, _)] = evaluate_once(checkpoint, world, tools=tools, progress=lambda _: None)
    assert engine.served_steps == served
    assert [p.reference_step for p in record.reference_probes if isinstance(p, ReferenceProbe)] == served[1:2]
