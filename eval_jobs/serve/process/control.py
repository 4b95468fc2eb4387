"""Asks our own engine to do something, past any proxy, with the key that its gate wants.

The routes that change what an engine serves are for us only: `worker_extension/tracker_worker/gate.py` closes them to
everybody who does not know the key. The key lives as long as this process and its engines, in their environment.
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from eval_jobs.host.local_http import ERRORS, NO_ANSWER, parsed_json, request
from eval_jobs.serve.process.launch import HOST

KEY_VARIABLE = "TRACKER_ENGINE_KEY"
KEY_HEADER = "X-Tracker-Engine-Key"
KEY = secrets.token_hex(16)

ANSWER_TIMEOUT_S = 20.0
"""An engine beside a trainer that has all the cores is slow to answer, and is not dead."""

_SHOWN_CHARS = 600


@dataclass(frozen=True, kw_only=True)
class EngineReply:
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


def post_to_engine(port: int, path: str, body: Mapping[str, object] | None = None, *, timeout_s: float) -> EngineReply:
    """POST `body` as JSON to our engine on `port` of this machine; never raises."""
    return _ask("POST", port, path, json.dumps(body or {}).encode(), timeout_s)


def get(port: int, path: str, *, timeout_s: float) -> EngineReply:
    """GET `path` from our engine; never raises."""
    return _ask("GET", port, path, None, timeout_s)


def ask(port: int, path: str) -> EngineReply | None:
    """GET `path` from whoever listens on `port` of this machine, without our key; None when nothing answers (yet)."""
    try:
        status, raw = request("GET", (HOST, port), path, timeout_s=ANSWER_TIMEOUT_S)
    except NO_ANSWER:
        return None
    except ERRORS:
        return EngineReply(status=0, body=None, text="response is not HTTP")
    return _reply(status, raw)


def served_model_names(body: object) -> tuple[str, ...]:
    """Return the ids in the JSON of /v1/models; () when it is something else. Pure."""
    entries = body.get("data") if isinstance(body, dict) else None
    if not isinstance(entries, list):
        return ()
    return tuple(str(entry["id"]) for entry in entries if isinstance(entry, dict) and "id" in entry)


# --- private


def _ask(method: str, port: int, path: str, body: bytes | None, timeout_s: float) -> EngineReply:
    headers = {"Content-Type": "application/json", KEY_HEADER: KEY}
    try:
        status, raw = request(method, (HOST, port), path, timeout_s=timeout_s, headers=headers, body=body)
    except ERRORS as error:
        words = f"no response within {timeout_s:g} s" if isinstance(error, TimeoutError) else f"no response ({error!r})"
        return EngineReply(status=0, body=None, text=words)
    return _reply(status, raw)


def _reply(status: int, raw: bytes) -> EngineReply:
    return EngineReply(status=status, body=parsed_json(raw), text=raw.decode(errors="replace")[:_SHOWN_CHARS])
