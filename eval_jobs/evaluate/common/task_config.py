"""Records -> arguments of EvalScope's `TaskConfig`, and the request to the child. Pure.

Two rules of EvalScope matter here. A parameter that is not sent falls back to the server's default, so all are sent,
except a `top_k` that is off, which only vLLM is sure to support. And its resume check covers the URL but not the data,
so the URL is left out (the child passes a model object), and the run's folder is named by the benchmark's fingerprint,
which covers the data.
"""

import re
from collections.abc import Mapping, Sequence

from eval_jobs.evaluate.common.parse import planned_sample
from eval_jobs.evaluate.data.layouts import CachedDataset
from eval_jobs.identity import benchmark_fingerprint
from eval_jobs.screening import Question, screen_of
from eval_jobs.types import Benchmark, Endpoint, EngineKind, Screen, ScreenPart, Suite

MODEL_ID = "model"
"""Part of the names of EvalScope's folders; constant, because a run's folder belongs to one plan."""
SHUFFLE_SEED = 42
"""For benchmarks that shuffle their questions; the sampling seed is `Generation.seed`."""
TOP_K_OFF = -1
OWN_NAMES = {"exact": "tracker_exact", "choice": "tracker_choice"}
"""Names under which the tracker's own adapters are registered with EvalScope."""

Json = dict[str, object]


def run_folder(benchmark: Benchmark, suite: Suite, plan_id: str) -> str:
    """Return the relative folder of one evaluation: equal for a retry, different if anything that scores changed."""
    name = f"{folder_name(benchmark.name)}-{benchmark_fingerprint(benchmark, suite)[:16]}"
    return f"{folder_name(plan_id)}/{name}"


def folder_name(name: str) -> str:
    """Return the name of a plan or a benchmark with only such characters as are safe in a path."""
    return re.sub(r"[^\w.-]+", "_", name).strip(".") or "_"


def evalscope_name(benchmark: Benchmark) -> str:
    """Return EvalScope's name of the benchmark, which is the prefix of its files."""
    return OWN_NAMES.get(benchmark.adapter, benchmark.adapter)


def max_tokens(benchmark: Benchmark, suite: Suite) -> int:
    """Return the maximum length of an answer, in tokens."""
    if benchmark.max_tokens is None:
        return suite.generation.max_tokens
    return benchmark.max_tokens


def sampling(benchmark: Benchmark, suite: Suite, endpoint: Endpoint) -> dict[str, float]:
    """Return the sampling parameters of every request, under their names in the API."""
    generation = suite.generation
    # vLLM's default may come from the model's own files. A strict server rejects an unknown field.
    sends_top_k = generation.top_k != TOP_K_OFF or endpoint.info.name == EngineKind.VLLM
    return {
        "max_tokens": max_tokens(benchmark, suite),
        "temperature": generation.temperature,
        "top_p": generation.top_p,
        **({"top_k": generation.top_k} if sends_top_k else {}),
        "seed": generation.seed,
    }


def evaluate_request(suite: Suite, endpoint: Endpoint, tasks: Sequence[Json]) -> Json:
    """Return the child's request. The API key is not in it, only the name of its environment variable."""
    return {
        "base_url": endpoint.base_url,
        "model": endpoint.model,
        "api_key_env": endpoint.api_key_env,
        "own_engine": endpoint.info.is_ours,
        "client_cores": list(endpoint.client_cores),
        "client_niceness": endpoint.client_niceness,
        "concurrency": suite.concurrency,
        "timeout_s": suite.request_timeout_s,
        "tasks": list(tasks),
    }


def benchmark_task(
    benchmark: Benchmark, suite: Suite, endpoint: Endpoint, *, folder: str, data: CachedDataset | None
) -> Json:
    """Return one task of a request."""
    return {
        "benchmark": benchmark.name,
        "repeats": benchmark.repeats,
        **part_to_json(suite.part),
        "task": task_config(benchmark, suite, endpoint, folder=folder, data=data),
    }


def part_to_json(part: ScreenPart | None) -> dict[str, object]:
    """Return a suite's part as an entry of a task; {} if everything is evaluated."""
    if part is None:
        return {}
    return {"part": {"samples": part.screen.samples, "share": part.screen.share, "is_rest": part.is_rest}}


def rows_of_part(rows: Sequence[Json], part: Mapping[str, object] | None) -> Sequence[Json]:
    """Return the planned rows in a part from `part_to_json`; the repeats of a question stay together."""
    if part is None:
        return rows
    planned = [planned_sample(row) for row in rows]
    screen = Screen(samples=int(str(part["samples"])), share=float(str(part["share"])))
    chosen = screen_of((Question(key=p.key, subset=p.subset, cluster=p.cluster) for p in planned), screen)
    return [row for row, p in zip(rows, planned, strict=True) if (p.key in chosen) is not part["is_rest"]]


def task_config(
    benchmark: Benchmark, suite: Suite, endpoint: Endpoint, *, folder: str, data: CachedDataset | None
) -> Json:
    """Return the keyword arguments of `TaskConfig`, except the model."""
    name = evalscope_name(benchmark)
    return {
        "datasets": [name],
        "dataset_hub": str(suite.dataset_hub),
        "dataset_args": {name: _dataset_args(benchmark, data)},
        "generation_config": {
            **sampling(benchmark, suite, endpoint),
            "timeout": suite.request_timeout_s,
            "retries": 1,
            "stream": False,
        },
        "model_id": MODEL_ID,
        "eval_type": "openai_api",
        "eval_batch_size": suite.concurrency,
        "limit": benchmark.limit,
        "repeats": benchmark.repeats,
        "seed": SHUFFLE_SEED,
        "work_dir": folder,
        "no_timestamp": True,
        "ignore_errors": True,
        "collect_perf": False,
    }


def _dataset_args(benchmark: Benchmark, data: CachedDataset | None) -> Json:
    args: Json = {}
    subsets: Sequence[str] = benchmark.subsets
    if data is not None:
        args["local_path"] = str(data.folder)
        subsets = subsets or data.subsets
    if subsets:
        args["subset_list"] = list(subsets)
    if benchmark.few_shot is not None:
        args["few_shot_num"] = benchmark.few_shot
    if benchmark.prompt_template is not None:
        args["prompt_template"] = benchmark.prompt_template
    return args
