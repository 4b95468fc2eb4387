"""One plan from serving to record: what fails is a value, and never hides the rest."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval_jobs.errors import (
    BadData,
    ConfigError,
    DiskFull,
    EndpointFailed,
    EvaluateError,
    ProbeError,
    ServerDied,
    StoreError,
    TrackerError,
)
from eval_jobs.identity import benchmark_fingerprint
from eval_jobs.run import Tools, check_accounted, run_plan
from eval_jobs.types import (
    Benchmark,
    BenchmarkFailure,
    Endpoint,
    EngineInfo,
    EngineKind,
    EvalPlan,
    EvalResult,
    ProbeFailure,
    ProbeLoad,
    SampleScore,
    SampleStatus,
)
from tests.fakes.clock import FakeClock
from tests.fakes.engine import FakeEngine
from tests.fakes.evaluator import FakeEvaluator
from tests.fakes.prober import FakeProber
from tests.records import forgetting_run

ENDPOINT = Endpoint(
    base_url="http://127.0.0.1:1/v1",
    model="m",
    api_key_env="",
    info=EngineInfo(name="fake", version="1", load_method="cold", load_s=0.5, log=""),
)


@pytest.fixture
def plan(tmp_path: Path) -> EvalPlan:
    """Two benchmarks of three rows and one load."""
    benchmarks = []
    for name in ("sums", "facts"):
        data = tmp_path / f"{name}.jsonl"
        rows = [{"question": f"{name} {index}", "answer": str(index)} for index in range(3)]
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        benchmarks.append(Benchmark(name=name, adapter="exact", data=str(data)))
    base = forgetting_run().records[0].plan
    return replace(base, suite=replace(base.suite, benchmarks=tuple(benchmarks)), loads=(ProbeLoad(),))


def tools(engine: FakeEngine, evaluator: FakeEvaluator, prober: FakeProber | None = None) -> Tools:
    return Tools(engine=engine, evaluator=evaluator, prober=prober or FakeProber(), clock=FakeClock())


def say_nothing(_: object) -> None:
    pass


def last_word(question: str) -> str:
    return question.rsplit(maxsplit=1)[-1]


def test_every_benchmark_and_load_has_an_outcome(plan: EvalPlan) -> None:
    record = run_plan(plan, tools=tools(FakeEngine(ENDPOINT), FakeEvaluator(last_word)), progress=say_nothing)
    assert [o.benchmark for o in record.outcomes] == ["sums", "facts"]
    assert all(isinstance(o, EvalResult) for o in record.outcomes)
    assert len(record.probes) == 1
    assert record.engine == ENDPOINT.info
    assert record.started_at <= record.finished_at


def test_a_benchmark_that_fails_does_not_stop_the_next(plan: EvalPlan) -> None:
    def answer(question: str) -> str:
        if question.startswith("sums"):
            raise EndpointFailed("the server refused", hint="look at it")
        return last_word(question)

    record = run_plan(plan, tools=tools(FakeEngine(ENDPOINT), FakeEvaluator(answer)), progress=say_nothing)
    failed, scored = record.outcomes
    assert failed == BenchmarkFailure(
        benchmark="sums",
        fingerprint=benchmark_fingerprint(plan.suite.benchmarks[0], plan.suite),
        code="E-EVAL-ENDPOINT",
        message="the server refused",
        hint="look at it",
        retryable=True,
    )
    assert isinstance(scored, EvalResult)


@pytest.mark.parametrize("error", [DiskFull("full", hint="x"), StoreError("no", hint="x"), ConfigError("no", hint="x")])
def test_whatever_fails_in_one_benchmark_keeps_the_finished_ones(plan: EvalPlan, error: TrackerError) -> None:
    def answer(question: str) -> str:
        if question.startswith("facts"):
            raise error
        return last_word(question)

    record = run_plan(plan, tools=tools(FakeEngine(ENDPOINT), FakeEvaluator(answer)), progress=say_nothing)
    scored, failed = record.outcomes
    assert isinstance(scored, EvalResult)
    assert isinstance(failed, BenchmarkFailure)
    assert (failed.code, failed.retryable) == (error.code, error.retryable)
    assert record.engine == ENDPOINT.info


@pytest.mark.parametrize("error", [ServerDied("it died", hint="see the log"), TrackerError("other", hint="look")])
def test_a_checkpoint_that_cannot_be_served_gives_a_record_of_failures(plan: EvalPlan, error: TrackerError) -> None:
    engine = FakeEngine(ENDPOINT, faults={plan.checkpoint.step: error})
    record = run_plan(plan, tools=tools(engine, FakeEvaluator(last_word)), progress=say_nothing)
    assert record.engine is None
    assert {o.code for o in record.outcomes if isinstance(o, BenchmarkFailure)} == {error.code}
    assert len(record.outcomes) == len(plan.suite.benchmarks)
    assert [type(p) for p in record.probes] == [ProbeFailure]


@pytest.mark.parametrize("error", [ProbeError("no answer", hint="look"), ConfigError("no key", hint="set it")])
def test_a_probe_that_fails_keeps_the_scores(plan: EvalPlan, error: TrackerError) -> None:
    prober = FakeProber(failure=error)
    record = run_plan(plan, tools=tools(FakeEngine(ENDPOINT), FakeEvaluator(last_word), prober), progress=say_nothing)
    assert all(isinstance(o, EvalResult) for o in record.outcomes)
    assert isinstance(record.probes[0], ProbeFailure)
    assert record.probes[0].code == error.code


def test_what_failed_because_the_engine_died_has_its_death_as_the_reason_and_the_rest_stays(plan: EvalPlan) -> None:
    def answer(question: str) -> str:
        if question.startswith("sums"):
            raise EndpointFailed("Connection refused", hint="read its log")
        return last_word(question)

    engine, prober = FakeEngine(ENDPOINT), FakeProber(failure=ProbeError("no answer", hint="look"))
    engine.died = ServerDied("the engine died (RuntimeError: head_dim=16)", hint="read /engine.log")
    record = run_plan(plan, tools=tools(engine, FakeEvaluator(answer), prober), progress=say_nothing)
    failed, scored = record.outcomes
    assert isinstance(failed, BenchmarkFailure)
    assert isinstance(scored, EvalResult)
    assert isinstance(record.probes[0], ProbeFailure)
    for failure in (failed, record.probes[0]):
        assert (failure.code, failure.message, failure.hint) == ("E-SERVE-DIED", engine.died.message, engine.died.hint)
    assert failed.retryable
    assert record.engine == ENDPOINT.info


def test_a_fault_of_the_data_stays_one_when_the_engine_dies(plan: EvalPlan) -> None:
    def answer(question: str) -> str:
        raise BadData(f"no answer to {question}", hint="correct it")

    engine = FakeEngine(ENDPOINT)
    engine.died = ServerDied("it died", hint="read /engine.log")
    record = run_plan(plan, tools=tools(engine, FakeEvaluator(answer)), progress=say_nothing)
    assert {one.code for one in record.outcomes if isinstance(one, BenchmarkFailure)} == {"E-EVAL-DATA"}


def test_the_engine_serves_only_while_it_is_needed(plan: EvalPlan) -> None:
    engine = FakeEngine(ENDPOINT)
    run_plan(plan, tools=tools(engine, FakeEvaluator(last_word)), progress=say_nothing)
    assert engine.served_steps == [plan.checkpoint.step]
    assert engine.serving_step is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"score": 0.0, "status": SampleStatus.ERROR}, "error with score 0.0"),
        ({"score": 1.0, "status": SampleStatus.UNSCORED}, "unscored with score 1.0"),
        ({"score": None}, "scored with score None"),
        ({"score": float("nan")}, "scored with score nan"),
        ({"score": None, "status": SampleStatus.TRUNCATED}, "truncated with score None"),
        ({"sample_id": "b"}, "has 2 samples, 1 of them unique"),
    ],
)
def test_a_result_that_does_not_account_for_its_samples_is_a_failure(
    plan: EvalPlan, changes: dict[str, Any], message: str
) -> None:
    good = SampleScore(sample_id="a", subset="s", score=1.0, status=SampleStatus.SCORED)
    result = EvalResult(
        benchmark="sums",
        fingerprint="f",
        metric="accuracy",
        samples=(replace(good, **changes), replace(good, sample_id="b")),
        duration_s=0.0,
    )
    with pytest.raises(EvaluateError, match=message):
        check_accounted(result)
    check_accounted(replace(result, samples=(good,)))
    with pytest.raises(EvaluateError, match="has 0 samples"):
        check_accounted(replace(result, samples=()))

    class Careless(FakeEvaluator):
        def evaluate(self, *_: object, **__: object) -> tuple[EvalResult | TrackerError, ...]:
            return (result, result)

    record = run_plan(plan, tools=tools(FakeEngine(ENDPOINT), Careless(last_word)), progress=say_nothing)
    assert [getattr(outcome, "code", "") for outcome in record.outcomes] == ["E-EVAL", "E-EVAL"]


def test_the_evaluator_prepares_while_the_engine_loads(plan: EvalPlan) -> None:
    evaluator = FakeEvaluator(last_word)
    engine = FakeEngine(ENDPOINT, faults={plan.checkpoint.step: ServerDied("it died", hint="see the log")})
    run_plan(plan, tools=tools(engine, evaluator), progress=say_nothing)
    remote = replace(plan, serve=replace(plan.serve, engine=EngineKind.REMOTE, api_key_env="GATEWAY_KEY"))
    run_plan(remote, tools=tools(engine, evaluator), progress=say_nothing)
    assert evaluator.prepared == [(plan.suite, ""), (plan.suite, "GATEWAY_KEY")]
