"""Asks our own engine to do something, past any proxy, with the key that its gate wants.

The routes that change what an engine serves are for us only: `worker_extension/tracker_worker/gate.py` closes them to
everybody who does not know the key. The key lives as long as this process and its engines, in their environment.
"""

from __future__ import annotations

import http.client
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from eval_jobs.serve.process.launch import HOST

KEY_VARIABLE = "TRACKER_ENGINE_KEY"
KEY_HEADER = "X-Tracker-Engine-Key"
KEY = secrets.token_hex(16)

_SHOWN_CHARS = 600


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What the engine said."""

    status: int
    """0: it did not answer, and `text` says why."""
    body: object
    """Parsed JSON, None when it was none."""
    text: str
    """The beginning of it, for a person."""

    @property
    def is_ok(self) -> bool:
        """Return whether it did what it was asked."""
        return self.status == 200


def post(port: int, path: str, body: Mapping[str, object] | None = None, *, timeout_s: float) -> Reply:
    """POST `body` as JSON to our engine on `port` of this machine; never raises."""
    return _ask("POST", port, path, json.dumps(body or {}).encode(), timeout_s)


def get(port: int, path: str, *, timeout_s: float) -> Reply:
    """GET `path` from our engine; never raises."""
    return _ask("GET", port, path, None, timeout_s)


# --- private


def _ask(method: str, port: int, path: str, body: bytes | None, timeout_s: float) -> Reply:
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout_s)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json", KEY_HEADER: KEY})
        response = connection.getresponse()
        raw = response.read()
        return Reply(status=response.status, body=_parsed(raw), text=raw.decode(errors="replace")[:_SHOWN_CHARS])
    except (OSError, http.client.HTTPException) as error:
        words = f"no answer within {timeout_s:g} s" if isinstance(error, TimeoutError) else f"no answer ({error!r})"
        return Reply(status=0, body=None, text=words)
    finally:
        connection.close()


def _parsed(raw: bytes) -> object:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None
