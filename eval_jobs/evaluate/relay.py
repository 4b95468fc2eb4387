"""A server on this machine through which lm-evaluation-harness asks an endpoint, so that nothing it loses is lost.

    with Relay(endpoint, journal, timeout_s=120.0) as relay:
        ...                               # the harness asks relay.base_url with the key relay.token
    relay.outcomes(context)               # what became of each request with this context

The harness does not write down whether an answer was cut off or refused, and scores both as they stand; it keeps no
answer of a run that ended early. Here every answer is looked at, and kept: a later run is told it again.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from eval_jobs.errors import TrackerError
from eval_jobs.evaluate.upstream import Answered, Refused, Upstream
from eval_jobs.harness.samples import NO_ANSWER
from eval_jobs.identity import content_hash
from eval_jobs.types import Endpoint, SampleStatus

ROUTES = ("/v1/completions", "/v1/chat/completions")

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class RequestOutcome:
    """What became of one request."""

    status: SampleStatus
    detail: str = ""
    output_tokens: int | None = None
    input_tokens: int | None = None


class Relay:
    """The server; a context manager. Safe for threads."""

    def __init__(self, endpoint: Endpoint, journal: Path, *, timeout_s: float) -> None:
        """Read what earlier runs were answered.

        Args:
            endpoint: who is asked.
            journal: file of answers; made where there is none.
            timeout_s: of one answer.
        """
        self.token = secrets.token_urlsafe(24)
        self.failure: TrackerError | None = None
        """Why the endpoint cannot be asked any more; None: it can."""
        self._upstream = Upstream(endpoint, timeout_s=timeout_s)
        self._journal = journal
        self._known = _read(journal)
        self._outcomes: dict[str, list[RequestOutcome]] = defaultdict(list)
        self._lock = threading.Lock()
        self._count = 0

    @property
    def base_url(self) -> str:
        """Address without a route."""
        return f"http://127.0.0.1:{self._httpd.server_address[1]}"

    @property
    def count(self) -> int:
        """How many requests were answered."""
        return self._count

    def outcomes(self, context: str) -> tuple[RequestOutcome, ...]:
        """Return what became of the requests with this context: a prompt, or messages as JSON."""
        return tuple(self._outcomes.get(_name(context), ()))

    def tokens(self) -> tuple[int | None, int | None]:
        """Return the tokens of all questions and answers, as the endpoint counted them; None: it did not."""
        every = [one for found in self._outcomes.values() for one in found]
        asked = [one.input_tokens for one in every if one.input_tokens is not None]
        said = [one.output_tokens for one in every if one.output_tokens is not None]
        return (sum(asked) if asked else None), (sum(said) if said else None)

    def answer(self, route: str, body: Json) -> tuple[int, Json]:
        """Return status and body of the reply to a request."""
        key = content_hash([route, {name: value for name, value in body.items() if name != "model"}])
        with self._lock:
            kept = self._known[key].pop(0) if self._known.get(key) else None
        try:
            found = Answered(body=kept) if kept is not None else self._upstream.ask(route, body)
        except TrackerError as error:
            self.failure = self.failure or error
            return 503, {"error": {"message": str(error)}}
        if isinstance(found, Refused):
            if "echo" in body:  # likelihoods cannot be left out of a score: the benchmark has none then
                self.failure = self.failure or found.to_error()
                return 503, {"error": {"message": found.detail}}
            self._note(body, RequestOutcome(status=SampleStatus.ERROR, detail=found.detail))
            return 200, _no_answer(route)
        if kept is None:
            self._keep(key, found.body)
        self._note(body, _outcome(found.body))
        return 200, found.body

    def __enter__(self) -> Self:
        """Begin to listen."""
        self._journal.parent.mkdir(parents=True, exist_ok=True)
        self._httpd = _Httpd(("127.0.0.1", 0), _Handler)
        self._httpd.relay = self
        threading.Thread(target=self._httpd.serve_forever, args=(0.05,), daemon=True, name="relay").start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening."""
        self._httpd.shutdown()
        self._httpd.server_close()
        self._upstream.close()

    # --- private

    def _note(self, body: Json, outcome: RequestOutcome) -> None:
        asked = body.get("prompt", body.get("messages"))
        if "prompt" in body and isinstance(asked, list) and len(asked) == 1:
            asked = asked[0]
        with self._lock:
            self._outcomes[_name(asked)].append(outcome)
            self._count += 1

    def _keep(self, key: str, body: Json) -> None:
        with self._lock, self._journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, "body": body}) + "\n")


# --- private


class _Httpd(ThreadingHTTPServer):
    relay: Relay
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing: the harness ended before its answer came."""

    request_queue_size = 256


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        relay = cast("_Httpd", self.server).relay
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Authorization") != f"Bearer {relay.token}":
            self._send(401, {"error": {"message": "this server is for one process of its own"}})
        elif self.path not in ROUTES:
            self._send(404, {"error": {"message": f"no {self.path} here"}})
        else:
            self._send(*relay.answer(self.path, json.loads(data)))

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _send(self, status: int, body: Json) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _read(journal: Path) -> dict[str, list[Json]]:
    """Return the answers that are kept, by request, in order; the last line of a killed process may be half a line."""
    found: dict[str, list[Json]] = defaultdict(list)
    lines = journal.read_text(encoding="utf-8", errors="replace").split("\n") if journal.is_file() else []
    for line in lines:
        try:
            entry = json.loads(line)
            found[entry["key"]].append(entry["body"])
        except (ValueError, KeyError, TypeError):
            continue
    if lines and lines[-1]:  # what comes next must not be appended to half a line
        with journal.open("a", encoding="utf-8") as file:
            file.write("\n")
    return found


def _name(asked: object) -> str:
    """Return a hash of a context, equal for messages and for their JSON."""
    if isinstance(asked, str):
        try:
            parsed = json.loads(asked)
        except ValueError:
            parsed = asked
        asked = parsed if isinstance(parsed, list) else asked
    if isinstance(asked, list) and all(isinstance(turn, Mapping) for turn in asked):
        asked = [[turn.get("role"), turn.get("content")] for turn in asked]
    return content_hash(asked)


def _outcome(body: Json) -> RequestOutcome:
    usage = body.get("usage") or {}
    is_cut = any(choice.get("finish_reason") == "length" for choice in body["choices"])
    return RequestOutcome(
        status=SampleStatus.TRUNCATED if is_cut else SampleStatus.SCORED,
        input_tokens=usage.get("prompt_tokens"),
        output_tokens=usage.get("completion_tokens"),
    )


def _no_answer(route: str) -> Json:
    said = {"message": {"role": "assistant", "content": NO_ANSWER}} if "chat" in route else {"text": NO_ANSWER}
    return {"object": "", "choices": [{"index": 0, "finish_reason": "stop", "logprobs": None, **said}]}
