import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval_jobs.evaluate.common.task_config import benchmark_task, evaluate_request, run_folder, task_config
from eval_jobs.evaluate.data.layouts import CachedDataset
from eval_jobs.types import Benchmark, Endpoint, EngineInfo, EngineKind, Generation, Suite
from tests.requires import PROJECT

GOLDEN = PROJECT / "tests" / "golden" / "evalscope" / "request.json"
BENCHMARK = Benchmark(
    name="Grade school",
    adapter="gsm8k",
    data="/data/gsm8k",
    data_digest="d1",
    limit=100,
    few_shot=0,
    repeats=2,
    max_tokens=64,
    prompt_template="{question}",
)
SUITE = Suite(
    name="s",
    benchmarks=(BENCHMARK,),
    generation=Generation(max_tokens=32, temperature=0.7, top_p=0.9, top_k=40, seed=7),
    concurrency=4,
    request_timeout_s=30.0,
)
ENDPOINT = Endpoint(
    base_url="http://127.0.0.1:8000/v1",
    model="ckpt",
    api_key_env="MY_KEY",
    info=EngineInfo(name="vllm", version="0.32", load_method="cold", load_s=1.0, log=""),
)


def test_the_request_is_as_written_down() -> None:
    data = CachedDataset(folder=Path("/state/data/gsm8k-d1/data"), subsets=("main",))
    task = benchmark_task(BENCHMARK, SUITE, ENDPOINT, folder="/state/runs/x", data=data)
    request = evaluate_request(SUITE, ENDPOINT, [task])
    assert request == json.loads(GOLDEN.read_text(encoding="utf-8"))


def test_every_sampling_parameter_is_sent_even_when_it_is_the_default() -> None:
    benchmark = Benchmark(name="b", adapter="exact", data="/d.jsonl")
    suite = Suite(name="s", benchmarks=(benchmark,))
    task: dict[str, Any] = task_config(benchmark, suite, ENDPOINT, folder="/f", data=None)
    sent = task["generation_config"]
    assert {k: sent[k] for k in ("max_tokens", "temperature", "top_p", "top_k", "seed")} == {
        "max_tokens": 256,
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": -1,
        "seed": 0,
    }


def test_an_engine_that_we_started_knows_no_keys_and_whoever_else_may() -> None:
    ours = {}
    for name in (*EngineKind, "another", ""):
        endpoint = replace(ENDPOINT, info=replace(ENDPOINT.info, name=name))
        ours[name] = evaluate_request(SUITE, endpoint, [])["own_engine"]
    assert [name for name, is_ours in ours.items() if is_ours] == ["vllm", "sglang"]


@pytest.mark.parametrize(("top_k", "sent"), [(-1, None), (40, 40)])
def test_a_server_that_may_not_know_top_k_gets_it_only_when_it_is_wanted(top_k: int, sent: int | None) -> None:
    suite = replace(SUITE, generation=Generation(top_k=top_k))
    remote = replace(ENDPOINT, info=replace(ENDPOINT.info, name="remote"))
    task: dict[str, Any] = task_config(BENCHMARK, suite, remote, folder="/f", data=None)
    assert task["generation_config"].get("top_k") == sent
    assert ("top_k" in task["generation_config"]) is (sent is not None)


def test_the_users_subsets_win_over_those_in_the_data() -> None:
    data = CachedDataset(folder=Path("/f"), subsets=("a", "b", "c"))
    benchmark = replace(BENCHMARK, subsets=("b",))
    task: dict[str, Any] = task_config(benchmark, SUITE, ENDPOINT, folder="/f", data=data)
    assert task["dataset_args"]["gsm8k"]["subset_list"] == ["b"]


def test_a_runs_folder_is_the_same_for_a_retry_and_another_for_whatever_changes_a_score() -> None:
    base = run_folder(BENCHMARK, SUITE, "plan1")
    assert run_folder(BENCHMARK, replace(SUITE, request_timeout_s=5.0), "plan1") == base
    assert run_folder(replace(BENCHMARK, data="/moved"), SUITE, "plan1") == base
    others = {
        run_folder(BENCHMARK, SUITE, "plan2"),
        run_folder(replace(BENCHMARK, data_digest="d2"), SUITE, "plan1"),
        run_folder(replace(BENCHMARK, limit=50), SUITE, "plan1"),
        run_folder(replace(BENCHMARK, few_shot=1), SUITE, "plan1"),
        run_folder(BENCHMARK, replace(SUITE, generation=Generation(seed=1)), "plan1"),
    }
    assert len(others | {base}) == 6


@pytest.mark.parametrize(("name", "plan_id"), [("../../etc", "../.."), ("a/b c", "x/y"), ("", ""), ("..", ".")])
def test_no_name_leads_out_of_the_folder(name: str, plan_id: str) -> None:
    folder = run_folder(replace(BENCHMARK, name=name), SUITE, plan_id)
    assert folder.count("/") == 1
    assert not {"", ".", ".."} & set(folder.split("/"))


@pytest.mark.parametrize("name", ["../../x", "..", "/etc/x", "a/../b", "\x00", "\u202e", "."])
def test_neither_a_name_nor_an_id_leads_out_of_the_folder_of_evaluations(name: str) -> None:
    plan, evaluation = run_folder(replace(BENCHMARK, name=name), SUITE, name).split("/")
    assert not {plan, evaluation} & {"", ".", ".."}
    assert "\x00" not in plan + evaluation
