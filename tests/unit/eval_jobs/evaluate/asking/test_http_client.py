"""What an endpoint that anybody may run can send to the evaluator's client."""

import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable, Iterable
from functools import partial
from itertools import repeat

import httpx
import pytest

from eval_jobs import limits
from eval_jobs.evaluate.asking.http_client import ModelClient
from eval_jobs.evaluate.asking.limiter import ConcurrencyLimiter
from tests.fakes.hostile_server import GZIP_BLOCK, GZIP_HEAD
from tests.fakes.raw_server import RawServer, whole

Parts = Callable[[], Iterable[bytes]]

KEY = "EMPTY"
MOST_MEMORY = 16 << 20
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
ANSWER: dict[str, object] = {
    "choices": [{"index": 0, "message": {"content": "42"}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


def post(server: RawServer, *, timeout_s: float = 20.0) -> httpx.Response:
    with ModelClient(timeout_s, ConcurrencyLimiter(1), secret=KEY, max_tokens=16) as client:
        return client.post(f"{server.base_url}/chat/completions", json={"max_tokens": 16})


def told(value: object, *headers: str, pack: Callable[[bytes], bytes] = bytes) -> Parts:
    return lambda: whole(pack(json.dumps(value).encode()), *headers)


def endless(start: bytes, part: bytes) -> Parts:
    def parts() -> Iterable[bytes]:
        yield start
        yield from repeat(part)

    return parts


TOO_LARGE: dict[str, tuple[Parts, str]] = {
    "gzip of 100 MB of blanks": (
        lambda: whole(GZIP_HEAD + GZIP_BLOCK * 100, "Content-Encoding: gzip"),
        "response exceeds",
    ),
    "20 MB": (lambda: [OK + b"Content-Length: 20000000\r\n\r\n", *repeat(b" " * 20_000, 1000)], "response exceeds"),
    "a body without an end": (endless(OK + b"\r\n", b" " * 10_000), "response exceeds"),
    "chunks without an end": (endless(CHUNKED, b"400\r\n" + b" " * 1024 + b"\r\n"), "response exceeds"),
    "headers without an end": (endless(OK, b"A: b\r\n" * 1000), "too long"),
    "a status without an end": (endless(b"HTTP/1.1 200 ", b"O" * 10_000), "too long"),
    "gzip that is none": (lambda: whole(b"{}", "Content-Encoding: gzip"), "incorrect header"),
    "half of a gzip": (lambda: whole(gzip.compress(b"{}")[:-9], "Content-Encoding: gzip"), "ends within"),
}
SLOW: dict[str, tuple[bytes, bytes]] = {
    "body": (OK + b"Content-Length: 1000\r\n\r\n", b" "),
    "chunks": (CHUNKED, b"1\r\n \r\n"),
    "headers": (OK, b"A: b\r\n"),
    "status": (b"HTTP/1.1 200 ", b"O"),
    "informational responses": (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
}


@pytest.mark.parametrize("case", TOO_LARGE)
def test_a_response_is_refused_before_it_fills_the_memory(case: str) -> None:
    parts, reason = TOO_LARGE[case]
    tracemalloc.start()
    try:
        with RawServer(parts) as server, pytest.raises(httpx.HTTPError, match=reason):
            post(server)
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("case", SLOW)
def test_a_response_that_never_stops_ends_at_the_deadline_of_the_whole(case: str) -> None:
    with (
        RawServer(endless(*SLOW[case]), pause_s=0.05) as server,
        pytest.raises(httpx.ReadTimeout),
    ):
        post(server, timeout_s=0.2)


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_a_compressed_answer_of_a_usual_size_is_an_answer(encoding: str, pack: Callable[[bytes], bytes]) -> None:
    with RawServer(told(ANSWER, f"Content-Encoding: {encoding}", pack=pack)) as server:
        assert post(server).json() == ANSWER


def test_a_redirect_to_another_host_is_an_error_that_names_both_and_is_not_followed() -> None:
    with RawServer(told(ANSWER)) as other:
        moved = f"HTTP/1.1 307 Moved\r\nLocation: {other.base_url}/chat/completions\r\nContent-Length: 0\r\n\r\n"
        with RawServer(lambda: [moved.encode()]) as server:
            response = post(server)
        assert response.status_code == 307
        message = response.json()["error"]["message"]
        assert f"127.0.0.1:{server.port} redirects to another host, http://127.0.0.1:{other.port}" in message
        assert "set that address instead" in message
        assert other.requests == 0


def test_a_redirect_to_the_same_host_is_followed_a_few_times() -> None:
    moved = b"HTTP/1.1 307 Moved\r\nLocation: /v2\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    replies = iter([[moved], whole(json.dumps(ANSWER).encode())])
    with RawServer(lambda: next(replies)) as server:
        assert post(server).json() == ANSWER
    with RawServer(lambda: [moved]) as server, pytest.raises(httpx.TooManyRedirects):
        post(server)
    assert server.requests == 21


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 10**30, "completion_tokens": 1, "total_tokens": 10**30},
        {"prompt_tokens": -1, "completion_tokens": 1, "total_tokens": 0},
        {"prompt_tokens": "1", "completion_tokens": 1, "total_tokens": 2},
        {"prompt_tokens": 1.5, "completion_tokens": 1, "total_tokens": 2},
        {"prompt_tokens": float("nan"), "completion_tokens": True, "total_tokens": 2},
        {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2, "prompt_tokens_details": [1]},
        {"prompt_tokens": 1},
        [1, 2],
        "none",
    ],
)
def test_impossible_token_counts_are_left_out_and_the_answer_stays(usage: object) -> None:
    with RawServer(told(ANSWER | {"usage": usage})) as server:
        assert post(server).json() == ANSWER | {"usage": None}


def test_a_sound_response_stays_as_it_is_byte_for_byte() -> None:
    body = (
        b'{"choices" : [],"usage": {"prompt_tokens":1, "completion_tokens":1,"total_tokens": 2,"cost": 0.1}, "x": 1e3}'
    )
    with RawServer(lambda: whole(body)) as server:
        assert post(server).content == body


def test_half_surrogates_and_nul_are_replaced_and_whole_pairs_stay() -> None:
    with RawServer(lambda: whole(rb'{"a": ["4\ud83d", "\u0000"], "\udc00": "\ud83d\ude00"}')) as server:
        assert post(server).json() == {"a": ["4\ufffd", "\ufffd"], "\ufffd": "\U0001f600"}
    with RawServer(lambda: whole(b"<p>\0</p>")) as server:
        assert post(server).content == b"<p> </p>"


def test_a_body_of_too_many_or_too_deep_values_is_no_answer() -> None:
    deep = b'{"\\u0000": ' + b"[" * 900 + b"]" * 900 + b"}"
    with ModelClient(20.0, ConcurrencyLimiter(1), secret=KEY, max_tokens=1 << 20) as client:
        for body in (b"[" + b"[]," * (limits.VALUES.most // 2) + b"[]]", deep):
            with RawServer(partial(whole, body)) as server, pytest.raises(ValueError, match="Expecting value"):
                client.post(server.base_url).json()
