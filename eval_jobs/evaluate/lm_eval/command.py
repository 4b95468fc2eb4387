"""Records -> request to the child of lm-evaluation-harness, with the harness's command line. Pure.

Everything that can change a score is set explicitly, because the harness's defaults differ from ours and change between
versions. Its model is always called `model`, so that a random name never enters the names of its files.
"""

import json
from pathlib import Path

from eval_jobs.errors import BadData
from eval_jobs.evaluate.common.task_config import Json, sampling
from eval_jobs.types import Benchmark, Endpoint, Program, Suite

LM_EVAL = "lm-eval"
"""Name of this evaluator."""
CHAT = "chat"
METRIC = "metric"
OUT = "out"
"""Subfolder of the run's folder for the harness's own files."""
_KNOWN = (CHAT, METRIC)
_NO_CUT = 1_000_000
"""Tokens above which the harness silently truncates prompts on the left; the server rejects those too long."""

TEXT_MODEL = "tracker-completions"
CHAT_MODEL = "tracker-chat"
"""Names under which the child registers its models with the harness."""


def check_settings(benchmark: Benchmark) -> None:
    """Reject settings that lm-eval does not support.

    Raises:
        BadData: an unsupported setting is set.
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
            f"`{benchmark.name}`: lm-eval does not support `{named[0]}`",
            hint=f"set it in the task's YAML file; supported options: {CHAT} (true or false) and {METRIC}",
        )


def is_chat(benchmark: Benchmark) -> bool:
    """Return whether requests are sent as chat messages."""
    return benchmark.program is not None and benchmark.program.option(CHAT) == "true"


def child_task(benchmark: Benchmark, suite: Suite, endpoint: Endpoint, *, folder: Path) -> Json:
    """Return the only task of the child's request; `folder` is that of the run."""
    program = benchmark.program or Program(name=LM_EVAL)
    return {
        "benchmark": benchmark.name,
        "adapter": benchmark.adapter,
        "repeats": 1,
        "task": {"work_dir": str(folder)},
        "command": program.command,
        "arguments": arguments(benchmark, suite, endpoint, out=str(folder / OUT)),
        "sampling": sampling(benchmark, suite, endpoint),
        "tokenizer": endpoint.tokenizer,
        "offline": benchmark.data is not None,
    }


def arguments(benchmark: Benchmark, suite: Suite, endpoint: Endpoint, *, out: str) -> list[str]:
    """Return the arguments of `lm_eval`; it writes its files to the folder `out`."""
    chat = is_chat(benchmark)
    model: dict[str, object] = {
        "model": "model",
        "base_url": endpoint.base_url,
        "seed": suite.generation.seed,
        "max_length": _NO_CUT,
        "tokenizer_backend": "none",
        "tokenized_requests": False,
    }
    # The length has the harness's own name; the child sets the final parameters of each request.
    sent = sampling(benchmark, suite, endpoint)
    generation = {"max_gen_toks" if name == "max_tokens" else name: value for name, value in sent.items()}
    return [
        "run",
        *("--model", CHAT_MODEL if chat else TEXT_MODEL),
        *("--model_args", json.dumps(model)),
        *("--tasks", benchmark.adapter),
        *("--gen_kwargs", json.dumps(generation)),
        *("--batch_size", "1", "--seed", "0,1234,1234,1234", "--log_samples", "--output_path", out),
        *(("--apply_chat_template",) if chat else ()),
        *(("--include_path", benchmark.data) if benchmark.data is not None else ()),
        *(("--num_fewshot", str(benchmark.few_shot)) if benchmark.few_shot is not None else ()),
        *(("--limit", str(benchmark.limit)) if benchmark.limit is not None else ()),
    ]
