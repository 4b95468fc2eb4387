"""Records -> the command line of lm-evaluation-harness. Pure.

Everything that can change a score is said, because the harness's defaults differ from ours and change between
versions. Its model is always called `model`, so that a random port or name never enters its files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from eval_jobs.errors import BadData
from eval_jobs.evaluate.common.task_config import sampling
from eval_jobs.types import Benchmark, Endpoint, Suite

LM_EVAL = "lm-eval"
"""Name of this evaluator."""
CHAT = "chat"
METRIC = "metric"
_KNOWN = (CHAT, METRIC)
_NO_CUT = 1_000_000
"""Tokens from which the harness would cut questions from the left, silently; the server refuses what is too long."""

_TEXTS: dict[str, object] = {"tokenizer_backend": "none", "tokenized_requests": False}
_TOKENS: dict[str, object] = {"tokenizer_backend": "huggingface", "tokenized_requests": True, "add_bos_token": True}
"""The harness counts tokens: what it counts must be what is asked, with the model's first token where it has one."""
MAX_TOKENS = "max_tokens"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """How one run of the harness asks."""

    base_url: str
    """Whom."""
    out: str
    """Folder for its files."""
    tokenizer: str = ""
    """Folder of the model's tokenizer, which likelihoods need and answers do not; empty: none."""


def check_settings(benchmark: Benchmark) -> None:
    """Refuse settings that would not be obeyed.

    Raises:
        BadData: one of these is set.
    """
    options = dict(benchmark.program.options) if benchmark.program is not None else {}
    wrong = {
        "prompt_template": benchmark.prompt_template is not None,
        "subsets": bool(benchmark.subsets),
        "repeats": benchmark.repeats != 1,
        **{f"options.{name}": True for name in options if name not in _KNOWN},
        f"options.{CHAT} = {options.get(CHAT)}": options.get(CHAT, "false") not in {"true", "false"},
    }
    if named := [name for name, is_wrong in wrong.items() if is_wrong]:
        raise BadData(
            f"`{benchmark.name}`: `{named[0]}` is not for lm-eval",
            hint=f"say it in the task's own YAML file; options are {' and '.join(_KNOWN)}",
        )


def is_chat(benchmark: Benchmark) -> bool:
    """Return whether questions are asked as messages."""
    return benchmark.program is not None and benchmark.program.option(CHAT) == "true"


def arguments(benchmark: Benchmark, suite: Suite, endpoint: Endpoint, asked: Asked) -> list[str]:
    """Return the arguments of `lm_eval`.

    Args:
        benchmark: `adapter` names the task.
        suite: the sampling parameters.
        endpoint: who is asked in the end.
        asked: how this run asks.
    """
    chat, sent = is_chat(benchmark), sampling(benchmark, suite, endpoint)
    model: dict[str, object] = {
        "model": "model",
        "base_url": f"{asked.base_url}/v1/{'chat/completions' if chat else 'completions'}",
        "num_concurrent": suite.concurrency,
        "max_retries": 1,
        "timeout": int(suite.request_timeout_s * 4 + 60),
        "seed": suite.generation.seed,
        "max_length": _NO_CUT,
        **(_TOKENS | {"tokenizer": asked.tokenizer} if asked.tokenizer else _TEXTS),
    }
    # The length under the harness's own name; the relay has the last word on what is sent.
    generation = {"max_gen_toks" if name == MAX_TOKENS else name: value for name, value in sent.items()}
    return [
        "run",
        *("--model", "local-chat-completions" if chat else "local-completions"),
        *("--model_args", json.dumps(model)),
        *("--tasks", benchmark.adapter),
        *("--gen_kwargs", json.dumps(generation)),
        *("--batch_size", "1", "--seed", "0,1234,1234,1234", "--log_samples", "--output_path", asked.out),
        *(("--apply_chat_template",) if chat else ()),
        *(("--include_path", benchmark.data) if benchmark.data is not None else ()),
        *(("--num_fewshot", str(benchmark.few_shot)) if benchmark.few_shot is not None else ()),
        *(("--limit", str(benchmark.limit)) if benchmark.limit is not None else ()),
    ]
