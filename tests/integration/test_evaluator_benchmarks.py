"""Real benchmarks through EvalScope's own adapters: on a scripted server for the scores, on vLLM for the rest."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from eval_jobs.errors import ConfigError
from eval_jobs.evaluate.data.files import read_data_digest
from eval_jobs.evaluate.evalscope.evaluator import EvalScopeEvaluator
from eval_jobs.types import Benchmark, Endpoint, EvalResult, Generation, SampleScore, SampleStatus, Suite
from tests.commands import tracker
from tests.evaluating import AT_ONCE, ask, evaluate_one, quiet, suite_of, write_jsonl
from tests.fakes.openai_server import OpenAIServer, Reply
from tests.requires import shared_data
from tracker.cli.commands.to_set_up.doctor import command as doctor


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EvalScopeEvaluator]:
    evaluator = EvalScopeEvaluator(tmp_path_factory.mktemp("benchmarks"), retry_policy=AT_ONCE)
    yield evaluator
    evaluator.close()


def local(adapter: str, folder: str, *subsets: str, limit: int = 3) -> Benchmark:
    data = str(shared_data(f"benchmarks/{folder}"))
    digest = read_data_digest(data)
    return Benchmark(
        name=adapter, adapter=adapter, data=data, data_digest=digest, subsets=subsets, limit=limit, few_shot=0
    )


REAL: dict[str, Callable[[], Benchmark]] = {
    "gsm8k": lambda: local("gsm8k", "gsm8k"),
    "mmlu": lambda: local("mmlu", "mmlu", "astronomy", "formal_logic"),
    "arc": lambda: local("arc", "arc", limit=6),
    "bbh": lambda: local("bbh", "bbh", "boolean_expressions", "date_understanding", "dyck_languages"),
    "truthful_qa": lambda: local("truthful_qa", "truthfulqa"),
    "choice": lambda: replace(local("choice", "basic_arithmetic/validation.jsonl", limit=6), few_shot=None),
}
SAID = "Let me think. So the answer is A\nANSWER: A"
"""Understood by every multiple-choice adapter."""


def says_a(sample: SampleScore) -> bool:
    return sample.target == "A"


@pytest.mark.shared_data
@pytest.mark.parametrize(("name", "planned"), [("mmlu", 6), ("arc", 6), ("bbh", 9), ("truthful_qa", 3), ("choice", 6)])
def test_a_real_benchmark_is_scored_by_its_own_adapter(evaluator: EvalScopeEvaluator, name: str, planned: int) -> None:
    with OpenAIServer(lambda _: Reply(text=SAID)) as server:
        result = ask(evaluator, server, REAL[name](), plan_id="scores")
    assert Counter(s.status for s in result.samples) == {SampleStatus.SCORED: planned}
    assert {s.sample_id: s.score for s in result.samples} == {s.sample_id: float(says_a(s)) for s in result.samples}
    assert len({s.sample_id for s in result.samples}) == planned


@pytest.mark.shared_data
def test_gsm8k_is_scored_by_its_own_adapter(evaluator: EvalScopeEvaluator) -> None:
    lines = (shared_data("benchmarks/gsm8k") / "test.jsonl").read_text(encoding="utf-8").splitlines()[:3]
    answers = {row["question"]: str(row["answer"]).split("####")[1].strip() for row in map(json.loads, lines)}

    def answer_of(prompt: str) -> str:
        (found,) = [answer for question, answer in answers.items() if prompt.startswith(question)]
        return found

    def right_but_once(prompt: str) -> str:
        return f"Step by step.\n\\boxed{{{answer_of(prompt)}}}" if "Janet" not in prompt else "\\boxed{1}"

    with OpenAIServer(lambda request: Reply(text=right_but_once(request.prompt))) as server:
        result = ask(evaluator, server, REAL["gsm8k"](), plan_id="gsm8k")
    assert [s.target for s in result.samples] == list(answers.values())
    assert [s.score for s in result.samples] == [0.0, 1.0, 1.0]
    assert result.metric == "accuracy"


@pytest.mark.shared_data
def test_ids_survive_another_order_of_the_file_even_where_choices_are_shuffled(
    evaluator: EvalScopeEvaluator, tmp_path: Path
) -> None:
    lines = (shared_data("benchmarks/truthfulqa") / "TruthfulQA.csv").read_text(encoding="utf-8").splitlines()[:9]
    results = []
    for name, rows in (("same", lines[1:]), ("turned", lines[:0:-1])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "TruthfulQA.csv").write_text("\n".join([lines[0], *rows]) + "\n", encoding="utf-8")
        benchmark = Benchmark(name="truthful_qa", adapter="truthful_qa", data=str(tmp_path / name))
        with OpenAIServer(lambda _: Reply(text=SAID)) as server:
            results.append(ask(evaluator, server, benchmark, plan_id=name))
    same, turned = ({s.prompt: s.sample_id for s in result.samples} for result in results)
    assert len(same) == 8
    assert same == turned


def test_the_shown_prompt_is_the_one_that_a_server_gets(evaluator: EvalScopeEvaluator, tmp_path: Path) -> None:
    choices = {"choices": ["dust", "gas", "ice", "rock"], "answer": 2}
    for number, name in enumerate(("own", "mmlu/astronomy_test", "mmlu/astronomy_dev")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        rows = [{"question": f"What is comet {number}{letter} of?\nA comet has a tail.", **choices} for letter in "abc"]
        write_jsonl(tmp_path / f"{name}.jsonl", rows)
    columns = "Question,Best Answer,Correct Answers,Incorrect Answers\n"
    (tmp_path / "truth").mkdir()
    (tmp_path / "truth" / "TruthfulQA.csv").write_text(f"{columns}Is ice hot?,No,No; Never,Yes; Always; Often\n")
    for adapter, data in (("exact", "own.jsonl"), ("truthful_qa", "truth"), ("choice", "own.jsonl"), ("mmlu", "mmlu")):
        few_shot = 2 if adapter == "mmlu" else None
        benchmark = Benchmark(name=adapter, adapter=adapter, data=str(tmp_path / data), few_shot=few_shot)
        with OpenAIServer(lambda _: Reply(text=SAID)) as server:
            first = ask(evaluator, server, benchmark, plan_id=f"shown-{adapter}").samples[0]
        sent = [tuple((m["role"], m["content"]) for m in request.body["messages"]) for request in server.requests]
        shown = evaluator.first_question(suite_of(benchmark))
        target = shown.target if isinstance(shown.target, str) else " | ".join(shown.target)
        assert shown.messages in sent
        assert (shown.messages[-1][1], target) == (first.prompt, first.target)
    config = tmp_path / "tracker.toml"
    config.write_text(
        '[run]\nname = "r"\noutput_dir = "out"\n[[benchmark]]\nbenchmark = "mmlu"\ndata = "mmlu"\nfew_shot = 2\n'
    )
    printed = "".join(f"--- {part}\n{text.rstrip()}\n" for part, text in (*shown.messages, ("target", target)))
    assert tracker(tmp_path, "doctor", "--show-prompt", "mmlu") == printed
    assert not list((tmp_path / ".tracker" / "work" / "runs").iterdir()), "nothing is left of it"
    for name, options in (("mmlo", ["--config", str(config)]), ("mmlu", ["--json"])):
        refused = CliRunner().invoke(doctor, ["--show-prompt", name, *options])
        assert isinstance(refused.exception, ConfigError)


# --- on vLLM


def on_vllm(evaluator: EvalScopeEvaluator, endpoint: Endpoint, benchmark: Benchmark) -> EvalResult:
    suite = replace(suite_of(benchmark), generation=Generation(max_tokens=8))
    return evaluate_one(evaluator, suite, endpoint, plan_id="vllm")


@pytest.mark.vllm
def test_a_prompt_beyond_the_context_is_an_error_and_never_a_wrong_answer(
    evaluator: EvalScopeEvaluator, served: Endpoint, tmp_path: Path
) -> None:
    path = tmp_path / "long.jsonl"
    write_jsonl(path, [{"question": question, "answer": "yes"} for question in ("short?", "long? " * 100, "brief?")])
    result = on_vllm(evaluator, served, Benchmark(name="long", adapter="exact", data=str(path)))
    assert [s.status is SampleStatus.ERROR for s in result.samples] == [False, True, False]
    assert result.samples[1].score is None
    assert "maximum context length" in result.samples[1].detail
    assert all(s.score in (0.0, 1.0) and s.output_tokens for s in result.samples if s.score is not None)


@pytest.mark.vllm
@pytest.mark.shared_data
@pytest.mark.parametrize("name", list(REAL))
def test_a_real_benchmark_runs_on_vllm_and_every_planned_sample_comes_out(
    evaluator: EvalScopeEvaluator, served: Endpoint, name: str
) -> None:
    result = on_vllm(evaluator, served, REAL[name]())
    counts = Counter(s.status for s in result.samples)
    assert sum(counts.values()) >= 3
    assert counts[SampleStatus.UNSCORED] == 0
    assert all("context length" in s.detail for s in result.samples if s.status is SampleStatus.ERROR)
    assert all((s.score is None) == (s.status is SampleStatus.ERROR) for s in result.samples)


@pytest.mark.vllm
def test_the_same_checkpoint_asked_twice_gives_the_same_answers(
    evaluator: EvalScopeEvaluator, served: Endpoint, tmp_path: Path
) -> None:
    path = tmp_path / "sums.jsonl"
    write_jsonl(path, [{"question": f"{n}+1=", "answer": n + 1} for n in range(16)])
    benchmark = Benchmark(name="sums", adapter="exact", data=str(path))
    suite = Suite(name="s", benchmarks=(benchmark,), generation=Generation(max_tokens=8), concurrency=1)
    first, second = (evaluate_one(evaluator, suite, served, plan_id=plan_id) for plan_id in ("a", "b"))
    assert first.samples == second.samples


@pytest.mark.vllm
def test_benchmarks_at_once_get_the_answers_that_each_gets_alone(
    evaluator: EvalScopeEvaluator, served: Endpoint, tmp_path: Path
) -> None:
    """In fp32 on a CPU; in bf16 neighbours in a batch may change an answer, whichever benchmark they are of."""
    benchmarks = []
    for name in ("sums", "facts", "rhymes"):
        path = tmp_path / f"{name}.jsonl"
        write_jsonl(path, [{"question": f"{name} {n}?", "answer": "yes"} for n in range(12)])
        benchmarks.append(Benchmark(name=name, adapter="exact", data=str(path)))
    suite = Suite(name="s", benchmarks=tuple(benchmarks), generation=Generation(max_tokens=8), concurrency=8)
    together = evaluator.evaluate(suite, served, plan_id="together", progress=quiet)
    alone = [
        evaluate_one(evaluator, replace(suite, benchmarks=(benchmark,)), served, plan_id=f"alone {benchmark.name}")
        for benchmark in benchmarks
    ]
    assert [result.samples for result in together if isinstance(result, EvalResult)] == [r.samples for r in alone]
    assert len({sample.answer for result in alone for sample in result.samples}) > 3
