"""Chat services as they document themselves, on this machine: each refuses whatever the real one would refuse.

    with ChatService(DingTalkRules(secret="SEC...")) as robot:
        ...  # point a channel at robot.url; then look at robot.taken

A service answers by its rules, by the next of `faults`, or not at all once it is stopped.
"""

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol, Self
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Asked:
    """One request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        """Decoded once, as servers do; `+` is a blank."""
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    def json(self) -> Any:
        return json.loads(self.body.decode())


@dataclass(frozen=True)
class Said:
    """One answer."""

    status: int = 200
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    promised_bytes: int | None = None
    """More than are sent: the connection ends in the middle."""
    hangs: bool = False
    drips: bool = False
    """A byte of the header now and then, for ever."""
    hangs_up: bool = False


class Rules(Protocol):
    """What one service takes."""

    @property
    def path(self) -> str:
        """With its query, as a person copies it."""

    def answer(self, asked: Asked) -> Said:
        """Return what it says; a message that it takes is answered as taken."""

    def is_taken(self, said: Said) -> bool:
        """Tell whether that means that the message was taken."""


class ChatService:
    """A server on loopback; a context manager."""

    def __init__(self, rules: Rules, *, certificate: tuple[str, str] | None = None) -> None:
        """Listen; `certificate` names files of chain and key, and then TLS is spoken."""
        self.rules = rules
        self.asked: list[Asked] = []
        self.taken: list[Asked] = []
        self.faults: list[Said] = []
        """Answers of the next requests, whatever they are."""
        self._stopping = threading.Event()
        self._httpd = _Httpd(("127.0.0.1", 0), _Handler)
        self._httpd.service = self
        self.origin = f"http://127.0.0.1:{self._httpd.server_address[1]}"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._httpd.socket = context.wrap_socket(self._httpd.socket, server_side=True)
            self.origin = f"https://localhost:{self._httpd.server_address[1]}"
        self._thread = threading.Thread(target=self._httpd.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        """The address that a person copies from the service."""
        return f"{self.origin}{self.rules.path}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._httpd.shutdown()
        self._httpd.server_close()
        self._thread.join()

    def answer(self, asked: Asked) -> Said:
        self.asked.append(asked)
        if self.faults:
            return self.faults.pop(0)
        said = self.rules.answer(asked)
        if self.rules.is_taken(said):
            self.taken.append(asked)
        return said

    def wait(self) -> None:
        """Wait until the service ends."""
        self._stopping.wait()

    def pause(self) -> bool:
        """Wait a moment; tell whether the service ends."""
        return self._stopping.wait(0.05)


@contextmanager
def nobody_there(rules: Rules) -> Iterator[str]:
    """Yield an address on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}{rules.path}"


# --- private


class _Httpd(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    service: ChatService

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients that go away are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Httpd

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._say(self.server.service.answer(Asked(self.command, self.path, headers, body)))

    do_GET = do_POST  # noqa: N815 - as http.server names it

    def _say(self, said: Said) -> None:
        service = self.server.service
        self.close_connection = True
        if said.hangs:
            service.wait()
        if said.drips:
            self._drip(service)
        if said.hangs or said.hangs_up or said.drips:
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        body = said.body.encode()
        self.send_response(said.status)
        for name, value in said.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(said.promised_bytes or len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _drip(self, service: ChatService) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Drip: ")
        with contextlib.suppress(OSError):
            while not service.pause():
                self.wfile.write(b"x")
