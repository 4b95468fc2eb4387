"""What the evaluator adds to the time that the answers themselves take.

    python -m benchmarks.evaluator_overhead [--server vllm] [--rounds 5] [--concurrency 8] [--plans 200]

The same questions, by turns: through the evaluator with its journal, its scores and its files, and by two bare clients
that throw every answer away, at the same concurrency and on the same server. One is asynchronous and sends in bursts,
because answers of one length end together; the other has threads. The faster one is the floor. The server is real vLLM
with a tiny model, or one that answers after a fixed time, beside which no engine hides what the evaluator costs.
With --plans the memory of the evaluator's process over so many checkpoints is measured as well.
Last line: `ratio=...`, evaluation to floor, the median over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.instant_server import MODEL, instant_server
from eval_jobs.errors import TrackerError
from eval_jobs.evaluate.data.files import read_data_digest
from eval_jobs.evaluate.evalscope.evaluator import EvalScopeEvaluator
from eval_jobs.host.clock import SystemClock
from eval_jobs.host.cpu_placement import CpuAffinity
from eval_jobs.serve.resident.vllm import VllmEngine
from eval_jobs.types import Benchmark, Endpoint, EngineInfo, EngineKind, Generation, ServeSpec, Suite
from tests.evaluating import child_pid
from tests.tiny_model import checkpoint_record, write_checkpoint

SAMPLES = 50
ONE_MIB = 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", choices=["instant", "vllm"], default="vllm")
    parser.add_argument("--delay-ms", type=float, default=50.0, help="of an answer of the instant server")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--plans", type=int, default=0, help="checkpoints to measure the memory over")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="evaluator-overhead-") as name:
        folder = Path(name)
        suite = write_suite(folder, concurrency=args.concurrency, max_tokens=args.max_tokens)
        evaluator = EvalScopeEvaluator(folder / "work")
        try:
            with served(args.server, folder, delay_s=args.delay_ms / 1000) as endpoint:
                CpuAffinity().set(endpoint.client_cores)  # where the evaluator runs
                compare(evaluator, suite, endpoint, rounds=args.rounds)
                if args.plans:
                    watch_memory(evaluator, suite, endpoint, plans=args.plans)
        finally:
            evaluator.close()


def write_suite(folder: Path, *, concurrency: int, max_tokens: int) -> Suite:
    """Write three benchmarks: two of short answers and one of choices."""
    sums = [{"question": f"{n}+{n}=", "answer": str(2 * n)} for n in range(SAMPLES)]
    facts = [{"question": f"Which number comes after {n}?", "answer": str(n + 1)} for n in range(SAMPLES)]
    choices = [
        {"question": f"Which is {n}?", "choices": ["sky", "rose", str(n)], "answer": "C"} for n in range(SAMPLES)
    ]
    benchmarks = []
    rows: Sequence[dict[str, Any]]
    for name, adapter, rows in (("sums", "exact", sums), ("facts", "exact", facts), ("choices", "choice", choices)):
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        digest = read_data_digest(path)
        benchmarks.append(Benchmark(name=name, adapter=adapter, data=str(path), data_digest=digest))
    generation = Generation(max_tokens=max_tokens)
    return Suite(name="overhead", benchmarks=tuple(benchmarks), generation=generation, concurrency=concurrency)


@contextmanager
def served(kind: str, folder: Path, *, delay_s: float) -> Iterator[Endpoint]:
    """Serve while the context is open."""
    if kind == "instant":
        info = EngineInfo(name=EngineKind.REMOTE, version="", load_method="remote", load_s=0.0, log="")
        with instant_server(delay_s=delay_s) as base_url:
            yield Endpoint(base_url=base_url, model=MODEL, api_key_env="", info=info)
        return
    engine = VllmEngine(folder / "engine", SystemClock())
    checkpoint = checkpoint_record(write_checkpoint(folder / "checkpoint-1", seed=0))
    try:
        with engine.serving(checkpoint, ServeSpec(max_model_len=512), progress=print) as endpoint:
            yield endpoint
    finally:
        engine.close()


def compare(evaluator: EvalScopeEvaluator, suite: Suite, endpoint: Endpoint, *, rounds: int) -> None:
    """Measure by turns and print the table; the first evaluation, which starts the evaluator, does not count."""
    first_s = evaluate(evaluator, suite, endpoint, plan_id="first")
    requests = requests_of(evaluator.work_dir, suite, endpoint)
    in_bursts(requests, endpoint, suite.concurrency)
    child = psutil.Process(child_pid(evaluator))
    print(f"{len(requests)} requests, {suite.concurrency} at a time; the first evaluation took {first_s:.1f} s")
    print("round   evaluation s   bare, bursts s   bare, threads s   ratio   evaluator CPU s")
    ratios = []
    for number in range(rounds):
        cpu_s = sum(child.cpu_times()[:2])
        evaluation_s = evaluate(evaluator, suite, endpoint, plan_id=f"round {number}")
        cpu_s = sum(child.cpu_times()[:2]) - cpu_s
        bursts_s = in_bursts(requests, endpoint, suite.concurrency)
        threads_s = in_threads(requests, endpoint, suite.concurrency)
        ratios.append(evaluation_s / min(bursts_s, threads_s))
        bare = f"{bursts_s:14.2f}   {threads_s:15.2f}"
        print(f"{number:5d}   {evaluation_s:12.2f}   {bare}   {ratios[-1]:5.2f}   {cpu_s:15.2f}")
    at_rest_s = sum(child.cpu_times()[:2])
    time.sleep(3)
    at_rest_s = sum(child.cpu_times()[:2]) - at_rest_s
    print(f"the evaluator at rest: {at_rest_s / 3:.1%} of a core, {child.memory_info().rss / ONE_MIB:.0f} MiB")
    print(f"ratio={statistics.median(ratios):.2f}")


def evaluate(evaluator: EvalScopeEvaluator, suite: Suite, endpoint: Endpoint, *, plan_id: str) -> float:
    """Evaluate all benchmarks and return the seconds that it took, parsing included."""
    started_s = time.perf_counter()
    outcomes = evaluator.evaluate(suite, endpoint, plan_id=plan_id, progress=lambda _: None)
    took_s = time.perf_counter() - started_s
    for outcome in outcomes:
        if isinstance(outcome, TrackerError):
            raise outcome
        assert len(outcome.samples) == SAMPLES  # noqa: S101 - a benchmark of an evaluation that lost something is worthless
    if plan_id != "first":
        evaluator.forget(plan_id)
    return took_s


def requests_of(work_dir: Path, suite: Suite, endpoint: Endpoint) -> list[dict[str, Any]]:
    """Return the bodies of the requests that the evaluator made in its first evaluation."""
    generation = suite.generation
    settings = {"max_tokens": generation.max_tokens, "temperature": 0.0, "top_p": 1.0, "seed": 0, "stream": False}
    settings |= {"top_k": -1} if endpoint.info.name == EngineKind.VLLM else {}
    bodies = []
    for path in sorted(work_dir.glob("runs/first/*/planned.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            messages = [{"role": role, "content": text} for role, text in json.loads(line)["messages"]]
            bodies.append({"model": endpoint.model, "messages": messages, **settings})
    return bodies


def in_bursts(requests: Sequence[dict[str, Any]], endpoint: Endpoint, concurrency: int) -> float:
    """Ask everything, so many at a time, and return the seconds that it took."""
    return asyncio.run(_asynchronously(requests, endpoint, concurrency))


def in_threads(requests: Sequence[dict[str, Any]], endpoint: Endpoint, concurrency: int) -> float:
    """Do the same with a thread for each request in flight."""
    with httpx.Client(timeout=120) as client, ThreadPoolExecutor(concurrency) as threads:
        started_s = time.perf_counter()
        for reply in threads.map(
            lambda body: client.post(f"{endpoint.base_url}/chat/completions", json=body), requests
        ):
            reply.raise_for_status()
        return time.perf_counter() - started_s


async def _asynchronously(requests: Sequence[dict[str, Any]], endpoint: Endpoint, concurrency: int) -> float:
    free = asyncio.Semaphore(concurrency)

    async def ask(body: dict[str, Any]) -> None:
        async with free:
            (await client.post(f"{endpoint.base_url}/chat/completions", json=body)).raise_for_status()

    async with httpx.AsyncClient(timeout=120, limits=httpx.Limits(max_connections=concurrency)) as client:
        started_s = time.perf_counter()
        await asyncio.gather(*map(ask, requests))
        return time.perf_counter() - started_s


def watch_memory(evaluator: EvalScopeEvaluator, suite: Suite, endpoint: Endpoint, *, plans: int) -> None:
    """Evaluate so many checkpoints and print how much memory the evaluator's process holds."""
    print("plans   RSS MiB   PSS MiB   threads   files")
    for number in range(plans + 1):
        if number % max(1, plans // 8) == 0:
            child = psutil.Process(child_pid(evaluator))
            memory = child.memory_full_info()
            sizes = f"{memory.rss / ONE_MIB:7.1f}   {memory.pss / ONE_MIB:7.1f}"
            print(f"{number:5d}   {sizes}   {child.num_threads():7d}   {child.num_fds():5d}")
        evaluate(evaluator, suite, endpoint, plan_id=f"plan {number}")


if __name__ == "__main__":
    main()
