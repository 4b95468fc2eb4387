"""What becomes of the files of lm-evaluation-harness, whole and torn, with what became of its requests."""

import json
import sys
from pathlib import Path

import pytest

from eval_jobs.errors import ConfigError, EvaluateError
from eval_jobs.evaluate.lm_eval.command import arguments
from eval_jobs.evaluate.lm_eval.outcomes import NOWHERE, Outcomes, RequestOutcome
from eval_jobs.evaluate.lm_eval.place import installed_version
from eval_jobs.evaluate.lm_eval.results import read_result
from eval_jobs.harness.samples import NO_LIKELIHOOD
from eval_jobs.run import check_accounted
from eval_jobs.types import Benchmark, Endpoint, EngineInfo, Program, SampleStatus
from tests.evaluating import suite_of
from tests.requires import requires_package

BENCHMARK = Benchmark(name="sums", adapter="sums", program=Program(name="lm-eval", version="lm-eval 0.4.13"))
INFO = EngineInfo(name="fake", version="1", load_method="remote", load_s=0.0, log="")
TIME = "2026-11-22T12-34-56.789012"


def row(prompt: str, score: float | None, **more: object) -> dict[str, object]:
    """Return a line as the harness writes it."""
    arguments = {"gen_args_0": {"arg_0": prompt, "arg_1": {}}}
    found: dict[str, object] = {"target": "t", "arguments": arguments, "resps": [["a"]], "filtered_resps": ["a"]}
    return found | {"filter": "none", "exact_match": score} | more


def write(
    folder: Path,
    tasks: dict[str, list[dict[str, object]]],
    *,
    up: bool = True,
    lost: int = 0,
    kind: str = "generate_until",
    version: str = "0.4.13",
) -> None:
    """Write what one run of the harness leaves."""
    place = folder / "model"
    place.mkdir(parents=True)
    document = {
        "results": {task: {"exact_match,none": 0.5, "exact_match_stderr,none": 0.1} for task in tasks},
        "configs": {task: {"output_type": kind} for task in tasks},
        "higher_is_better": {task: {"exact_match": up} for task in tasks},
        "lm_eval_version": version,
        "n-samples": {task: {"effective": len(rows) + lost} for task, rows in tasks.items()},
    }
    (place / f"results_{TIME}.json").write_text(json.dumps(document))
    for task, rows in tasks.items():
        (place / f"samples_{task}_{TIME}.jsonl").write_text(
            "".join(json.dumps({"doc_id": n} | r) + "\n" for n, r in enumerate(rows))
        )


def seen(*numbers: int, task: str = "sums") -> Outcomes:
    """Return what became of the requests of these samples: they were answered."""
    return Outcomes(((task, number), RequestOutcome(status=SampleStatus.SCORED)) for number in numbers)


def test_a_sample_whose_request_nobody_saw_is_an_error_and_so_is_a_line_that_is_missing(
    tmp_path: Path,
) -> None:
    write(tmp_path / "out", {"sums": [row("one", 1.0), row("two", 0.0)]}, lost=1)
    result = read_result(tmp_path / "out", BENCHMARK, suite_of(BENCHMARK), seen(0))
    assert [s.status for s in result.samples] == [SampleStatus.SCORED, SampleStatus.ERROR, SampleStatus.ERROR]
    assert [s.score for s in result.samples] == [1.0, None, None]
    check_accounted(result)


def test_an_answer_without_a_value_is_unscored(tmp_path: Path) -> None:
    write(tmp_path / "out", {"sums": [row("one", None), row("two", 1.0)]})
    result = read_result(tmp_path / "out", BENCHMARK, suite_of(BENCHMARK), seen(0, 1))
    assert [s.status for s in result.samples] == [SampleStatus.UNSCORED, SampleStatus.SCORED]


def test_a_group_is_one_benchmark_with_a_subset_for_each_task(tmp_path: Path) -> None:
    tasks = {"a": 1.0, "a_b": 0.0, "a_b_2026": 0.5}  # the names of their files begin alike
    write(tmp_path / "out", {name: [row("one", score)] for name, score in tasks.items()})
    cut = RequestOutcome(status=SampleStatus.TRUNCATED)  # of one of them, although all ask the same
    scored = RequestOutcome(status=SampleStatus.SCORED)
    outcomes = Outcomes(((name, 0), cut if name == "a_b" else scored) for name in tasks)
    result = read_result(tmp_path / "out", BENCHMARK, suite_of(BENCHMARK), outcomes)
    assert {s.subset: s.score for s in result.samples} == tasks
    assert [s.subset for s in result.samples if s.status is SampleStatus.TRUNCATED] == ["a_b"]
    check_accounted(result)


TORN: dict[str, tuple[str, str]] = {
    "no results": (f"results_{TIME}.json", ""),
    "half a document": (f"results_{TIME}.json", '{"results": {'),
    "a list": (f"results_{TIME}.json", "[]"),
    "half a line": (f"samples_sums_{TIME}.jsonl", '{"target": '),
    "no samples": (f"samples_sums_{TIME}.jsonl", ""),
}


@pytest.mark.parametrize("fault", TORN)
def test_torn_files_are_an_error_and_no_score(fault: str, tmp_path: Path) -> None:
    write(tmp_path / "out", {"sums": [row("one", 1.0)]})
    name, text = TORN[fault]
    (tmp_path / "out" / "model" / name).write_text(text) if text else (tmp_path / "out" / "model" / name).unlink()
    with pytest.raises(EvaluateError):
        read_result(tmp_path / "out", BENCHMARK, suite_of(BENCHMARK), seen(0))


def test_a_metric_that_is_better_the_other_way_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "out", {"sums": [row("one", 1.0)]}, up=False)
    with pytest.raises(EvaluateError, match="lower `exact_match` is better"):
        read_result(tmp_path / "out", BENCHMARK, suite_of(BENCHMARK), seen(0))


def choices(*likelihoods: float) -> dict[str, object]:
    """Return a line of a task that compares likelihoods."""
    asked = {f"gen_args_{n}": {"arg_0": "q", "arg_1": f" {n}"} for n in range(len(likelihoods))}
    return row("q", 1.0, arguments=asked, resps=[[[str(one), "False"]] for one in likelihoods])


def test_a_refused_likelihood_is_an_error_of_its_question(tmp_path: Path) -> None:
    write(tmp_path / "out", {"sums": [choices(-1.5, -2.5), choices(-1.5, NO_LIKELIHOOD)]}, kind="multiple_choice")
    refused = RequestOutcome(status=SampleStatus.ERROR, detail="HTTP 400: maximum context length")
    result = read_result(tmp_path / "out", BENCHMARK, suite_of(BENCHMARK), Outcomes([(NOWHERE, refused)]))
    assert [(s.status, s.score) for s in result.samples] == [(SampleStatus.SCORED, 1.0), (SampleStatus.ERROR, None)]
    assert "maximum context length" in result.samples[1].detail


def test_a_harness_that_was_updated_meanwhile_is_not_believed(tmp_path: Path) -> None:
    write(tmp_path / "out", {"sums": [row("one", 1.0)]}, version="0.5.0")
    with pytest.raises(ConfigError, match=r"planned with lm-eval 0\.4\.13, but evaluated with lm-eval 0\.5\.0"):
        read_result(tmp_path / "out", BENCHMARK, suite_of(BENCHMARK), seen(0))


@pytest.mark.parametrize("first_line", ["#!{python}\n", "#!/bin/sh\n", ""], ids=["named", "a shell", "none"])
def test_the_harness_is_asked_for_its_version_where_its_command_leads(first_line: str, tmp_path: Path) -> None:
    harness = requires_package("lm_eval")
    folder = tmp_path / "tool" / "bin"
    folder.mkdir(parents=True)
    (folder / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (folder / "python").chmod(0o755)
    (folder / "lm_eval").write_text(first_line.format(python=sys.executable))
    (tmp_path / "lm_eval").symlink_to(folder / "lm_eval")
    assert installed_version(str(tmp_path / "lm_eval")) == f"lm-eval {harness}"


def test_an_environment_that_lacks_what_the_child_needs_is_named(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\necho 0.4.13; echo httpx\n")
    (tmp_path / "python").chmod(0o755)
    (tmp_path / "lm_eval").touch()
    with pytest.raises(ConfigError, match="the evaluator needs httpx"):
        installed_version(str(tmp_path / "lm_eval"))


def test_no_setting_of_the_suite_is_left_to_a_default() -> None:
    endpoint = Endpoint(base_url="http://127.0.0.1:1/v1", model="m", api_key_env="", info=INFO)
    words = arguments(BENCHMARK, suite_of(BENCHMARK), endpoint, out="/out")
    model, generation = (json.loads(words[words.index(name) + 1]) for name in ("--model_args", "--gen_kwargs"))
    assert generation == {"temperature": 0.0, "top_p": 1.0, "max_gen_toks": 16, "seed": 0}
    assert {"seed": 0, "max_length": 1_000_000, "tokenizer_backend": "none"}.items() <= model.items()
    assert words[words.index("--seed") + 1] == "0,1234,1234,1234"
    assert "--limit" not in words
    assert "--trust_remote_code" not in words
