"""What a plan cost: by stage, in tokens, GPU and CPU seconds."""

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from eval_jobs.codec import record_from_bytes, record_to_bytes
from eval_jobs.errors import ServerDied
from eval_jobs.ports import Note
from eval_jobs.records.progress import Stage
from eval_jobs.run import Tools, run_plan
from eval_jobs.spending import Spending, total
from eval_jobs.types import Checkpoint, Cost, Endpoint, EngineInfo, EvalResult, ProbeLoad, ProbeResult, ServeSpec
from tests.fakes.clock import FakeClock
from tests.fakes.engine import FakeEngine
from tests.fakes.evaluator import FakeEvaluator
from tests.fakes.prober import FakeProber
from tests.records import forgetting_run

RECORD = forgetting_run(checkpoints=1, samples=2, trouble=False).records[0]
PLAN = RECORD.plan
INFO = EngineInfo(name="fake", version="1", load_method="cold", load_s=0.0, log="", gpus=2)
ENDPOINT = Endpoint(base_url="http://127.0.0.1:9/v1", model="fake", api_key_env="", info=INFO)


def result(name: str, input_tokens: int | None, output_tokens: int | None) -> EvalResult:
    return EvalResult(
        benchmark=name,
        fingerprint="f",
        metric="accuracy",
        samples=(),
        duration_s=0.0,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
    )


class SlowEngine(FakeEngine):
    def __init__(self, clock: FakeClock, endpoint: Endpoint = ENDPOINT) -> None:
        super().__init__(endpoint)
        self.clock = clock
        self.cpu_s = 100.0

    @contextmanager
    def serving(self, checkpoint: Checkpoint, spec: ServeSpec, *, progress: Note) -> Iterator[Endpoint]:
        self.clock.advance(30)
        assert self.cpu_s is not None
        self.cpu_s += 40
        with super().serving(checkpoint, spec, progress=progress) as endpoint:
            yield endpoint


class SlowProber(FakeProber):
    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock

    def probe(self, endpoint: Endpoint, load: ProbeLoad) -> ProbeResult:
        self.clock.advance(5)
        return super().probe(endpoint, load)


def test_seconds_are_split_by_stage_and_gpus_count_all_the_time() -> None:
    clock = FakeClock()
    tools = Tools(engine=SlowEngine(clock), evaluator=FakeEvaluator(str), prober=SlowProber(clock), clock=clock)
    cost = run_plan(PLAN, tools=tools, progress=print).cost
    assert cost is not None
    assert (cost.loading_s, cost.evaluating_s, cost.probing_s) == (30, 0, 5)
    assert cost.wall_s == 35
    assert cost.gpu_s == 70, "two of them"
    assert cost.cpu_s == 40


def test_a_reference_counts_as_probing_with_all_that_serving_it_takes() -> None:
    clock = FakeClock()
    tools = Tools(engine=SlowEngine(clock), evaluator=FakeEvaluator(str), prober=SlowProber(clock), clock=clock)
    plan = replace(PLAN, reference=replace(PLAN.checkpoint, step=1))
    cost = run_plan(plan, tools=tools, progress=print).cost
    assert cost is not None
    assert (cost.loading_s, cost.probing_s) == (30, 5 + 30 + 5 + 5 + 30 + 5)
    assert cost.cpu_s == 120


def test_a_start_that_failed_has_a_cost_too() -> None:
    clock = FakeClock()
    engine = SlowEngine(clock)
    engine.faults = {PLAN.checkpoint.step: ServerDied("the engine ended", hint="see its log")}
    tools = Tools(engine=engine, evaluator=FakeEvaluator(str), prober=FakeProber(), clock=clock)
    cost = run_plan(PLAN, tools=tools, progress=print).cost
    assert cost == Cost(loading_s=30, evaluating_s=0, probing_s=0, cpu_s=40)


def test_somebody_setting_the_clock_changes_no_cost() -> None:
    clock = FakeClock()
    spending = Spending(clock, FakeEngine(ENDPOINT))
    clock.advance(10)
    clock.jump(-7200)
    spending.end(Stage.LOADING)
    assert spending.cost((), None).loading_s == 10


def test_tokens_are_those_that_servers_told_of() -> None:
    spending = Spending(FakeClock(), FakeEngine(ENDPOINT))
    told = (result("a", 100, 10), result("b", None, None), result("c", 5, 1))
    cost = spending.cost(told, INFO)
    assert (cost.input_tokens, cost.output_tokens) == (105, 11)
    unknown = spending.cost((result("b", None, None),), INFO)
    assert (unknown.input_tokens, unknown.output_tokens) == (None, None)


def test_what_nobody_told_is_not_known_instead_of_none_used() -> None:
    silent, idle = FakeEngine(ENDPOINT), FakeEngine(ENDPOINT)
    idle.cpu_s = 12.5  # one of ours that did nothing, beside an engine of others
    for info in (None, replace(INFO, gpus=0)):
        assert Spending(FakeClock(), silent).cost((), info).gpu_s is None
    assert [Spending(FakeClock(), engine).cost((), INFO).cpu_s for engine in (silent, idle)] == [None, None]


def test_a_sum_keeps_what_is_known() -> None:
    one = Cost(loading_s=1, evaluating_s=2, probing_s=3, input_tokens=10, gpu_s=6)
    other = Cost(loading_s=10, evaluating_s=20, probing_s=30, output_tokens=5)
    both = total([one, other])
    assert both == Cost(loading_s=11, evaluating_s=22, probing_s=33, input_tokens=10, output_tokens=5, gpu_s=6)
    assert both.cpu_s is None
    assert total([]) == Cost(loading_s=0, evaluating_s=0, probing_s=0)


def test_a_cost_survives_being_stored() -> None:
    cost = Cost(loading_s=1.5, evaluating_s=2, probing_s=3, input_tokens=10, output_tokens=5, cpu_s=7.25)
    assert record_from_bytes(record_to_bytes(replace(RECORD, cost=cost))).cost == cost


def test_a_record_of_before_costs_is_read_and_has_none() -> None:
    document = json.loads(zlib.decompress(record_to_bytes(RECORD)))
    del document["value"]["cost"]
    for outcome in document["value"]["outcomes"]:
        del outcome["input_tokens"], outcome["output_tokens"]
    for setting in ("gpu_memory_utilization", "niceness", "only_when"):
        del document["value"]["plan"]["serve"][setting]
    for field in ("gpus", "is_batch_invariant"):
        del document["value"]["engine"][field]
    assert record_from_bytes(zlib.compress(json.dumps(document).encode())) == RECORD
