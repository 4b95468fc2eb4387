"""A server on this machine through which lm-evaluation-harness asks an endpoint, so that nothing it loses is lost.

    with Relay(endpoint, journal, sent=parameters, timeout_s=120.0) as relay:
        ...                               # the harness asks relay.base_url with the key relay.token
    relay.check("gsm8k")                  # raises where too little was answered
    relay.outcomes(context)               # what became of each request with this context

The harness does not write down whether an answer was cut off or refused, and scores both as they stand; it keeps no
answer of a run that ended early; and a task may overrule what the suite says of sampling. Here every request is sent as
planned, and every answer is looked at, and kept: a later run is told it again.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from eval_jobs.errors import EndpointFailed, EvaluateError, TrackerError
from eval_jobs.evaluate.common.answer_check import CUT, is_overflow
from eval_jobs.evaluate.lm_eval.likelihoods import asks_likelihoods, no_likelihoods, problem_of
from eval_jobs.evaluate.lm_eval.upstream import Answered, Refused, Upstream
from eval_jobs.harness.samples import NO_ANSWER
from eval_jobs.host.storage import storage_error
from eval_jobs.identity import content_hash
from eval_jobs.types import Endpoint, SampleStatus

log = logging.getLogger(__name__)

ROUTES = ("/v1/completions", "/v1/chat/completions")
MAX_DOUBTFUL = 0.1
"""More requests than this share without an answer, for which the server may be to blame: all of it again, later."""
MAX_IN_A_ROW = 20
"""So many of them with no answer in between: the server is as good as gone."""
_ASKED_OTHERWISE = ("max_gen_toks", "max_new_tokens", "max_completion_tokens", "do_sample")
"""What tasks may call parameters of the suite."""

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

    def __init__(self, endpoint: Endpoint, journal: Path, *, sent: Mapping[str, float], timeout_s: float) -> None:
        """Read what earlier runs were answered.

        Args:
            endpoint: who is asked.
            journal: file of answers; made where there is none.
            sent: the sampling parameters of every answer; the same question asked again takes the seed that follows.
            timeout_s: of one answer.
        """
        self.token = secrets.token_urlsafe(24)
        self.failure: TrackerError | None = None
        """Why the endpoint cannot be asked any more; None: it can."""
        self._upstream = Upstream(endpoint, timeout_s=timeout_s)
        self._journal = journal
        self._sent = sent
        self._known = _read(journal)
        self._outcomes: dict[str, list[RequestOutcome]] = defaultdict(list)
        self._asked: Counter[str] = Counter()
        self._newly_doubtful = 0
        self._in_a_row = 0
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

    def first_refusal(self) -> str:
        """Return why the first request without an answer has none; empty: every one has one."""
        return next((one.detail for one in self._every() if one.status is SampleStatus.ERROR), "")

    def check(self, name: str) -> None:
        """Check that enough was answered for a result of the benchmark `name`.

        Raises:
            EndpointFailed: the server may be to blame; the next try asks what has no answer. What was in doubt before
                is not held against it once more.
        """
        details = [one.detail for one in self._every() if one.status is SampleStatus.ERROR]
        if details and len(details) == self._count and not any(map(is_overflow, details)):
            raise EndpointFailed(
                f"every request of `{name}` failed: {details[0]}",
                hint="read the server's log; tasks that compare likelihoods need an engine that gives those of prompts",
            )
        if self._newly_doubtful > MAX_DOUBTFUL * self._count:
            raise EndpointFailed(
                f"{self._newly_doubtful} of {self._count} requests of `{name}` got no proper answer: {details[0]}",
                hint="read the server's log; raise suite.request_timeout_s if it is only slow",
            )

    def tokens(self) -> tuple[int | None, int | None]:
        """Return the tokens of all questions and answers, as the endpoint counted them; None: it did not."""
        asked = [one.input_tokens for one in self._every() if one.input_tokens is not None]
        said = [one.output_tokens for one in self._every() if one.output_tokens is not None]
        return (sum(asked) if asked else None), (sum(said) if said else None)

    def answer(self, route: str, body: Json) -> tuple[int, Json]:
        """Return status and body of the reply to a request."""
        body = body if asks_likelihoods(body) else self._as_planned(body)
        key = content_hash([route, {name: value for name, value in body.items() if name != "model"}])
        known = self._known.get(key)
        kept = known.get("body") if known is not None else None
        try:
            found = Answered(body=kept) if kept is not None else self._upstream.ask(route, body)
            if isinstance(found, Refused):
                return self._refused(route, body, found, key=key)
            _check_likelihoods(body, found.body)
            if kept is None:
                self._keep({"key": key, "body": found.body})
                self._in_a_row = 0
        except TrackerError as error:
            self.failure = self.failure or error
            return 503, {"error": {"message": str(error)}}
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

    def _every(self) -> list[RequestOutcome]:
        return [one for found in self._outcomes.values() for one in found]

    def _as_planned(self, body: Json) -> Json:
        """Return the request with the suite's parameters, and with a seed of its own: else all repeats are one."""
        planned: Json = {name: value for name, value in body.items() if name not in _ASKED_OTHERWISE}
        planned |= self._sent
        name = content_hash(planned)
        with self._lock:
            times = self._asked[name]
            self._asked[name] += 1
        return planned | {"seed": int(self._sent["seed"]) + times}

    def _refused(self, route: str, body: Json, refusal: Refused, *, key: str) -> tuple[int, Json]:
        """Note a request without an answer, and return what the harness is told instead.

        Raises:
            EndpointFailed: too many in a row have none.
            StoreError: it cannot be written down.
        """
        if refusal.may_pass and key not in self._known:
            self._doubt(key, refusal.detail)
        self._note(body, RequestOutcome(status=SampleStatus.ERROR, detail=refusal.detail))
        return 200, no_likelihoods(body) if asks_likelihoods(body) else _no_answer(route)

    def _doubt(self, key: str, detail: str) -> None:
        self._keep({"key": key, "doubtful": True})
        with self._lock:
            self._newly_doubtful += 1
            self._in_a_row += 1
            is_gone = self._in_a_row >= MAX_IN_A_ROW
        if is_gone:
            raise EndpointFailed(
                f"{MAX_IN_A_ROW} requests in a row got no proper answer: {detail}",
                hint="read the server's log; what was answered is kept, the next try asks the rest",
            )

    def _note(self, body: Json, outcome: RequestOutcome) -> None:
        asked = body.get("prompt", body.get("messages"))
        if "prompt" in body and isinstance(asked, list) and len(asked) == 1:
            asked = asked[0]
        with self._lock:
            self._outcomes[_name(asked)].append(outcome)
            self._count += 1

    def _keep(self, entry: Json) -> None:
        try:
            with self._lock, self._journal.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise storage_error(self._journal.parent, error) from error


# --- private


class _Httpd(ThreadingHTTPServer):
    relay: Relay
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say little: mostly, the harness ended before its answer came."""
        log.debug("a request of lm_eval was given up", exc_info=True)

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


def _read(journal: Path) -> dict[str, Json]:
    """Return what is kept of each request: its answer, or that it got none; a killed process may leave half a line."""
    found: dict[str, Json] = {}
    lines = journal.read_text(encoding="utf-8", errors="replace").split("\n") if journal.is_file() else []
    for line in lines:
        try:
            entry = json.loads(line)
            found[entry["key"]] = entry
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
    usage = body.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    is_cut = any(choice.get("finish_reason") in CUT for choice in body["choices"])
    return RequestOutcome(
        status=SampleStatus.TRUNCATED if is_cut else SampleStatus.SCORED,
        input_tokens=_count_in(usage, "prompt_tokens"),
        output_tokens=_count_in(usage, "completion_tokens"),
    )


def _count_in(usage: Json, name: str) -> int | None:
    value = usage.get(name)
    return value if isinstance(value, int) else None


def _check_likelihoods(body: Json, reply: Json) -> None:
    """Refuse a server whose likelihoods are none of those that were asked for: no question of the benchmark has any.

    Raises:
        EvaluateError: they are not.
    """
    if asks_likelihoods(body) and (problem := problem_of(body, reply)):
        raise EvaluateError(
            f"the server does not give the likelihoods of a prompt's tokens: {problem}",
            hint="use tasks that generate, or an engine that gives them, such as vLLM",
        )


def _no_answer(route: str) -> Json:
    said = {"message": {"role": "assistant", "content": NO_ANSWER}} if "chat" in route else {"text": NO_ANSWER}
    return {"object": "", "choices": [{"index": 0, "finish_reason": "stop", "logprobs": None, **said}]}
