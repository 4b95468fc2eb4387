"""Shared by tests that run the real evaluator: its session-wide process, endpoints, data files."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from eval_jobs.errors import TrackerError
from eval_jobs.evaluate.common.protocol import RetryPolicy
from eval_jobs.evaluate.data.files import read_data_digest
from eval_jobs.evaluate.evalscope.evaluator import EvalScopeEvaluator
from eval_jobs.ports import Evaluator, ShowProgress
from eval_jobs.types import Benchmark, Endpoint, EngineInfo, EvalResult, Generation, SampleScore, Suite
from tests.fakes.openai_server import OpenAIServer, Reply, Request

Answer = Callable[[Request], Reply]

AT_ONCE = RetryPolicy(broken_s=(0.01, 0.01), busy_s=(0.01, 0.01, 0.01), lost_s=(0.0, 0.0))
"""As many tries as ever, without waiting for them."""


def endpoint_of(server: OpenAIServer, *, api_key_env: str = "", log: str = "") -> Endpoint:
    """Return the endpoint of a scripted server."""
    info = EngineInfo(name="fake", version="1", load_method="remote", load_s=0.0, log=log)
    return Endpoint(base_url=server.base_url, model=server.model, api_key_env=api_key_env, info=info)


def suite_of(benchmark: Benchmark, *, concurrency: int = 4, request_timeout_s: float = 120.0) -> Suite:
    """Return a suite of one benchmark with short answers."""
    return Suite(
        name="s",
        benchmarks=(benchmark,),
        generation=Generation(max_tokens=16),
        concurrency=concurrency,
        request_timeout_s=request_timeout_s,
    )


def sums(folder: Path, count: int) -> Benchmark:
    """Write `count` sums, `0+1=` to `(count - 1)+1=`, and return their benchmark."""
    path = folder / "sums.jsonl"
    write_jsonl(path, [{"question": f"{n}+1=", "answer": n + 1} for n in range(count)])
    return Benchmark(name="sums", adapter="exact", data=str(path), data_digest=read_data_digest(path))


def right(request: Request) -> Reply:
    """Answer a sum rightly."""
    return Reply(text=str(number_of(request) + 1))


def number_of(request: Request) -> int:
    """Return n of the question `n+1=`."""
    return int(request.prompt.split("+")[0])


def ask(
    evaluator: EvalScopeEvaluator, server: OpenAIServer, benchmark: Benchmark, *, plan_id: str, timeout_s: float = 120.0
) -> EvalResult:
    """Evaluate one benchmark against a scripted server."""
    suite = suite_of(benchmark, request_timeout_s=timeout_s)
    return evaluate_one(evaluator, suite, endpoint_of(server), plan_id=plan_id)


def child_pid(evaluator: EvalScopeEvaluator) -> int | None:
    """Return the process id of the evaluator's child; None while there is none."""
    child = evaluator._child
    return None if child is None else child._process.pid


def evaluate_one(
    evaluator: Evaluator, suite: Suite, endpoint: Endpoint, *, plan_id: str, progress: ShowProgress | None = None
) -> EvalResult:
    """Evaluate a suite of one benchmark, and raise what went wrong."""
    (outcome,) = evaluator.evaluate(suite, endpoint, plan_id=plan_id, progress=progress or quiet)
    if isinstance(outcome, TrackerError):
        raise outcome
    return outcome


def quiet(_: object) -> None:
    """Show no progress."""


def by_number(result: EvalResult) -> dict[int, SampleScore]:
    """Return the samples of `sums` by their first number."""
    return {int(sample.prompt.split("+")[0]): sample for sample in result.samples}


def write_jsonl(path: Path, rows: Sequence[dict[str, object]]) -> None:
    """Write a JSONL file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
