"""How many streamed tokens a second the probe's client can follow on one core.

    python -m benchmarks.client_speed [--tokens 500] [--requests 64] [--concurrency 8]

The server is a stand-in in a process of its own that sends one event a token, each in a packet of its own, at full
speed. The last line ends with `tokens_per_core_s=...`: tokens over the processor time of the client.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys

import psutil

from eval_jobs.probe.prober import LatencyProber
from eval_jobs.types import Endpoint, EngineInfo, ProbeLoad

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=500)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve())
        return
    load = ProbeLoad(
        requests=arguments.requests, concurrency=arguments.concurrency, input_tokens=16, output_tokens=arguments.tokens
    )
    command = [sys.executable, "-m", "benchmarks.client_speed", "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        if server.stdout is None:
            raise TypeError("the stand-in tells its port through a pipe")
        try:
            measure(int(server.stdout.readline()), load)
        finally:
            server.kill()


def measure(port: int, load: ProbeLoad) -> None:
    """Put the load on the stand-in and print what the client used for it."""
    info = EngineInfo(name="stand-in", version="", load_method="remote", load_s=0.0, log="")
    endpoint = Endpoint(base_url=f"http://127.0.0.1:{port}/v1", model="stand-in", api_key_env="", info=info)
    prober = LatencyProber()
    prober.probe(
        endpoint, ProbeLoad(requests=1, output_tokens=2, warmup_requests=0)
    )  # the client is there from here on
    client = psutil.Process(prober.client.pid if prober.client else None)
    before = client.cpu_times()
    result = prober.probe(endpoint, load)
    after = client.cpu_times()
    prober.close()
    if result.failed:
        sys.exit(f"{result.failed} requests failed: {result.first_error}")
    used_s = after.user + after.system - before.user - before.system
    tokens = result.output_tokens + load.warmup_requests * load.output_tokens
    print(f"{tokens} tokens in {result.duration_s:.2f} s, of which the client worked {used_s:.2f} s")
    print(f"tokens_per_s={result.output_tokens_per_s:.0f} tokens_per_core_s={tokens / used_s:.0f}")


async def serve() -> None:
    """Answer every request with as many tokens as it asks for, and tell the port on stdout."""
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# --- private


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            body = json.loads(await reader.readexactly(int(lengths[0].split(b":")[1])))
            if "max_tokens" in body:
                await _stream(writer, int(body["max_tokens"]))
            else:
                writer.write(NOT_FOUND)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _stream(writer: asyncio.StreamWriter, tokens: int) -> None:
    writer.write(HEAD)
    for _ in range(tokens):
        writer.write(_chunk(_event([{"index": 0, "text": " tok", "logprobs": None, "finish_reason": None}])))
        await asyncio.sleep(0)  # the others' turn: no two events of one stream in one packet
    writer.write(_chunk(_event([{"index": 0, "text": "", "logprobs": None, "finish_reason": "length"}])))
    usage = {"prompt_tokens": 16, "total_tokens": 16 + tokens, "completion_tokens": tokens}
    writer.write(_chunk(_event([], usage=usage)) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
    await writer.drain()


def _event(choices: list[dict[str, object]], usage: dict[str, int] | None = None) -> bytes:
    body = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "stand-in", "choices": choices}
    return b"data: " + json.dumps(body | {"usage": usage}).encode() + b"\n\n"


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


if __name__ == "__main__":
    main()
