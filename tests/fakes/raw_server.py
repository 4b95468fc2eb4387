"""A server that writes any bytes: what no HTTP library would.

    with RawServer(lambda: [b"SSH-2.0", ...]) as server:
        ...  # point a client at server.base_url

It stops writing after `ends_s`, so that a client without a deadline fails instead of hanging.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Self

from benchmarks.hostile.endpoint_server import head, request

__all__ = ["RawServer", "whole"]


class RawServer:
    """The server; a context manager. Each connection gets one response."""

    def __init__(self, parts: Callable[[], Iterable[bytes]], *, pause_s: float = 0.0, ends_s: float = 8.0) -> None:
        self._parts = parts
        self._pause_s = pause_s
        self._ends_s = ends_s
        self.requests = 0
        self._ended = threading.Event()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.base_url = f"http://127.0.0.1:{self.port}/v1"
        self._start(self._serve)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for place in (self._listener, *self._open):  # closing alone does not wake who waits for it
            with contextlib.suppress(OSError):
                place.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._open.append(connection)
                self._start(self._play, connection)

    def _start(self, work: Callable[..., None], *arguments: socket.socket) -> None:
        self._threads.append(threading.Thread(target=work, args=arguments, daemon=True))
        self._threads[-1].start()

    def _play(self, connection: socket.socket) -> None:
        ends_s = time.monotonic() + self._ends_s
        connection.settimeout(self._ends_s)
        with connection, contextlib.suppress(OSError):
            request(connection)
            self.requests += 1
            for part in self._parts():
                if self._ended.wait(self._pause_s) or time.monotonic() > ends_s:
                    return
                connection.sendall(part)


def whole(body: bytes, *headers: str) -> list[bytes]:
    """Return a response with this body."""
    return [head(body, *headers) + body]
