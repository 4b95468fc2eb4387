"""Rules of the Evaluator port, over the fake and over the real child process with a scripted server."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path

import pytest

from eval_jobs.errors import BadData, EndpointFailed, EvaluateError, UnknownBenchmark
from eval_jobs.evaluate.data.files import read_data_digest
from eval_jobs.evaluate.evalscope.evaluator import EvalScopeEvaluator
from eval_jobs.identity import benchmark_fingerprint
from eval_jobs.ports import Evaluator
from eval_jobs.types import (
    Benchmark,
    Endpoint,
    EngineInfo,
    EvalResult,
    Generation,
    SampleStatus,
    Screen,
    ScreenPart,
    Suite,
)
from tests.evaluating import evaluate_one
from tests.fakes.evaluator import FakeEvaluator
from tests.fakes.openai_server import OpenAIServer, Reply, Request, context_overflow

REFUSED = "refused"
GONE = "gone"
ENDPOINT = Endpoint(
    base_url="http://127.0.0.1:9/v1",
    model="fake",
    api_key_env="",
    info=EngineInfo(name="fake", version="1", load_method="remote", load_s=0.0, log=""),
)
PAIRS = [(a, b) for a in range(4) for b in range(3)]
SUMS = [(f"{a}+{b}=", str(a + b)) for a in range(4) for b in range(3)]


@dataclass
class Bench:
    """An evaluator and what it may ask. `script` maps a question to an answer, to REFUSED or to GONE."""

    evaluator: Evaluator
    script: Callable[[str], str] = field(default=lambda question: str(sum(map(int, question.strip("=").split("+")))))
    asked: list[str] = field(default_factory=list)

    def evaluate(self, benchmark: Benchmark, *, plan_id: str, suite: Suite | None = None) -> EvalResult:
        """Evaluate while the questions are answered by `script`."""
        raise NotImplementedError


class FakeBench(Bench):
    def evaluate(self, benchmark: Benchmark, *, plan_id: str, suite: Suite | None = None) -> EvalResult:
        def answer(question: str) -> str:
            said = self.script(question)
            if said == GONE:
                raise EndpointFailed("connection refused", hint="start it again")
            self.asked.append(question)
            if said == REFUSED:
                raise ValueError("context overflow")
            return said

        assert isinstance(self.evaluator, FakeEvaluator)
        self.evaluator.answer = answer
        suite = suite or suite_of(benchmark)
        return evaluate_one(self.evaluator, suite, ENDPOINT, plan_id=plan_id)


class ServedBench(Bench):
    def evaluate(self, benchmark: Benchmark, *, plan_id: str, suite: Suite | None = None) -> EvalResult:
        def answer(request: Request) -> Reply:
            said = self.script(request.prompt)
            if said == GONE:
                server.stop()
            else:
                self.asked.append(request.prompt)
            return context_overflow() if said == REFUSED else Reply(text=said)

        with OpenAIServer(answer) as server:
            endpoint = Endpoint(
                base_url=server.base_url, model="fake", api_key_env="", info=ENDPOINT.info, tokenizer=""
            )
            suite = suite or suite_of(benchmark)
            return evaluate_one(self.evaluator, suite, endpoint, plan_id=plan_id)


@pytest.fixture(scope="session")
def resident(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EvalScopeEvaluator]:
    evaluator = EvalScopeEvaluator(tmp_path_factory.mktemp("evaluator"))
    yield evaluator
    evaluator.close()


@pytest.fixture(params=["fake", "evalscope"])
def bench(request: pytest.FixtureRequest) -> Bench:
    if request.param == "fake":
        return FakeBench(FakeEvaluator(str))
    return ServedBench(request.getfixturevalue("resident"))


def suite_of(benchmark: Benchmark) -> Suite:
    return Suite(name="s", benchmarks=(benchmark,), generation=Generation(max_tokens=8), concurrency=2)


def write(path: Path, rows: Sequence[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def sums(folder: Path, rows: Sequence[tuple[str, str]] = SUMS, name: str = "sums.jsonl") -> Benchmark:
    path = write(folder / name, [{"question": q, "answer": a} for q, a in rows])
    return Benchmark(name="sums", adapter="exact", data=str(path), data_digest=read_data_digest(path))


def test_a_screen_and_its_rest_are_the_whole_benchmark_and_share_no_question(bench: Bench, tmp_path: Path) -> None:
    rows: list[dict[str, object]]
    rows = [{"question": f"{a}+{b}=", "answer": str(a + b), "subset": "ab"[a % 2], "cluster": f"{a}"} for a, b in PAIRS]
    path = write(tmp_path / "sums.jsonl", rows)
    benchmark = Benchmark(name="sums", adapter="exact", data=str(path), data_digest=read_data_digest(path))
    suite, part = suite_of(benchmark), ScreenPart(screen=Screen(samples=4))
    whole = bench.evaluate(benchmark, plan_id="whole")
    first = bench.evaluate(benchmark, plan_id="screen", suite=replace(suite, part=part))
    asked_first = len(bench.asked)
    rest = bench.evaluate(benchmark, plan_id="rest", suite=replace(suite, part=replace(part, is_rest=True)))
    assert whole.left_out == 0
    assert (first.left_out, rest.left_out) == (len(rest.samples), len(first.samples))
    assert 0 < len(first.samples) < len(rows)
    assert len(bench.asked) - asked_first == len(rest.samples)
    key = attrgetter("sample_id")
    together = sorted((*first.samples, *rest.samples), key=key)
    assert [key(s) for s in together] == [key(s) for s in sorted(whole.samples, key=key)]
    assert {s.subset for s in first.samples} == {"a", "b"}
    assert not {s.cluster_id for s in first.samples} & {s.cluster_id for s in rest.samples}
    assert first.fingerprint == rest.fingerprint == whole.fingerprint


def test_every_planned_sample_comes_out_scored_by_its_answer(bench: Bench, tmp_path: Path) -> None:
    right = bench.script
    bench.script = lambda question: "no" if question.startswith("3") else right(question)
    benchmark = sums(tmp_path)
    result = bench.evaluate(benchmark, plan_id="all")
    assert result.benchmark == "sums"
    assert result.metric == "accuracy"
    assert result.fingerprint == benchmark_fingerprint(benchmark, suite_of(benchmark))
    assert {s.status for s in result.samples} == {SampleStatus.SCORED}
    assert {s.prompt: s.score for s in result.samples} == {q: float(not q.startswith("3")) for q, _ in SUMS}
    assert {s.prompt: s.target for s in result.samples} == dict(SUMS)
    assert {s.answer for s in result.samples if s.score == 0.0} == {"no"}


def test_preparing_changes_nothing_but_the_time(bench: Bench, tmp_path: Path) -> None:
    benchmark = sums(tmp_path)
    plain = bench.evaluate(benchmark, plan_id="unprepared")
    bench.evaluator.prepare(suite_of(benchmark), api_key_env="")
    prepared = bench.evaluate(benchmark, plan_id="prepared")
    assert {s.sample_id: s.score for s in prepared.samples} == {s.sample_id: s.score for s in plain.samples}


def test_a_question_that_is_refused_is_an_error_and_the_others_are_scored(bench: Bench, tmp_path: Path) -> None:
    right = bench.script
    bench.script = lambda question: REFUSED if question == "1+1=" else right(question)
    result = bench.evaluate(sums(tmp_path), plan_id="refused")
    (error,) = [s for s in result.samples if s.status is SampleStatus.ERROR]
    assert (error.prompt, error.score, error.answer) == ("1+1=", None, "")
    assert "context" in error.detail
    assert Counter(s.score for s in result.samples) == {1.0: len(SUMS) - 1, None: 1}


def test_a_question_keeps_its_id_whatever_the_order_of_the_file_and_the_limit(bench: Bench, tmp_path: Path) -> None:
    shuffled = SUMS[5:][::-1] + SUMS[:5]
    first = bench.evaluate(sums(tmp_path), plan_id="order 1")
    second = bench.evaluate(sums(tmp_path, shuffled, "shuffled.jsonl"), plan_id="order 2")
    limited = Benchmark(name="sums", adapter="exact", data=str(tmp_path / "shuffled.jsonl"), limit=3)
    third = bench.evaluate(limited, plan_id="order 3")
    ids = {s.prompt: s.sample_id for s in first.samples}
    assert {s.prompt: s.sample_id for s in second.samples} == ids
    assert {s.prompt: s.sample_id for s in third.samples} == {q: ids[q] for q, _ in shuffled[:3]}
    assert len(set(ids.values())) == len(SUMS)


def test_a_question_that_occurs_twice_is_two_samples(bench: Bench, tmp_path: Path) -> None:
    rows = [("1+1=", "2"), ("1+2=", "3"), ("1+1=", "2")]
    ids = [s.sample_id for s in bench.evaluate(sums(tmp_path, rows), plan_id="twice").samples]
    turned = bench.evaluate(sums(tmp_path, rows[::-1], "turned.jsonl"), plan_id="turned")
    assert len(set(ids)) == 3
    assert set(ids) == {s.sample_id for s in turned.samples}


def test_the_same_question_with_another_answer_or_subset_is_another_sample(bench: Bench, tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"question": "1+1=", "answer": "2"},
        {"question": "1+1=", "answer": "3", "subset": "odd"},
        {"question": "1+1=", "answer": "2", "subset": "hard", "cluster": "c"},
    ]
    data = str(write(tmp_path / "rows.jsonl", rows))
    result = bench.evaluate(Benchmark(name="sums", adapter="exact", data=data), plan_id="others")
    assert len({s.sample_id for s in result.samples}) == 3
    assert {(s.subset, s.target, s.cluster_id) for s in result.samples} == {
        ("default", "2", ""),
        ("odd", "3", ""),
        ("hard", "2", "c"),
    }


def test_subsets_and_the_limit_choose_what_is_asked(bench: Bench, tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"question": f"{n}+{s}=", "answer": str(n + s), "subset": f"plus {s}"} for s in range(3) for n in range(5)
    ]
    data = str(write(tmp_path / "rows.jsonl", rows))
    benchmark = Benchmark(name="b", adapter="exact", data=data, subsets=("plus 0", "plus 2"), limit=2)
    result = bench.evaluate(benchmark, plan_id="chosen")
    assert sorted(s.prompt for s in result.samples) == ["0+0=", "0+2=", "1+0=", "1+2="]
    assert len(bench.asked) == 4


def test_every_repeat_is_a_sample_under_the_same_id(bench: Bench, tmp_path: Path) -> None:
    data = str(write(tmp_path / "rows.jsonl", [{"question": q, "answer": a} for q, a in SUMS[:3]]))
    result = bench.evaluate(Benchmark(name="b", adapter="exact", data=data, repeats=2), plan_id="repeats")
    places = Counter((s.sample_id, s.repeat) for s in result.samples)
    assert set(places.values()) == {1}
    assert len(result.samples) == len(bench.asked) == 6
    assert len({s.sample_id for s in result.samples}) == 3
    assert {s.repeat for s in result.samples} == {0, 1}


def test_a_list_of_answers_accepts_each(bench: Bench, tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"question": "1+1=", "answer": ["two", "2"]}]
    data = str(write(tmp_path / "rows.jsonl", rows))
    result = bench.evaluate(Benchmark(name="b", adapter="exact", data=data), plan_id="list")
    assert [(s.score, s.target) for s in result.samples] == [(1.0, "two | 2")]


def test_a_choice_is_scored_by_its_letter(bench: Bench, tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"question": "Which is red?", "choices": ["sky", "rose"], "answer": "B"},
        {"question": "Which is blue?", "choices": ["sky", "rose"], "answer": "sky"},
        {"question": "Which is green?", "choices": ["grass", "rose"], "answer": 0},
    ]
    bench.script = lambda question: "I cannot say" if "green" in question else "The answer is (B)."
    data = str(write(tmp_path / "rows.jsonl", rows))
    result = bench.evaluate(Benchmark(name="colours", adapter="choice", data=data), plan_id="colours")
    assert [s.score for s in result.samples] == [1.0, 0.0, 0.0]
    assert [s.target for s in result.samples] == ["B", "A", "A"]


def test_when_the_server_goes_away_the_next_call_asks_only_what_is_missing(bench: Bench, tmp_path: Path) -> None:
    right, benchmark = bench.script, sums(tmp_path)
    bench.script = lambda question: GONE if len(bench.asked) >= 5 else right(question)
    with pytest.raises(EndpointFailed) as caught:
        bench.evaluate(benchmark, plan_id="resumed")
    assert caught.value.retryable
    answered = list(bench.asked)
    assert 5 <= len(answered) < len(SUMS)

    bench.asked.clear()
    bench.script = right
    result = bench.evaluate(benchmark, plan_id="resumed")
    assert len(set(answered) & set(bench.asked)) <= 1, "of two in flight one noticed that the server is gone"
    assert [s.status for s in result.samples] == [SampleStatus.SCORED] * len(SUMS)

    bench.asked.clear()
    bench.evaluate(benchmark, plan_id="another plan")
    assert len(bench.asked) == len(SUMS)


def test_changed_data_is_asked_again_under_the_same_plan(bench: Bench, tmp_path: Path) -> None:
    bench.evaluate(sums(tmp_path), plan_id="changed")
    bench.asked.clear()
    other = [(q, "0") for q, _ in SUMS]
    result = bench.evaluate(sums(tmp_path, other), plan_id="changed")
    assert len(bench.asked) == len(SUMS)
    assert sum(s.score or 0.0 for s in result.samples) == 1.0


def test_a_benchmark_that_does_not_exist_is_named_with_the_nearest_ones(bench: Bench) -> None:
    with pytest.raises(UnknownBenchmark, match="gsm8k"):
        bench.evaluate(Benchmark(name="b", adapter="gsm8kk"), plan_id="unknown")


def test_a_benchmark_that_runs_code_is_refused(bench: Bench) -> None:
    with pytest.raises(EvaluateError, match="executes model-generated code"):
        bench.evaluate(Benchmark(name="b", adapter="humaneval"), plan_id="code")
    assert bench.asked == []


def test_a_broken_line_is_named(bench: Bench, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [{"question": "1+1=", "answer": "2"}, {"question": "1+2="}])
    with pytest.raises(BadData, match=r"rows\.jsonl, line 2: missing answer"):
        bench.evaluate(Benchmark(name="b", adapter="exact", data=str(path)), plan_id="broken")
    assert bench.asked == []


def test_what_is_forgotten_is_asked_again_and_forgetting_twice_is_harmless(bench: Bench, tmp_path: Path) -> None:
    benchmark = sums(tmp_path)
    for plan_id in ("kept", "dropped"):
        bench.evaluate(benchmark, plan_id=plan_id)
    assert {"dropped", "kept"} <= set(bench.evaluator.kept())
    for plan_id in ("dropped", "dropped", "never heard of", "..", ""):
        bench.evaluator.forget(plan_id)
    assert "kept" in bench.evaluator.kept()
    assert "dropped" not in bench.evaluator.kept()
    bench.asked.clear()
    bench.evaluate(benchmark, plan_id="kept")
    assert bench.asked == []
    bench.evaluate(benchmark, plan_id="dropped")
    assert len(bench.asked) == len(SUMS)


def test_closing_twice_is_harmless(tmp_path: Path) -> None:
    for evaluator in (FakeEvaluator(str), EvalScopeEvaluator(tmp_path)):
        evaluator.close()
        evaluator.close()
