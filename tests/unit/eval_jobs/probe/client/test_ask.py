"""What an endpoint that anybody may run can send to the probe."""

import asyncio
import json
import tracemalloc
from collections.abc import Callable, Iterable
from itertools import chain, repeat

import pytest

from eval_jobs.probe.client.ask import Asker, Dialect, open_session
from eval_jobs.probe.latency import Timeline
from tests.fakes.hostile_server import GZIP_BLOCK, GZIP_HEAD
from tests.fakes.raw_server import RawServer, whole

MOST_MEMORY = 16 << 20
OK = b"HTTP/1.1 200 OK\r\n\r\n"
LAST = b'data: {"choices": [{"text": "x", "finish_reason": "stop"}]}\n\n'


def ask(server: RawServer, *, timeout_s: float = 20.0) -> Timeline:
    async def asked() -> Timeline:
        async with open_session(server.base_url, api_key="", request_timeout_s=timeout_s) as session:
            asker = Asker(session=session, base_url=server.base_url, model="m", dialect=Dialect())
            return await asker.ask("one", 2)

    return asyncio.run(asked())


def with_usage(usage: object) -> bytes:
    return LAST + b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n"


BAD: dict[str, tuple[Callable[[], Iterable[bytes]], str]] = {
    "a line without an end": (lambda: chain([OK + b"data: "], repeat(b"x" * 10_000)), "response exceeds"),
    "events without an end": (lambda: chain([OK], repeat(LAST * 100)), "response exceeds"),
    "gzip of 100 MB": (
        lambda: whole(GZIP_HEAD + GZIP_BLOCK * 100, "Content-Encoding: gzip"),
        "response exceeds",
    ),
    "an error page without an end": (
        lambda: chain([b"HTTP/1.1 500 No\r\n\r\n"], repeat(b" " * 10_000)),
        "response exceeds",
    ),
    "half surrogates in an error": (lambda: whole(b'data: {"error": "\\ud83d"}\n'), "\ufffd"),
    "a long error": (lambda: whole(b'data: {"error": "%s"}\n' % (b"x" * 60_000)), "…"),
    "choices that are no list": (lambda: whole(b'data: {"choices": 5}\ndata: [DONE]\n'), "before the response"),
    "values without an end": (lambda: whole(b"data: " + b"[" * 60_000 + b"\n"), "nested too deeply"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_stream_is_a_failed_request_with_a_short_reason(case: str) -> None:
    parts, reason = BAD[case]
    tracemalloc.start()
    try:
        with RawServer(parts) as server:
            error = ask(server).error
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()
    assert reason in error
    assert len(error.encode()) < 2000


def test_a_stream_of_a_byte_now_and_then_ends_at_the_deadline() -> None:
    with RawServer(lambda: chain([OK], repeat(b":")), pause_s=0.05) as server:
        assert ask(server, timeout_s=0.2).error == "request timed out"


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"completion_tokens": 2, "prompt_tokens": 1}, 2),
        ({"completion_tokens": 10**30}, None),
        ({"completion_tokens": -1}, None),
        ({"completion_tokens": "2"}, None),
        ({"completion_tokens": float("nan")}, None),
        ([1], None),
        ("none", None),
    ],
)
def test_impossible_token_counts_are_unknown_and_the_times_count(usage: object, tokens: int | None) -> None:
    with RawServer(lambda: whole(with_usage(usage))) as server:
        found = ask(server)
    assert (found.completed, found.output_tokens) == (True, tokens)


def test_a_redirect_to_another_host_is_not_followed_and_both_are_named() -> None:
    with RawServer(lambda: whole(LAST)) as other:
        moved = f"HTTP/1.1 307 Moved\r\nLocation: {other.base_url}\r\nContent-Length: 0\r\n\r\n"
        with RawServer(lambda: [moved.encode()]) as server:
            error = ask(server).error
        assert f"127.0.0.1:{server.port} redirects to another host, http://127.0.0.1:{other.port}" in error
        assert other.requests == 0
