import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from eval_jobs.errors import EvaluateError, UnknownBenchmark
from eval_jobs.evaluate.data.known_benchmarks import check_name, evalscope_names, runs_code, subsets_of
from eval_jobs.harness.known_tasks import CHANCE


@pytest.mark.parametrize("name", ["exact", "choice", "gsm8k", "mmlu", "arc", "bbh", "truthful_qa", "ifeval"])
def test_a_benchmark_that_exists_is_accepted(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    ("name", "near"), [("gsm8", "`gsm8k`"), ("GSM8K", "`gsm8k`"), ("truthfulqa", "`truthful_qa`"), ("exakt", "`exact`")]
)
def test_a_typo_is_answered_with_the_nearest_names(name: str, near: str) -> None:
    with pytest.raises(UnknownBenchmark) as caught:
        check_name(name)
    assert name in caught.value.message
    assert near in caught.value.hint
    assert caught.value.exit_code == 2


def test_a_name_like_no_other_gets_no_guess() -> None:
    with pytest.raises(UnknownBenchmark) as caught:
        check_name("zzzzqqqq")
    assert "did you mean" not in caught.value.hint


CODE = [
    "humaneval",
    "mbpp",
    "bigcodebench",
    "live_code_bench",
    "ds1000",
    "scicode",
    "swe_bench_verified",
    "skillsbench",
    "HumanEval",
    "MBPP",
    "multiple_humaneval",
    "gaia",
    "gdpval",
    "bfcl_v3",
    "terminal_bench_v2",
    "data_collection",
]


@pytest.mark.parametrize("name", CODE)
def test_a_benchmark_that_runs_the_models_code_is_refused(name: str) -> None:
    with pytest.raises(EvaluateError, match="executes model-generated code"):
        check_name(name)


def test_few_benchmarks_run_code_and_the_names_are_really_read() -> None:
    names = evalscope_names()
    assert len(names) > 200
    assert {name.lower() for name in CODE} - {"mbpp"} <= names
    assert 10 < sum(map(runs_code, names)) < 50


def test_the_subsets_of_a_benchmark_are_known_without_loading_it() -> None:
    assert subsets_of("arc") == ("ARC-Easy", "ARC-Challenge")
    assert subsets_of("no such thing") == ()


def test_the_score_of_guessing_is_that_of_the_choices_that_evalscope_describes() -> None:
    folder = Path(find_spec("evalscope").origin).parent / "benchmarks" / "_meta"  # type: ignore[union-attr, arg-type]
    compared = 0
    for name, chance in CHANCE.items():
        if not (folder / f"{name}.json").is_file():
            continue
        card = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        choices = card["sample_example"]["data"].get("choices")
        if choices and name != "boolq":  # more often yes than no
            assert chance == pytest.approx(1 / len(choices)), name
            compared += 1
    assert compared > 15
