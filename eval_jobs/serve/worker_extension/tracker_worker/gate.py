"""Requires our key for the routes of vLLM that change what is served. Standard library only.

VLLM_SERVER_DEV_MODE opens these routes to every user of the machine: one of them runs any method of the workers. Routes
that answer prompts stay open, as without this mode.
"""

import hmac
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

KEY_VARIABLE = "TRACKER_ENGINE_KEY"
KEY_HEADER = b"x-tracker-engine-key"

OPEN = frozenset({"/health", "/ping", "/version", "/metrics", "/load", "/tokenize", "/detokenize"})
OPEN_BELOW = "/v1/"
CHANGES = frozenset({"/v1/load_lora_adapter", "/v1/unload_lora_adapter"})
"""Routes below `OPEN_BELOW` that require the key."""


class Gate:
    """Middleware of the API server (`--middleware`)."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._key = os.environ.get(KEY_VARIABLE, "").encode()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass the request on, or reject it: HTTP 403, for a WebSocket close code 1008."""
        if scope["type"] == "lifespan" or is_open(_path(scope)) or self._is_ours(scope):
            await self._app(scope, receive, send)
            return
        kind = "websocket.close" if scope["type"] == "websocket" else "http.response.start"
        if kind == "websocket.close":
            await send({"type": kind, "code": 1008})
            return
        await send({"type": kind, "status": 403, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": b"this route is for the process that started the engine"})

    def _is_ours(self, scope: Message) -> bool:
        given = dict(scope["headers"]).get(KEY_HEADER, b"")
        return bool(self._key) and hmac.compare_digest(given, self._key)


def is_open(path: str) -> bool:
    """Return whether a route cannot change what is served, so that it needs no key."""
    path = path.rstrip("/")
    return path in OPEN or (path.startswith(OPEN_BELOW) and path not in CHANGES)


# --- private


def _path(scope: Message) -> str:
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))
