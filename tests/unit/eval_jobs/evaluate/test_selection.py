"""Each benchmark goes to the evaluator that its settings name, and one that fails fails alone."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from eval_jobs.errors import ConfigError, EvaluateError
from eval_jobs.evaluate.selection import EvaluatorByName
from eval_jobs.host.clock import SystemClock
from eval_jobs.types import Benchmark, Endpoint, EngineInfo, EvalResult, Program, Suite
from tests.evaluating import quiet
from tests.plugins import written

ENDPOINT = Endpoint(
    base_url="http://127.0.0.1:9/v1", model="m", api_key_env="",
    info=EngineInfo(name="fake", version="1", load_method="remote", load_s=0.0, log=""),
)  # fmt: skip
CODE = """
from pathlib import Path
from tests.fakes.evaluator import FakeEvaluator

class E(FakeEvaluator):
    def __init__(self, work_dir, clock):
        super().__init__(lambda question: "2")
        self.folder = work_dir

    def evaluate(self, suite, endpoint, *, plan_id, progress):
        (self.folder / plan_id).mkdir(parents=True, exist_ok=True)
        return super().evaluate(suite, endpoint, plan_id=plan_id, progress=progress)

    def kept(self):
        return tuple(path.name for path in self.folder.glob("*"))

    def forget(self, plan_id):
        if plan_id in self.kept():
            (self.folder / plan_id).rmdir()

class Liar(E):
    def evaluate(self, *a, **k):
        from dataclasses import replace
        return tuple(replace(o, fingerprint="of something else") for o in super().evaluate(*a, **k))

class Short(E):
    def evaluate(self, *a, **k):
        return ()
"""
POINTS = {f"tracker.evaluators:{name.lower()}": name for name in ("E", "Liar", "Short")}


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Suite:
    monkeypatch.syspath_prepend(str(written(tmp_path / "acme_selected", points=POINTS, code=CODE)))
    data = tmp_path / "sums.jsonl"
    data.write_text(json.dumps({"question": "1+1=", "answer": "2"}) + "\n")
    names = ("e", "nobody", "e", "liar", "short")
    one = Benchmark(name="b", adapter="exact", data=str(data))
    benchmarks = (
        replace(one, name=f"{at}", program=Program(name=name, version="acme_selected 1.0"))
        for at, name in enumerate(names)
    )
    return Suite(name="s", benchmarks=tuple(benchmarks))


def test_outcomes_come_in_order_and_what_fails_fails_alone(suite: Suite, tmp_path: Path) -> None:
    evaluator = EvaluatorByName(tmp_path / "work", SystemClock(), log_name="x.log")
    evaluator.prepare(suite, api_key_env="")
    first, unknown, third, liar, short = evaluator.evaluate(suite, ENDPOINT, plan_id="p", progress=quiet)
    assert isinstance(first, EvalResult)
    assert isinstance(third, EvalResult)
    assert (first.benchmark, third.benchmark) == ("0", "2")
    assert isinstance(unknown, ConfigError)
    assert "unknown evaluator `nobody`" in unknown.message
    assert isinstance(liar, EvaluateError)
    assert "or wrong fingerprint" in liar.message
    assert isinstance(short, EvaluateError)
    assert "0 outcomes for 1 benchmarks" in short.message
    evaluator.close()


def test_what_an_earlier_worker_kept_is_known_and_forgotten_by_the_next(suite: Suite, tmp_path: Path) -> None:
    EvaluatorByName(tmp_path / "work", SystemClock(), log_name="x.log").evaluate(
        suite, ENDPOINT, plan_id="p", progress=quiet
    )
    (tmp_path / "work" / "plugins" / "evaluators" / "uninstalled").mkdir()
    later = EvaluatorByName(tmp_path / "work", SystemClock(), log_name="x.log")
    assert later.kept() == ("p",)
    later.forget("p")
    assert later.kept() == ()
