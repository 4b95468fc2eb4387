"""Who does not know the key reaches nothing that changes what is served."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_jobs.serve.process.control import KEY_HEADER, KEY_VARIABLE
from eval_jobs.serve.worker_extension.tracker_worker.gate import Gate, Message, Receive, Send, is_open

OPEN = (
    *("/health", "/version", "/metrics", "/metrics/", "/v1/models", "/v1/completions", "/v1/chat/completions"),
    *("/tokenize", "/detokenize", "/ping", "/load"),
)
CLOSED = (
    *("/collective_rpc", "/pause", "/resume", "/reset_prefix_cache", "/update_weight_version", "/weight_checker"),
    *("/sleep", "/wake_up", "/server_info", "/weight_info", "/update_weights", "/invocations", "/", "", "/v1", "//v1/"),
    *("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/load_lora_adapter/", "/V1/models", "/new_route"),
)


def asked(path: str, *, key: str = "", kind: str = "http", root: str = "", own: str = "right") -> list[Message]:
    """Return what comes out of the gate; the application behind it says `passed`."""
    sent: list[Message] = []

    async def application(_: Message, __: Receive, send: Send) -> None:
        await send({"type": "passed"})

    async def receive() -> Message:
        return {}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(KEY_HEADER.lower().encode(), key.encode())] if key else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY_VARIABLE, own)
        gate = Gate(application)
    asyncio.run(gate({"type": kind, "path": path, "root_path": root, "headers": headers}, receive, send))
    return sent


@pytest.mark.parametrize("path", OPEN)
def test_what_answers_prompts_or_only_tells_is_open(path: str) -> None:
    assert asked(path) == [{"type": "passed"}]


@pytest.mark.parametrize("path", CLOSED)
def test_everything_else_needs_the_key(path: str) -> None:
    assert asked(path)[0]["status"] == asked(path, key="wrong")[0]["status"] == 403
    assert asked(path, key="right") == [{"type": "passed"}]


def test_an_engine_without_a_key_is_closed_to_everybody() -> None:
    assert asked("/pause", own="")[0]["status"] == 403
    assert asked("/pause", own="", key="x")[0]["status"] == 403


def test_a_prefix_of_all_routes_opens_none() -> None:
    assert asked("/v1/pause", root="/v1")[0]["status"] == 403
    assert asked("/proxy/pause", root="/proxy")[0]["status"] == 403
    assert asked("/proxy/v1/models", root="/proxy") == [{"type": "passed"}]


def test_other_protocols_are_closed_too() -> None:
    assert asked("/pause", kind="websocket") == [{"type": "websocket.close", "code": 1008}]
    assert asked("", kind="lifespan") == [{"type": "passed"}]


@given(st.text(max_size=30))
def test_only_what_is_listed_or_below_v1_is_open(path: str) -> None:
    assert not is_open(path) or path.startswith("/v1/") or path.rstrip("/") in OPEN
