"""A plan with a latency reference: in which order is served and timed, what is paired, and what a failure spoils."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from eval_jobs.codec import plan_from_json, plan_to_json, record_from_bytes, record_to_bytes
from eval_jobs.errors import CheckpointNotFound, ProbeError, ServerDied, StartTimeout, TrackerError
from eval_jobs.identity import make_plan
from eval_jobs.run import Tools, pair_blocks, run_plan
from eval_jobs.types import (
    Benchmark,
    Endpoint,
    EngineInfo,
    EvalPlan,
    EvalResult,
    ProbeFailure,
    ProbeLoad,
    ProbeResult,
    ReferenceProbe,
    RequestTiming,
)
from tests.fakes.clock import FakeClock
from tests.fakes.engine import FakeEngine
from tests.fakes.evaluator import FakeEvaluator
from tests.fakes.prober import FakeProber
from tests.records import forgetting_run

LOADS = (ProbeLoad(name="short", requests=4), ProbeLoad(name="long", requests=6))
ENDPOINT = Endpoint(
    base_url="http://127.0.0.1:1/v1",
    model="m",
    api_key_env="",
    info=EngineInfo(name="fake", version="1", load_method="cold", load_s=0.5, log="", machine="m"),
)
RECORDS = forgetting_run().records


class Bench:
    """Fakes that write down which step was served at every evaluation and at every load."""

    def __init__(self, **faults: TrackerError) -> None:
        self.events: list[str] = []
        self.engine = FakeEngine(ENDPOINT, faults={int(step.removeprefix("at_")): e for step, e in faults.items()})
        self.prober = _Prober(self)
        self.evaluator = FakeEvaluator(self._answer)
        self.broken_block = -1

    def run(self, plan: EvalPlan) -> list[str]:
        tools = Tools(engine=self.engine, evaluator=self.evaluator, prober=self.prober, clock=FakeClock())
        self.record = run_plan(plan, tools=tools, progress=lambda _: None)
        return self.events

    def _answer(self, question: str) -> str:
        self.events.append(f"{self.engine.serving_step} scored")
        return question


class _Prober(FakeProber):
    """A fake whose load number `bench.broken_block` fails."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self._bench = bench

    def probe(self, endpoint: Endpoint, load: ProbeLoad) -> ProbeResult:
        self._bench.events.append(f"{self._bench.engine.serving_step} {load.name}")
        self.failure = ProbeError("cut", hint="look") if len(self.asked) == self._bench.broken_block else None
        return super().probe(endpoint, load)


@pytest.fixture
def plan(tmp_path: Path) -> EvalPlan:
    """Step 300 against step 100, with one benchmark of one row and two loads."""
    data = tmp_path / "sums.jsonl"
    data.write_text(json.dumps({"question": "1 + 1", "answer": "2"}) + "\n")
    base = RECORDS[2].plan
    suite = replace(base.suite, benchmarks=(Benchmark(name="sums", adapter="exact", data=str(data)),))
    return make_plan(base.checkpoint, suite, base.serve, LOADS, RECORDS[0].plan.checkpoint)


def test_blocks_run_candidate_reference_reference_candidate_in_three_servings(plan: EvalPlan) -> None:
    bench = Bench()
    assert bench.run(plan) == [
        "300 scored",
        *("300 short", "300 long"),
        *("100 short", "100 long"),
        *("100 short", "100 long"),
        *("300 short", "300 long"),
    ]
    assert bench.engine.served_steps == [300, 100, 300]


def test_without_a_reference_or_a_load_the_checkpoint_is_served_once(plan: EvalPlan) -> None:
    for alone in (replace(plan, reference=None), replace(plan, loads=())):
        bench = Bench()
        bench.run(alone)
        assert (bench.engine.served_steps, bench.record.reference_probes) == ([300], ())


def test_every_load_has_its_pairs_and_its_usual_figures(plan: EvalPlan) -> None:
    bench = Bench()
    bench.run(plan)
    record = bench.record
    assert [type(p) for p in record.probes] == [ProbeResult, ProbeResult]
    for load, probe in zip(LOADS, record.reference_probes, strict=True):
        assert isinstance(probe, ReferenceProbe)
        assert (probe.load, probe.reference_step, probe.dropped) == (load, 100, 0)
        assert probe.first_pairs == load.requests
        assert probe.reference_digest == RECORDS[0].plan.checkpoint.digest
        assert [t.position for t in probe.candidate] == 2 * list(range(load.requests))
        assert [t.position for t in probe.reference] == 2 * list(range(load.requests))


@pytest.mark.parametrize(
    "error",
    [
        CheckpointNotFound("the pin is gone", hint="choose another"),
        StartTimeout("too slow", hint="wait"),
        TrackerError("other", hint="look"),
    ],
)
def test_a_reference_that_cannot_be_served_costs_only_the_comparison(plan: EvalPlan, error: TrackerError) -> None:
    bench = Bench(at_100=error)
    bench.run(plan)
    assert all(isinstance(o, EvalResult) for o in bench.record.outcomes)
    assert all(isinstance(p, ProbeResult) for p in bench.record.probes)
    assert bench.record.reference_probes == tuple(
        ProbeFailure(load=load, code=error.code, message=error.message, hint=error.hint) for load in LOADS
    )
    assert bench.engine.serving_step is None


def test_a_checkpoint_that_cannot_be_served_fails_every_comparison_too(plan: EvalPlan) -> None:
    bench = Bench(at_300=ServerDied("it died", hint="see the log"))
    bench.run(plan)
    assert bench.engine.served_steps == []
    assert [(p.load, p.code) for p in bench.record.reference_probes if isinstance(p, ProbeFailure)] == [
        (load, "E-SERVE-DIED") for load in LOADS
    ]


@pytest.mark.parametrize("block", range(4))
def test_a_block_that_fails_spoils_its_load_and_no_other(plan: EvalPlan, block: int) -> None:
    bench = Bench()
    bench.broken_block = 2 * block
    bench.run(plan)
    short, long = bench.record.reference_probes
    assert isinstance(short, ProbeFailure)
    assert (short.load, short.code, short.message) == (LOADS[0], "E-PROBE", "cut")
    assert isinstance(long, ReferenceProbe)


def test_a_checkpoint_that_could_not_be_timed_is_not_worth_serving_the_reference(plan: EvalPlan) -> None:
    bench = Bench()
    bench.broken_block = 0
    bench.run(replace(plan, loads=LOADS[:1]))
    assert bench.engine.served_steps == [300]
    assert bench.record.reference_probes == bench.record.probes
    assert isinstance(bench.record.probes[0], ProbeFailure)


def timings(side: int, positions: tuple[int, ...]) -> tuple[RequestTiming, ...]:
    return tuple(RequestTiming(position=p, ttft_ms=100 * side + p, tpot_ms=1.0, e2e_ms=900.0) for p in positions)


def test_a_request_that_failed_on_one_side_takes_its_partner_with_it() -> None:
    blank = FakeProber().probe(ENDPOINT, LOADS[0])
    blocks = tuple(
        replace(blank, requests=timings(side, positions))
        for side, positions in ((1, (0, 1, 3)), (2, (1, 2, 3)), (3, (0, 1, 2, 3)), (4, (2,)))
    )
    first, second, third, fourth = blocks
    probe = pair_blocks((first, second, third, fourth), RECORDS[0].plan.checkpoint)
    assert isinstance(probe, ReferenceProbe)
    assert [t.ttft_ms for t in probe.candidate] == [101, 103, 402]
    assert [t.ttft_ms for t in probe.reference] == [201, 203, 302]
    assert (probe.first_pairs, probe.dropped) == (2, 2 * LOADS[0].requests - 3)


def test_a_plan_and_a_record_with_a_reference_come_back_equal(plan: EvalPlan) -> None:
    bench = Bench()
    bench.broken_block = 6
    bench.run(plan)
    assert {type(p) for p in bench.record.reference_probes} == {ReferenceProbe, ProbeFailure}
    assert record_from_bytes(record_to_bytes(bench.record)) == bench.record
    assert plan_from_json(plan_to_json(plan)) == plan


def test_the_reference_is_no_part_of_the_plans_id_and_plans_of_before_have_none(plan: EvalPlan) -> None:
    alone = make_plan(plan.checkpoint, plan.suite, plan.serve, plan.loads)
    assert (alone.id, alone.reference) == (plan.id, None)
    document = json.loads(plan_to_json(replace(plan, reference=None)))
    del document["value"]["reference"]
    assert plan_from_json(json.dumps(document)).reference is None
