"""Result files as other programs write them, small and of our own making."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eval_jobs.harness.fields import Fields
from tracker.domain.imports.types import Given

AT = datetime(2026, 3, 1, tzinfo=UTC)
TIME = "2026-03-01T10-00-00.000001"

Json = dict[str, Any]


def given(*names: str, step: int | None = None, metrics: Sequence[str] = ()) -> Given:
    """What is known of a file beside its content."""
    return Given(source="evals/f.json", names=names, modified_at=AT, step=step, metrics=tuple(metrics))


def fields(document: Mapping[str, object]) -> Fields:
    return Fields(source="evals/f.json", values=document)


def lm_eval(scores: Mapping[str, float | None], *, n: int = 100, step: int = 1000, **more: Any) -> Json:
    """A results file of today's lm-evaluation-harness: the accuracy of each task."""
    return {
        "results": {
            task: {"alias": task, "acc,none": score, "acc_stderr,none": 0.01, "acc_norm,none": 0.5, "sample_len": n}
            for task, score in scores.items()
        },
        "group_subtasks": {task: [] for task in scores},
        "configs": {task: {"task": task, "num_fewshot": 0, "doc_to_text": "{{question}}"} for task in scores},
        "versions": dict.fromkeys(scores, 1.0),
        "n-shot": dict.fromkeys(scores, 0),
        "higher_is_better": {task: {"acc": True, "acc_norm": True} for task in scores},
        "n-samples": {task: {"original": 2 * n, "effective": n} for task in scores},
        "config": {"model": "hf", "model_args": f"pretrained=org/model,revision=step{step},dtype=float32", "limit": n},
        "date": 1772359200.0 + step,
        "lm_eval_version": "0.4.13",
    } | more


def lm_eval_rows(scores: Sequence[float | None], **more: Any) -> list[Json]:
    """Rows of a samples file: two choices each; None has no value."""
    return [
        {
            "doc_id": i,
            "doc": {"question": f"question {i}"},
            "target": "1",
            "arguments": {
                "gen_args_0": {"arg_0": f"question {i}\nAnswer:", "arg_1": " no"},
                "gen_args_1": {"arg_0": f"question {i}\nAnswer:", "arg_1": " yes"},
            },
            "resps": [[["-2.0", "False"]], [["-1.0", "False"]]],
            "filtered_resps": [["-2.0", "False"], ["-1.0", "False"]],
            "filter": "none",
            "metrics": ["acc"],
            "acc": score,
        }
        | more
        for i, score in enumerate(scores)
    ]


def write_lm_eval(folder: Path, step: int, scores: Mapping[str, Sequence[float | None]], *, samples: bool) -> Path:
    """Write a results file, and the samples beside it; return the results file."""
    place = folder / f"step{step}"
    place.mkdir(parents=True, exist_ok=True)
    known = {task: [s for s in of_task if s is not None] for task, of_task in scores.items()}
    means = {task: sum(of_task) / len(of_task) for task, of_task in known.items()}
    n = max(len(of_task) for of_task in scores.values())
    results = place / f"results_{TIME}.json"
    results.write_text(json.dumps(lm_eval(means, n=n, step=step)), encoding="utf-8")
    for task, of_task in scores.items() if samples else ():
        lines = "".join(json.dumps(row) + "\n" for row in lm_eval_rows(of_task))
        (place / f"samples_{task}_{TIME}.jsonl").write_text(lines, encoding="utf-8")
    return results


def bench(**more: Any) -> Json:
    """What `vllm bench serve --save-result --save-detailed` writes for four requests, one of them failed."""
    return {
        "date": "20260301-100000",
        "backend": "vllm",
        "model_id": "runs/checkpoint-1000",
        "num_prompts": 4,
        "request_rate": "inf",
        "max_concurrency": 2,
        "duration": 2.0,
        "completed": 3,
        "total_input_tokens": 30,
        "total_output_tokens": 9,
        "request_throughput": 1.5,
        "output_throughput": 4.5,
        "input_lens": [10, 10, 10, 10],
        "output_lens": [3, 3, 0, 3],
        "ttfts": [0.1, 0.2, 0.0, 0.3],
        "itls": [[0.01, 0.03], [0.02, 0.02], [], [0.04, 0.04]],
        "errors": ["", "", "the server closed the connection", ""],
        "mean_ttft_ms": 200.0,
        "median_ttft_ms": 200.0,
        "p99_ttft_ms": 298.0,
    } | more
