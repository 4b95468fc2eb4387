"""Random hostile endpoints against the evaluator's client, the list of models and the probe's streams.

    python -m benchmarks.hostile.endpoints --seed 1 --count 50

The client is a process of its own, with the real code of each path: EvalScope's model with our client, circuit breaker
and checks; the engine for remote endpoints; the probe's requests. It has a memory limit, and its peak is measured.
"""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.hostile.endpoint_contents import COMPLETION, MODEL, MODELS, STREAM
from benchmarks.hostile.endpoint_server import Behaviour, Server, behaviours

PROJECT = Path(__file__).parent.parent.parent
AT_ONCE = 8
TIMEOUT_S = 2.0
STALL_S = 15.0
"""Three tries of `TIMEOUT_S` each, on a machine with other work, take less."""
CLIENT_BYTES = 4 << 30
ANSWERED, FAILED, TRACEBACK = "answered", "failed", "traceback"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What happened. All but `count` and `peak_bytes` should be 0."""

    count: int
    wrong_scores: int
    stalls: int
    tracebacks: int
    led_astray: int
    peak_bytes: int
    first_bytes: int
    """Memory of the client before the first request: its imports."""
    examples: tuple[str, ...]


def measure(seed: int, count: int) -> Measured:
    """Let the clients of the tracker ask `count` random endpoints."""
    chosen = behaviours(seed, count)
    with Server(chosen) as server:
        command = [sys.executable, "-m", "benchmarks.hostile.endpoints", "--client", str(server.port)]
        command += ["--seed", str(seed), "--count", str(count)]
        environment = os.environ | {"PYTHONPATH": str(PROJECT)}
        run = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
            env=environment,
            timeout=60 + 2 * count,
        )
        led_astray = server.led_astray
    rows = [json.loads(line) for line in run.stdout.decode().splitlines() if line.startswith("{")]
    found = {row["number"]: row for row in rows if "number" in row}
    end = next((row for row in rows if "peak_bytes" in row), {"peak_bytes": CLIENT_BYTES, "first_bytes": 0})
    problems = list(_problems(chosen, found))
    counts = Counter(kind for kind, _ in problems)
    return Measured(
        count=count,
        wrong_scores=counts["wrong"],
        stalls=counts["stall"],
        tracebacks=counts[TRACEBACK],
        led_astray=led_astray,
        peak_bytes=end["peak_bytes"],
        first_bytes=end["first_bytes"],
        examples=tuple(text for _, text in problems),
    )


def _problems(chosen: Sequence[Behaviour], found: dict[int, dict[str, Any]]) -> Iterator[tuple[str, str]]:
    lost = {"outcome": TRACEBACK, "seconds": 0.0, "detail": "the client died"}
    for number, behaviour in enumerate(chosen):
        row = found.get(number, lost)
        shown = f"{behaviour}: {row['outcome']} after {row['seconds']:.1f} s, {row['detail'][:200]}"
        if row["seconds"] > STALL_S:
            yield "stall", shown
        if row["outcome"] == TRACEBACK:
            yield TRACEBACK, shown
        elif (row["outcome"] == ANSWERED) != behaviour.is_sound and not (behaviour.is_sound and behaviour.may_fail):
            yield "wrong", shown


# --- the client's process


def _client(port: int, chosen: Sequence[Behaviour]) -> None:
    """Ask every endpoint, and write an outcome for each on stdout."""
    resource.setrlimit(resource.RLIMIT_AS, (CLIENT_BYTES, CLIENT_BYTES))
    asks = {COMPLETION: _ask_completion, MODELS: _ask_models, STREAM: _ask_stream}
    _prepare()
    first_bytes = _peak_bytes()

    def ask(number: int) -> dict[str, Any]:
        behaviour, started_s = chosen[number], time.monotonic()
        try:
            outcome, detail = asks[behaviour.route](f"http://127.0.0.1:{port}/{number}/v1")
        except Exception as error:  # noqa: BLE001 - it is what is counted
            outcome, detail = TRACEBACK, repr(error)
        return {"number": number, "outcome": outcome, "detail": detail, "seconds": time.monotonic() - started_s}

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for row in pool.map(ask, range(len(chosen))):
            print(json.dumps(row), flush=True)
    print(json.dumps({"peak_bytes": _peak_bytes(), "first_bytes": first_bytes}), flush=True)
    os._exit(0)  # a thread that stalls must not keep the process


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _prepare() -> None:
    from eval_jobs.evaluate.asking import http_client
    from eval_jobs.evaluate.evalscope.child import model_api  # noqa: F401 - imported before the memory is measured
    from eval_jobs.probe.client import ask  # noqa: F401
    from eval_jobs.serve import remote

    http_client.ALIVE_TIMEOUT_S = TIMEOUT_S
    remote.LOOK_TIMEOUT_S = TIMEOUT_S


def _ask_completion(base_url: str) -> tuple[str, str]:
    from evalscope.api.messages import ChatMessageUser
    from evalscope.api.model import GenerateConfig

    from eval_jobs.errors import TrackerError
    from eval_jobs.evaluate.asking.circuit_breaker import NoAnswer
    from eval_jobs.evaluate.evalscope.child.model_api import StrictAPI

    generation = {"max_tokens": 16, "timeout": TIMEOUT_S, "retries": 1, "stream": False, "seed": 0}
    settings: dict[str, Any] = {
        "api_key_env": "",
        "concurrency": 1,
        "timeout_s": TIMEOUT_S,
        "model": MODEL,
        "base_url": base_url,
        "own_engine": False,
        "retry_policy": {"broken_s": [0.01], "busy_s": [0.01], "lost_s": []},
        "tasks": [{"task": {"generation_config": generation}}],
    }
    api = StrictAPI(settings)
    try:
        output = api.generate([ChatMessageUser(content="6*7=")], [], "none", GenerateConfig(**generation))
    except (NoAnswer, TrackerError) as error:
        return FAILED, str(error)
    finally:
        api.client.close()
    kept = json.dumps(output.model_dump(mode="json"), ensure_ascii=False).encode()  # as it is written to a file
    if output.completion.rstrip("\ufffd") != "42" or b"\0" in kept:
        return TRACEBACK, f"another answer: {output.completion[:100]!r}"
    return ANSWERED, ""


def _ask_models(base_url: str) -> tuple[str, str]:
    from eval_jobs.errors import TrackerError
    from eval_jobs.serve.remote import served_model
    from eval_jobs.types import EngineKind, ServeSpec
    from tests.tiny_model import checkpoint_record

    spec = ServeSpec(engine=EngineKind.REMOTE, base_url=base_url, model=MODEL)
    try:
        served_model(checkpoint_record(Path("/pins/r/1"), step=1, run_id="r"), spec, is_look=True)
    except TrackerError as error:
        return FAILED, str(error)
    return ANSWERED, ""


def _ask_stream(base_url: str) -> tuple[str, str]:
    from eval_jobs.probe.client.ask import Asker, Dialect, open_session

    async def ask() -> tuple[str, str]:
        async with open_session(base_url, api_key="k", request_timeout_s=TIMEOUT_S) as session:
            asker = Asker(session=session, base_url=base_url, model=MODEL, dialect=Dialect())
            timeline = await asker.ask("6*7=", 2)
        timeline.error.encode()
        return (FAILED, timeline.error) if timeline.error or not timeline.completed else (ANSWERED, "")

    return asyncio.run(ask())


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--client", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        _client(options.client, behaviours(options.seed, options.count))
        return
    found = measure(options.seed, options.count)
    for example in found.examples:
        print(example)
    print("seed | behaviours | wrong scores | stalls | tracebacks | led astray | peak MB | of it imports MB")
    peaks = f"{found.peak_bytes >> 20} | {found.first_bytes >> 20}"
    print(
        f"{options.seed} | {found.count} | {found.wrong_scores} | {found.stalls} | {found.tracebacks} | "
        f"{found.led_astray} | {peaks}"
    )


if __name__ == "__main__":
    main()
