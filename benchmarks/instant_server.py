"""A chat server that answers everything after a fixed time and does nothing else: what is slow beside it is the client.

    with instant_server(delay_s=0.05) as base_url: ...

Runs in a process of its own. GET /peak tells how many requests were in flight at most.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MODEL = "instant"
ANSWER = "Four or five, I think"


@contextmanager
def instant_server(*, delay_s: float) -> Iterator[str]:
    """Run the server while the context is open; yield its base URL."""
    command = [sys.executable, "-m", "benchmarks.instant_server", str(delay_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None  # noqa: S101 - it was started with a pipe
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.kill()


class _Connection(asyncio.Protocol):
    in_flight = 0
    peak = 0

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a TCP server has no other
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = self._received[:end].lower()
            _, found, rest = head.partition(b"content-length:")
            length = int(rest.split(b"\r\n", 1)[0]) if found else 0
            if len(self._received) < end + 4 + length:
                return
            body, self._received = self._received[end + 4 : end + 4 + length], self._received[end + 4 + length :]
            if head.startswith(b"get"):
                self._send({"object": "list", "data": [{"id": MODEL, "object": "model"}], "peak": _Connection.peak})
                continue
            _Connection.in_flight += 1
            _Connection.peak = max(_Connection.peak, _Connection.in_flight)
            asyncio.get_running_loop().call_later(self._delay_s, self._answer, body)

    def _answer(self, body: bytes) -> None:
        _Connection.in_flight -= 1
        message = {"role": "assistant", "content": ANSWER}
        choice = {"index": 0, "finish_reason": "stop", "logprobs": None, "message": message}
        usage = {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}
        answer = {"id": "x", "object": "chat.completion", "created": 0, "choices": [choice], "usage": usage}
        self._send(answer | {"model": json.loads(body)["model"]})

    def _send(self, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        self._transport.write(head.encode() + data)


async def _serve(delay_s: float) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(delay_s), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1])))
