"""A calibration asks the same suite twice, and nothing of the first pass is taken over into the second."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from eval_jobs.errors import EndpointFailed, Incomparable
from eval_jobs.execute.worker.passes import run_asked
from eval_jobs.identity import benchmark_fingerprint, calibration_plan, make_plan, second_pass
from eval_jobs.ports import Note
from eval_jobs.records.progress import Progress, progress_text
from eval_jobs.run import Tools
from eval_jobs.types import (
    Benchmark,
    BenchmarkFailure,
    Checkpoint,
    Endpoint,
    EngineInfo,
    EvalPlan,
    EvalResult,
    Generation,
    ServeSpec,
    Suite,
)
from tests.fakes.clock import FakeClock
from tests.fakes.engine import FakeEngine
from tests.fakes.evaluator import FakeEvaluator
from tests.fakes.prober import FakeProber
from tests.records import forgetting_run

INFO = EngineInfo(name="fake", version="1", load_method="cold", load_s=0.5, log="", machine="m")
ENDPOINT = Endpoint(base_url="http://127.0.0.1:1/v1", model="m", api_key_env="", info=INFO)
CHECKPOINT = forgetting_run().records[0].plan.checkpoint
ROWS = 3


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    """Two benchmarks of three rows."""
    benchmarks = []
    for name in ("sums", "facts"):
        data = tmp_path / f"{name}.jsonl"
        rows = [{"question": f"{name} {index}", "answer": str(index)} for index in range(ROWS)]
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        benchmarks.append(Benchmark(name=name, adapter="exact", data=str(data)))
    return Suite(name="skills", benchmarks=tuple(benchmarks))


@pytest.fixture
def plan(suite: Suite) -> EvalPlan:
    return calibration_plan(CHECKPOINT, suite, ServeSpec(), 1)


class Counting(FakeEvaluator):
    """Answers differently every time that it is really asked."""

    def __init__(self, fails: Callable[[int], bool] = lambda _: False) -> None:
        super().__init__(self._ask)
        self.asked: Counter[str] = Counter()
        self._fails = fails

    def _ask(self, question: str) -> str:
        if self._fails(sum(self.asked.values())):
            raise EndpointFailed("the server went away", hint="wait")
        self.asked[question] += 1
        return f"answer {self.asked[question]}"


def tools(evaluator: FakeEvaluator, engine: FakeEngine | None = None) -> Tools:
    return Tools(engine=engine or FakeEngine(ENDPOINT), evaluator=evaluator, prober=FakeProber(), clock=FakeClock())


def quiet(_: object) -> None:
    """Show nothing."""


def test_both_passes_really_ask_and_the_engine_loads_the_weights_for_each(plan: EvalPlan) -> None:
    evaluator, engine = Counting(), FakeEngine(ENDPOINT)
    shown: list[Progress] = []
    record = run_asked(plan, tools=tools(evaluator, engine), progress=shown.append)
    assert set(evaluator.asked.values()) == {2}
    assert engine.served_steps == [CHECKPOINT.step] * 2
    first, second = record.outcomes[:2], record.outcomes[2:]
    assert [o.benchmark for o in first] == [o.benchmark for o in second] == ["sums", "facts"]
    texts = [{s.answer for s in o.samples} for o in record.outcomes if isinstance(o, EvalResult)]
    assert texts == [{"answer 1"}, {"answer 1"}, {"answer 2"}, {"answer 2"}]
    again = second_pass(plan.suite)
    assert [o.fingerprint for o in first] == [benchmark_fingerprint(b, plan.suite) for b in plan.suite.benchmarks]
    assert [o.fingerprint for o in second] == [benchmark_fingerprint(b, again) for b in plan.suite.benchmarks]
    assert {f"{n} pass: sums 3/3" for n in ("first", "second")} <= set(map(progress_text, shown))
    assert record.plan == plan


def test_an_ordinary_plan_is_asked_once(suite: Suite) -> None:
    evaluator = Counting()
    record = run_asked(make_plan(CHECKPOINT, suite, ServeSpec(), ()), tools=tools(evaluator), progress=quiet)
    assert set(evaluator.asked.values()) == {1}
    assert len(record.outcomes) == 2


def test_an_interrupted_second_pass_asks_only_what_is_missing(plan: EvalPlan) -> None:
    evaluator = Counting(fails=lambda asked: asked == 2 * ROWS + 1)  # the second question of the second pass
    record = run_asked(plan, tools=tools(evaluator), progress=quiet)
    assert any(isinstance(outcome, BenchmarkFailure) for outcome in record.outcomes[2:])
    evaluator._fails = lambda _: False
    record = run_asked(plan, tools=tools(evaluator), progress=quiet)
    assert set(evaluator.asked.values()) == {2}
    assert not any(isinstance(outcome, BenchmarkFailure) for outcome in record.outcomes)


def test_nothing_is_repeated_where_the_first_pass_gave_nothing(plan: EvalPlan) -> None:
    engine = FakeEngine(ENDPOINT)
    record = run_asked(plan, tools=tools(Counting(fails=lambda _: True), engine), progress=quiet)
    assert engine.served_steps == [CHECKPOINT.step]
    assert [type(outcome) for outcome in record.outcomes] == [BenchmarkFailure] * 2


@pytest.mark.parametrize("change", [{"version": "2"}, {"machine": "other"}, {"name": "another"}])
def test_two_passes_of_two_engines_are_no_calibration(plan: EvalPlan, change: dict[str, str]) -> None:
    class Changing(FakeEngine):
        @contextmanager
        def serving(self, checkpoint: Checkpoint, spec: ServeSpec, *, progress: Note) -> Iterator[Endpoint]:
            info = INFO if not self.served_steps else replace(INFO, **change)  # type: ignore[arg-type]
            with super().serving(checkpoint, spec, progress=progress) as endpoint:
                yield replace(endpoint, info=info)

    with pytest.raises(Incomparable, match="passes ran on different engines: fake 1, then "):
        run_asked(plan, tools=tools(Counting(), Changing(ENDPOINT)), progress=quiet)


def test_every_calibration_is_a_plan_of_its_own(suite: Suite) -> None:
    ordinary = make_plan(CHECKPOINT, suite, ServeSpec(), ())
    plans = [calibration_plan(CHECKPOINT, suite, ServeSpec(), number) for number in (1, 2)]
    assert len({ordinary.id, *(plan.id for plan in plans)}) == 3
    assert calibration_plan(CHECKPOINT, suite, ServeSpec(), 1) == plans[0]


def test_only_the_seed_differs_and_no_repeat_shares_one_with_the_first_pass(suite: Suite) -> None:
    drawn = replace(suite, generation=Generation(temperature=0.7, seed=41))
    again = second_pass(drawn)
    assert replace(again, generation=replace(again.generation, seed=41)) == drawn
    assert again.generation.seed - 41 > 10_000  # a repeat has the seed of the first plus its number
