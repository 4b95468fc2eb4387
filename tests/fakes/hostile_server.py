"""A server that answers as no server should: what is asked of it, it does with raw bytes.

    with HostileServer(trickle) as server:      # a function of (what was asked, the connection)
        ...                                     # point a client at server.url; then look at server.asked

A connection ends when its function returns. All of them are cut when the context ends.
"""

import socket
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

Behaviour = Callable[[bytes, socket.socket], None]

BLANKS = b" " * (1 << 20)
TRICKLE_S = 0.1
_DEFLATE = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
GZIP_HEAD = _DEFLATE.compress(b"{") + _DEFLATE.flush(zlib.Z_FULL_FLUSH)
GZIP_BLOCK = _DEFLATE.compress(BLANKS) + _DEFLATE.flush(zlib.Z_FULL_FLUSH)
"""After a full flush nothing refers to what was before: the block may be repeated."""
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"


class HostileServer:
    """Answers each connection by `behave`; `asked` has the request line of each."""

    def __init__(self, behave: Behaviour, *, speaks_first: bool = False) -> None:
        self.behave = behave
        self._speaks_first = speaks_first
        self.asked: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self._open: list[_Counted] = []
        self._answers: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._accept, name="hostile server", daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def sent_bytes(self) -> int:
        """What its clients have taken, and what is in buffers on the way to them."""
        return sum(connection.sent_bytes for connection in self._open)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._answers:
            thread.join(60)  # a behaviour of a test may wait for its end

    def _accept(self) -> None:
        while True:
            try:
                connection = _Counted(fileno=self._listener.accept()[0].detach())
            except OSError:
                return
            self._open.append(connection)
            self._answers.append(threading.Thread(target=self._answer, args=(connection,), daemon=True))
            self._answers[-1].start()

    def _answer(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            asked = b"" if self._speaks_first else _request_of(connection)
            if asked or self._speaks_first:
                self.asked.append(asked.partition(b"\r\n")[0].decode())
                self.behave(asked, connection)


def slowly(header: bytes) -> Behaviour:
    """Return the behaviour of a server that sends its headers, and then one byte after the other, without an end."""
    return lambda _, connection: _forever(connection, b" ", TRICKLE_S, first=HEAD + header + b"\r\n\r\n{")


def trickle(asked: bytes, connection: socket.socket) -> None:
    """Send headers, and then one byte after the other."""
    slowly(b"X-Is-Slow: yes")(asked, connection)


def trickle_headers(_: bytes, connection: socket.socket) -> None:
    """Send one byte of a header after the other."""
    connection.sendall(HEAD + b"X-Long: ")
    _forever(connection, b"x", TRICKLE_S)


def endless(_: bytes, connection: socket.socket) -> None:
    """Send a body without an end."""
    connection.sendall(HEAD + b"\r\n{")
    _forever(connection, BLANKS)


def endless_chunk_size(_: bytes, connection: socket.socket) -> None:
    """Send the size of a chunk without an end."""
    connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    _forever(connection, b"0" * len(BLANKS))


def compressed(_: bytes, connection: socket.socket) -> None:
    """Send ten gigabytes of blanks in ten megabytes."""
    connection.sendall(HEAD + b"Content-Encoding: gzip\r\n\r\n" + GZIP_HEAD)
    for _piece in range(10_000):
        connection.sendall(GZIP_BLOCK)


def zstd(_: bytes, connection: socket.socket) -> None:
    """Send a compression that was not requested."""
    connection.sendall(HEAD + b"Content-Encoding: zstd\r\n\r\n" + bytes(100))


def forever(piece: bytes, pause_s: float = 0.0) -> Behaviour:
    """Return the behaviour of a server that sends the same without an end."""
    return lambda _, connection: _forever(connection, piece, pause_s)


def silent(_: bytes, connection: socket.socket) -> None:
    """Say nothing until the client goes."""
    connection.recv(1)


def answer(body: bytes, *, status: str = "200 OK", headers: bytes = b"") -> Behaviour:
    """Return the behaviour of a server with one answer to everything."""
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n".encode()

    def behave(_: bytes, connection: socket.socket) -> None:
        connection.sendall(head + headers + b"\r\n" + body)

    return behave


def redirect(to: str, status: str = "307 Temporary Redirect") -> Behaviour:
    """Return the behaviour of a server that sends everybody elsewhere."""
    return answer(b"", status=status, headers=f"Location: {to}\r\n".encode())


# --- private


class _Counted(socket.socket):
    """A connection that knows how much was sent."""

    sent_bytes = 0

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        super().sendall(data, flags)
        self.sent_bytes += len(data)


def _forever(connection: socket.socket, piece: bytes, pause_s: float = 0.0, *, first: bytes = b"") -> None:
    pause = threading.Event()
    connection.sendall(first)
    while True:
        connection.sendall(piece)
        if pause_s:
            pause.wait(pause_s)


def _request_of(connection: socket.socket) -> bytes:
    """Return the request with its body, as far as its length says."""
    asked = b""
    while b"\r\n\r\n" not in asked:
        piece = connection.recv(65536)
        if not piece:
            return b""
        asked += piece
    head, _, body = asked.partition(b"\r\n\r\n")
    lengths = [line.partition(b":")[2] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    left = int(lengths[0]) - len(body) if lengths else 0
    while left > 0:
        piece = connection.recv(65536)
        if not piece:
            break
        left -= len(piece)
        asked += piece
    return asked
