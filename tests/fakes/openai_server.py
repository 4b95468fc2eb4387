"""A small OpenAI-compatible server that answers by script and can fail in every way a real one does.

    with OpenAIServer(lambda request: Reply(text="4")) as server:
        ...  # point a client at server.base_url; then look at server.requests

Speaks /v1/models, /v1/chat/completions, /v1/completions (with and without streaming, with usage) and /health.
One token is one piece of `Reply.tokens` (default: the words of `Reply.text`), one streamed event each.
"""

import contextlib
import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from tests.fakes.openai_replies import Fault, Reply, Request, context_overflow

__all__ = ["Fault", "OpenAIServer", "Reply", "Request", "context_overflow"]


Answer = Callable[[Request], Reply]


@dataclass
class OpenAIServer:
    """The server; a context manager. `port` 0 picks a free one, known after entry."""

    answer: Answer = field(default=lambda _: Reply(text="ok"))
    model: str = "fake"
    more_models: tuple[str, ...] = ()
    """Offered beside `model`."""
    port: int = 0
    api_key: str = ""
    """When set, requests without it get 401."""
    models: Reply | None = None
    """What /v1/models answers instead of the list."""
    metrics: str | None = None
    """What /metrics answers; None: there is no such page."""
    requests: list[Request] = field(default_factory=list)

    def __enter__(self) -> Self:
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._httpd = _Httpd(("127.0.0.1", self.port), _Handler)
        self._httpd.owner = self
        self.port = self._httpd.server_address[1]
        self._thread = threading.Thread(target=self._httpd.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def base_url(self) -> str:
        """`http://127.0.0.1:port/v1`."""
        return f"http://127.0.0.1:{self.port}/v1"

    def stop(self) -> None:
        """Die: refuse new connections and cut the open ones. Calling it twice is harmless."""
        if self.stopping.is_set():
            return
        self.stopping.set()
        self._cut_all()  # before the loop has ended, which takes a moment in which others would be answered
        self._httpd.shutdown()
        self._httpd.server_close()
        self._cut_all()
        self._thread.join()

    def _cut_all(self) -> None:
        with self._lock:
            for connection in self._connections:
                _cut(connection)

    def prompts(self) -> list[str]:
        """Return the prompts asked so far, in order of arrival."""
        with self._lock:
            return [request.prompt for request in self.requests]

    def record(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> Request:
        """Note one request."""
        with self._lock:
            request = Request(number=len(self.requests), path=path, body=body, headers=headers)
            self.requests.append(request)
        return request

    def opened(self, connection: socket.socket) -> None:
        """Note an open connection, so that `stop` can cut it."""
        with self._lock:
            self._connections.add(connection)

    def closed(self, connection: socket.socket) -> None:
        """Forget a connection."""
        with self._lock:
            self._connections.discard(connection)


# --- private


class _Httpd(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    owner: OpenAIServer

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients that go away are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Httpd

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server.owner.opened(self.connection)

    def finish(self) -> None:
        self.server.owner.closed(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def do_GET(self) -> None:
        owner = self.server.owner
        if self.path == "/health":
            self._send(200, b"")
        elif self.path == "/metrics" and owner.metrics is not None:
            self._send(200, owner.metrics.encode())
        elif self.path.rstrip("/") != "/v1/models":
            self._error(404, "Not Found", "NotFoundError")
        elif owner.models is not None:
            self._reply_error(owner.models)
        elif self._authorised():
            cards = [
                {"id": name, "object": "model", "created": 0, "owned_by": "fake", "max_model_len": 4096}
                for name in (owner.model, *owner.more_models)
            ]
            self._send_json(200, {"object": "list", "data": cards})

    def do_POST(self) -> None:
        owner = self.server.owner
        length = int(self.headers.get("Content-Length") or 0)
        data = self.rfile.read(length)
        if len(data) < length or owner.stopping.is_set():  # the client died in the middle of it, or this server did
            self._hang_up()
            return
        body = json.loads(data or b"{}")
        if not self._authorised():
            return
        if self.path not in ("/v1/chat/completions", "/v1/completions"):
            self._error(404, "Not Found", "NotFoundError")
            return
        request = owner.record(self.path, body, dict(self.headers.items()))
        if body.get("model") not in (owner.model, *owner.more_models):
            self._error(404, f"The model `{body.get('model')}` does not exist.", "NotFoundError")
            return
        reply = owner.answer(request)
        if owner.stopping.is_set():
            self._hang_up()
            return
        self._answer(request, reply)

    def _answer(self, request: Request, reply: Reply) -> None:
        wait = self.server.owner.stopping.wait
        if reply.fault is Fault.HANG:
            wait()
        if reply.fault in (Fault.HANG, Fault.CLOSE):
            self._hang_up()
        elif reply.fault is Fault.RESET:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            os.close(self.connection.detach())
        elif reply.fault in (Fault.SILENCE, Fault.ENDLESS):
            self._never_end(reply)
        elif reply.status != 200:
            self._reply_error(reply)
        elif reply.fault is Fault.GARBAGE:
            self._send(200, b"<html>this is no JSON</html>")
        elif request.body.get("stream"):
            self._stream(request, reply)
        else:
            wait(reply.first_token_delay_s + reply.token_delay_s * len(reply.pieces))
            self._whole(request, reply)

    def _whole(self, request: Request, reply: Reply) -> None:
        body = _completion(request, reply)
        for key, value in (reply.changes or {}).items():
            _change(body, key.split("."), value)
        data = json.dumps(body).encode() if reply.raw is None else reply.raw
        if reply.fault is not Fault.CUT:
            self._send(200, data, reply)
            return
        self._head(200, "application/json", len(data))
        self.wfile.write(data[: len(data) // 2])
        self._hang_up()

    def _never_end(self, reply: Reply) -> None:
        self.send_response(200)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"1\r\n \r\n")
        while not self.server.owner.stopping.wait(0.05):
            if reply.fault is Fault.ENDLESS:
                self.wfile.write(b"1\r\n \r\n")
        self._hang_up()

    def _stream(self, request: Request, reply: Reply) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        wait = self.server.owner.stopping.wait
        events = list(_events(request, reply))
        if reply.fault is Fault.CUT:
            events = events[: max(1, len(events) // 2)]
        for number, event in enumerate(events):
            wait(reply.first_token_delay_s if number == 0 else reply.token_delay_s)
            self._event(json.dumps(event))
        if reply.fault is Fault.CUT:
            self._hang_up()
            return
        self._event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, data: str) -> None:
        payload = f"data: {data}\n\n".encode()
        self.wfile.write(f"{len(payload):x}\r\n".encode() + payload + b"\r\n")
        self.wfile.flush()

    def _authorised(self) -> bool:
        key = self.server.owner.api_key
        if not key or self.headers.get("Authorization") == f"Bearer {key}":
            return True
        self._error(401, "Unauthorized", "AuthenticationError")
        return False

    def _reply_error(self, reply: Reply) -> None:
        self._error(reply.status, reply.text, reply.error_type, reply)

    def _error(self, status: int, message: str, kind: str, reply: Reply | None = None) -> None:
        error = {"message": message, "type": kind, "param": None, "code": status}
        self._send(status, json.dumps({"error": error}).encode(), reply)

    def _send_json(self, status: int, value: object) -> None:
        self._send(status, json.dumps(value).encode())

    def _send(self, status: int, data: bytes, reply: Reply | None = None) -> None:
        reply = reply or Reply()
        self._head(status, reply.content_type, len(data), reply.headers)
        self.wfile.write(data)

    def _head(self, status: int, kind: str, length: int, more: tuple[tuple[str, str], ...] = ()) -> None:
        self.send_response(status)
        for name, value in more:
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def _hang_up(self) -> None:
        self.close_connection = True
        _cut(self.connection)


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _change(body: Any, path: list[str], value: object) -> None:
    *parents, last = path
    for key in parents:
        body = body[int(key) if isinstance(body, list) else key]
    body[last] = value


def _usage(reply: Reply) -> dict[str, int]:
    n = len(reply.pieces)
    return {"prompt_tokens": reply.prompt_tokens, "completion_tokens": n, "total_tokens": reply.prompt_tokens + n}


def _completion(request: Request, reply: Reply) -> dict[str, Any]:
    chat = "messages" in request.body
    choice: dict[str, Any] = {"index": 0, "finish_reason": reply.finish_reason, "logprobs": None}
    choice |= {"message": {"role": "assistant", "content": reply.content}} if chat else {"text": reply.content}
    return _envelope(request, "chat.completion" if chat else "text_completion", [choice]) | {
        "usage": _usage(reply) if reply.usage else None
    }


def _events(request: Request, reply: Reply) -> Iterator[dict[str, Any]]:
    """Yield the chunks of a stream as vLLM writes them: role, one per token, finish, usage."""
    chat = "messages" in request.body
    kind = "chat.completion.chunk" if chat else "text_completion"

    def chunk(text: str, *, role: bool = False, finish: str | None = None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish}
        if chat:
            choice["delta"] = {"role": "assistant", "content": ""} if role else {"content": text}
        else:
            choice["text"] = text
        return _envelope(request, kind, [choice])

    if chat:
        yield chunk("", role=True)
    pieces = reply.pieces
    for piece in pieces[:-1]:
        yield chunk(piece)
    if reply.fault is Fault.ERROR_EVENT:
        yield {"error": {"message": "EngineCore encountered an issue.", "type": "InternalServerError", "code": 500}}
        return
    yield chunk(pieces[-1] if pieces else "", finish=reply.finish_reason)
    if reply.usage and (request.body.get("stream_options") or {}).get("include_usage"):
        yield _envelope(request, kind, []) | {"usage": _usage(reply)}


def _envelope(request: Request, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"cmpl-{request.number}",
        "object": kind,
        "created": 0,
        "model": request.body.get("model"),
        "choices": choices,
    }
