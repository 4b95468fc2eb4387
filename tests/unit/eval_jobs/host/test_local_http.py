"""Requests to a server on this machine, which may be any."""

import http.client
from itertools import chain, repeat

import pytest

from eval_jobs import limits
from eval_jobs.host.local_http import parsed_json, request
from tests.fakes.raw_server import RawServer, whole

OK = b"HTTP/1.1 200 OK\r\n"


def test_a_response_is_read_as_it_is() -> None:
    with RawServer(lambda: whole(b"{}")) as server:
        assert request("POST", ("127.0.0.1", server.port), "/", timeout_s=20.0, body=b"1") == (200, b"{}")


@pytest.mark.parametrize(
    "start", [OK + b"Content-Length: 9999\r\n\r\n", OK + b"A: ", b"HTTP/1.1 2", OK + b"\r\n"], ids=str
)
def test_a_byte_now_and_then_ends_at_the_deadline_of_the_whole_response(start: bytes) -> None:
    with (
        RawServer(lambda: chain([start], repeat(b"0")), pause_s=0.05) as server,
        pytest.raises(TimeoutError),
    ):
        request("GET", ("127.0.0.1", server.port), "/v1/models", timeout_s=0.2)


def test_a_response_without_an_end_is_refused_at_its_limit() -> None:
    with (
        RawServer(lambda: chain([OK + b"\r\n"], repeat(b" " * 100_000))) as server,
        pytest.raises(http.client.HTTPException, match="larger than 4 MiB"),
    ):
        request("GET", ("127.0.0.1", server.port), "/v1/models", timeout_s=20.0)


def test_a_response_that_ends_early_is_incomplete() -> None:
    with (
        RawServer(lambda: [OK + b"Content-Length: 10\r\n\r\n12345"]) as server,
        pytest.raises(http.client.IncompleteRead),
    ):
        request("GET", ("127.0.0.1", server.port), "/v1/models", timeout_s=20.0)


def test_what_is_no_json_or_too_much_of_it_is_none() -> None:
    assert parsed_json(b'{"a": 1}') == {"a": 1}
    for body in (b"", b"<p>", b"[" * 100_000, b"9" * 1000, b"[" + b"1," * limits.VALUES.most + b"1]"):
        assert parsed_json(body) is None
