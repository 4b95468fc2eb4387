"""Sends requests to our own engine, bypassing any proxy, with the key that its gate requires.

Only the tracker may use the routes that change what an engine serves: `worker_extension/tracker_worker/gate.py` rejects
requests without the key. The key exists only in this process and in the environment of its engines.
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from eval_jobs.host.bounded.replies import storable
from eval_jobs.host.local_http import ERRORS, NO_ANSWER, parsed_json, request
from eval_jobs.limits import cut
from eval_jobs.serve.process.launch import HOST

KEY_VARIABLE = "TRACKER_ENGINE_KEY"
KEY_HEADER = "X-Tracker-Engine-Key"
KEY = secrets.token_hex(16)

ANSWER_TIMEOUT_S = 20.0
"""An engine on the same machine as a trainer that uses all cores is slow to respond, but not dead."""

_SHOWN_CHARS = 600


@dataclass(frozen=True, kw_only=True)
class EngineReply:
    """Response of the engine."""

    status: int
    """HTTP status; 0: no HTTP response, and `text` gives the reason."""
    body: object
    """Parsed JSON, None if the body is not JSON."""
    text: str
    """Start of the body, for messages."""

    @property
    def is_ok(self) -> bool:
        """Return whether the request succeeded."""
        return self.status == 200

    @property
    def is_done(self) -> bool:
        """Return whether the engine did what was requested: the body of a success can still deny it."""
        said_no = isinstance(self.body, dict) and self.body.get("success") is False
        return self.is_ok and not said_no

    @property
    def words(self) -> str:
        """The response in words."""
        if self.status:
            return f"HTTP {self.status}: {self.text}"
        return self.text


def post_to_engine(port: int, path: str, body: Mapping[str, object] | None = None, *, timeout_s: float) -> EngineReply:
    """POST `body` as JSON to our engine on `port` of this machine; never raises."""
    return _ask("POST", port, path, json.dumps(body or {}).encode(), timeout_s)


def get(port: int, path: str, *, timeout_s: float) -> EngineReply:
    """GET `path` from our engine; never raises."""
    return _ask("GET", port, path, None, timeout_s)


def ask(port: int, path: str) -> EngineReply | None:
    """GET `path` from any server on `port` of this machine, without our key; None if there is no response (yet)."""
    try:
        status, raw = request("GET", (HOST, port), path, timeout_s=ANSWER_TIMEOUT_S)
    except NO_ANSWER:
        return None
    except ERRORS:
        return EngineReply(status=0, body=None, text="response is not HTTP")
    return _reply(status, raw)


def served_model_names(body: object) -> tuple[str, ...]:
    """Return the model ids in the JSON of /v1/models; () if it is something else. Pure."""
    entries = body.get("data") if isinstance(body, dict) else None
    if not isinstance(entries, list):
        return ()
    return tuple(cut(storable(str(entry["id"]))) for entry in entries if isinstance(entry, dict) and "id" in entry)


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
