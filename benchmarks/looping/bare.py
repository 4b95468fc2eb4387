"""The floor: the same requests from a client that does nothing else, in a process of its own.

    python -m benchmarks.looping.bare < REQUEST_JSON     # prints {"scoring_s": ..., "probe_s": ...}

Scoring requests go to /v1/chat/completions as EvalScope sends them, those of the probe stream from /v1/completions.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import aiohttp

from benchmarks.looping.material import BENCHMARKS, Workload, questions
from eval_jobs.host.cpu_placement import CLIENT_NICENESS, CpuAffinity, run_first, set_niceness, usable_cores
from eval_jobs.probe.client.ask import Asker, Dialect
from eval_jobs.probe.client.prompts import word_prompt
from eval_jobs.types import ProbeLoad


@dataclass(frozen=True, kw_only=True)
class Floor:
    """Seconds that pure generation takes."""

    scoring_s: float
    probe_s: float

    @property
    def total_s(self) -> float:
        """Seconds of both, one after the other."""
        return self.scoring_s + self.probe_s


async def measure(base_url: str, model: str, workload: Workload) -> Floor:
    """Send everything twice, so that nothing is slow because it is the first time, and time the second."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        scoring_s = [await _score(session, f"{base_url}/chat/completions", model, workload) for _ in range(2)]
        run_first()  # as the probe's client does
        dialects = [Dialect(cache_salt=str(time.time_ns())) for _ in range(2)]
        askers = [Asker(session=session, base_url=base_url, model=model, dialect=dialect) for dialect in dialects]
        probe_s = [await _probe(asker, workload) for asker in askers]
        return Floor(scoring_s=scoring_s[1], probe_s=probe_s[1])


def measure_apart(base_url: str, model: str, cores: Sequence[int], workload: Workload) -> Floor:
    """Do the same in a process of its own, where the evaluator would run and no more urgent than it."""
    request = json.dumps({"base_url": base_url, "model": model, "workload": asdict(workload), "cores": cores})
    command = [sys.executable, "-m", "benchmarks.looping.bare"]
    done = subprocess.run(command, input=request, capture_output=True, text=True, check=False, start_new_session=True)
    if done.returncode:
        sys.exit(f"the bare client failed: {done.stderr}")
    return Floor(**json.loads(done.stdout))


# --- private


async def _score(session: aiohttp.ClientSession, url: str, model: str, workload: Workload) -> float:
    async def ask(question: str) -> None:
        body = {
            "model": model,
            "messages": [{"role": "user", "content": question}],
            "max_tokens": workload.max_tokens,
            "temperature": 0.0,
            "top_p": 1.0,
            "seed": 0,
        }
        async with session.post(url, json=body) as response:
            if response.status != 200:
                sys.exit(await response.text())
            await response.read()

    rows = [row["query"] for name in BENCHMARKS for row in questions(name)]
    return await _timed(ask, rows, workload.concurrency)


async def _probe(asker: Asker, workload: Workload) -> float:
    load = workload.load
    # One token a character for the tiny model: cut to the length that the probe sends.
    prompts = [
        word_prompt(load.input_tokens, seed=str(load.seed), index=i)[: load.input_tokens - 1]
        for i in range(load.warmup_requests + load.requests)
    ]

    async def ask(prompt: str) -> None:
        await asker.try_ask(prompt, load.output_tokens)

    warm_s = await _timed(ask, prompts[: load.warmup_requests], load.concurrency)
    return warm_s + await _timed(ask, prompts[load.warmup_requests :], load.concurrency)


async def _timed(ask: Callable[[str], Awaitable[None]], texts: list[str], concurrency: int) -> float:
    waiting: Iterator[str] = iter(texts)

    async def worker() -> None:
        for text in waiting:
            await ask(text)

    begun_s = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return time.perf_counter() - begun_s


def main() -> None:
    """Answer the request on stdin."""
    request = json.load(sys.stdin)
    if len(request["cores"]) < len(usable_cores()):
        CpuAffinity().set(request["cores"])
        set_niceness(os.getpid(), CLIENT_NICENESS)
    workload = request["workload"]
    workload = Workload(**{**workload, "load": ProbeLoad(**workload["load"])})
    print(json.dumps(asdict(asyncio.run(measure(request["base_url"], request["model"], workload)))))


if __name__ == "__main__":
    main()
