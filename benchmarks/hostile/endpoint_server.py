"""A server that plays one random behaviour for each path `/N/...`: how it delivers bytes, and what they say."""

import contextlib
import gzip
import random
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from benchmarks.hostile.endpoint_contents import (
    BODIES,
    COMPLETION,
    CONTENTS,
    EITHER,
    MODELS,
    SOUND_CONTENTS,
    STREAM,
    completion,
    models,
)

PLAY_S = 20.0
"""A client that is still there after so long is stalled."""


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """One behaviour of an endpoint. `is_sound`: the client must get what it asked for; otherwise it must fail."""

    route: str
    delivery: str
    content: str
    seed: int

    @property
    def is_sound(self) -> bool:
        """Whether the client must get what it asked for."""
        return self.delivery in SOUND_DELIVERIES and self.content in SOUND_CONTENTS[self.route]

    @property
    def may_fail(self) -> bool:
        """Whether a failure is right too, although the answer can be read."""
        return self.content in EITHER or self.delivery == "HTTP/3"


class Server:
    """Plays behaviour N for requests to `/N/`; a context manager."""

    def __init__(self, behaviours: Sequence[Behaviour]) -> None:
        self._behaviours = behaviours
        self.led_astray = 0
        """Requests that arrived at the other host."""

    def __enter__(self) -> Self:
        self._listeners = [socket.create_server(("127.0.0.1", 0), backlog=512) for _ in range(2)]
        self.port, self.other_port = (listener.getsockname()[1] for listener in self._listeners)
        for listener, play in zip(self._listeners, (self._play, self._play_other), strict=True):
            threading.Thread(target=self._accept, args=(listener, play), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for listener in self._listeners:
            listener.close()

    def _accept(self, listener: socket.socket, play: Callable[[socket.socket], None]) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._served, args=(connection, play), daemon=True).start()

    @staticmethod
    def _served(connection: socket.socket, play: Callable[[socket.socket], None]) -> None:
        connection.settimeout(PLAY_S)
        with connection, contextlib.suppress(OSError):
            play(connection)

    def _play_other(self, connection: socket.socket) -> None:
        request(connection)
        self.led_astray += 1
        body = completion("good", random.Random(0))  # noqa: S311 - no secret
        connection.sendall(head(body) + body)

    def _play(self, connection: socket.socket) -> None:
        method, path = request(connection)
        behaviour = self._behaviours[int(path.split("/")[1])]
        pick = random.Random(behaviour.seed)  # noqa: S311 - no secret
        if behaviour.route != MODELS and method == "GET":  # whether the server is alive
            body = models("good", pick)
            connection.sendall(head(body) + body)
            return
        body = BODIES[behaviour.route](behaviour.content, pick)
        if behaviour.route == STREAM and behaviour.content == "one endless line":
            body = body[: pick.randint(4 << 20, 8 << 20)]
        if behaviour.delivery == "same-host redirect" and not path.endswith("again"):
            connection.sendall(redirect(f"{path}/again"))
            return
        delivery = "plain" if behaviour.delivery == "same-host redirect" else behaviour.delivery
        if delivery == "redirect":
            connection.sendall(redirect(f"http://127.0.0.1:{self.other_port}{path}"))
            return
        if delivery in ("redirect loop", "odd redirect"):
            connection.sendall(redirect(path if delivery == "redirect loop" else pick.choice(ODD_LOCATIONS)))
            return
        for part in DELIVERIES[delivery](body, pick):
            connection.sendall(part)
        if delivery == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def request(connection: socket.socket) -> tuple[str, str]:
    """Read one request, and return its method and path."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(1 << 16)
        if not part:
            raise ConnectionError
        data += part
    top, _, body = data.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in top.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    left = int(lengths[0]) - len(body) if lengths else 0
    while left > 0 and (part := connection.recv(1 << 16)):
        left -= len(part)
    method, path, _ = top.split(b" ", 2)
    return method.decode(), path.decode()


def head(body: bytes, *more: str, length: int | None = None) -> bytes:
    """Return the head of a response that closes its connection."""
    lines = ("HTTP/1.1 200 OK", "Content-Type: application/json", "Connection: close", *more)
    return "\r\n".join((*lines, f"Content-Length: {len(body) if length is None else length}", "", "")).encode()


def redirect(location: str) -> bytes:
    """Return a redirect."""
    lines = ("HTTP/1.1 307 Temporary Redirect", f"Location: {location}", "Connection: close", "Content-Length: 0")
    return "\r\n".join((*lines, "", "")).encode()


def _slowly(parts: Iterator[bytes], pause_s: float) -> Iterator[bytes]:
    ends_s = time.monotonic() + PLAY_S
    for part in parts:
        yield part
        if time.monotonic() > ends_s:
            return
        time.sleep(pause_s)


def _endless(part: bytes) -> Iterator[bytes]:
    ends_s = time.monotonic() + PLAY_S
    while time.monotonic() < ends_s:
        yield part


def _plain(body: bytes, _: random.Random) -> Iterator[bytes]:
    yield head(body) + body


def _chunked(body: bytes, pick: random.Random) -> Iterator[bytes]:
    yield _CHUNKED
    size = max(1, len(body) // pick.randint(1, 5))
    for start in range(0, len(body), size):
        part = body[start : start + size]
        yield f"{len(part):x}\r\n".encode() + part + b"\r\n"
    yield b"0\r\n\r\n"


def _in_time(body: bytes, pick: random.Random) -> Iterator[bytes]:
    yield from _slowly(iter((head(body), body[:1], body[1:])), pick.uniform(0.0, 0.05))


def _until_closed(body: bytes, _: random.Random) -> Iterator[bytes]:
    yield b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + body


def _compressed(name: str, compress: Callable[[bytes], bytes], *, cut: bool = False) -> Callable[..., Iterator[bytes]]:
    def play(body: bytes, _: random.Random) -> Iterator[bytes]:
        packed = compress(body)
        packed = packed[: len(packed) // (1 + cut)]
        yield head(packed, f"Content-Encoding: {name}") + packed

    return play


def _bomb(_: bytes, pick: random.Random) -> Iterator[bytes]:
    packer = zlib.compressobj(9, wbits=zlib.MAX_WBITS | 16)
    yield b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n"
    for _number in range(pick.randint(64, 512)):
        yield packer.compress(_BLANKS)
    yield packer.flush()


def _many(start: bytes, part: bytes, *, pause_s: float | None = None) -> Callable[..., Iterator[bytes]]:
    def play(_: bytes, __: random.Random) -> Iterator[bytes]:
        yield start
        yield from _endless(part) if pause_s is None else _slowly(_endless(part), pause_s)

    return play


def _once(made: Callable[[bytes, random.Random], bytes]) -> Callable[..., Iterator[bytes]]:
    def play(body: bytes, pick: random.Random) -> Iterator[bytes]:
        yield made(body, pick)

    return play


_CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
)
_BLANKS = b" " * (1 << 20)
_START = b"HTTP/1.1 200 OK\r\n"
DELIVERIES: dict[str, Callable[..., Iterator[bytes]]] = {
    "plain": _plain,
    "chunked": _chunked,
    "in time": _in_time,
    "until closed": _until_closed,
    "gzip": _compressed("gzip", gzip.compress),
    "deflate": _compressed("deflate", zlib.compress),
    "cut gzip": _compressed("gzip", gzip.compress, cut=True),
    "gzip that is none": _compressed("gzip", lambda body: b"x" + body),
    "twice gzip": _compressed("gzip, gzip", lambda body: gzip.compress(gzip.compress(body))),
    "brotli": _compressed("br", lambda body: b"\x0b" + body),
    "zstd": _compressed("zstd", lambda body: b"(\xb5/\xfd" + body),
    "gzip bomb": _bomb,
    "endless body": _many(_START + b"Connection: close\r\n\r\n", _BLANKS),
    "endless chunks": _many(_CHUNKED, b"100000\r\n" + _BLANKS + b"\r\n"),
    "trickle": _many(head(b"", length=1000), b" ", pause_s=0.1),
    "trickled chunks": _many(_CHUNKED, b"1\r\n \r\n", pause_s=0.1),
    "trickled head": _many(_START, b"X-A: b\r\n", pause_s=0.1),
    "trickled status": _many(b"HTTP", b"/", pause_s=0.1),
    "endless headers": _many(_START, b"X-A: b\r\n" * 1000),
    "endless header": _many(_START + b"X-A: ", b"b" * 10_000),
    "endless status": _many(b"HTTP/1.1 200 ", b"O" * 10_000),
    "flood of 100": _many(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    "flood of 103": _many(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100, pause_s=0.01),
    "nothing": _many(b"", b"", pause_s=0.1),
    "too long": _once(lambda body, pick: head(body, length=len(body) + pick.randint(1, 99)) + body),
    "too short": _once(lambda body, _: head(body, length=len(body) // 2) + body),
    "odd length": _once(lambda body, _: head(body).replace(b"Content-Length: ", b"Content-Length: -") + body),
    "closed": _once(lambda body, _: head(body) + body[: len(body) // 2]),
    "reset": _once(lambda body, _: head(body) + body[: len(body) // 2]),
    "odd chunks": _once(lambda body, _: _CHUNKED + b"zz\r\n" + body),
    "huge chunk": _once(lambda body, _: _CHUNKED + b"f" * 16 + b"\r\n" + body),
    "no head": _once(lambda body, _: body),
    "TLS": _once(lambda _, pick: b"\x16\x03\x03" + pick.randbytes(500)),
    "SSH": _once(lambda *_: b"SSH-2.0-OpenSSH_9.2\r\n"),
    "HTTP/3": _once(lambda body, _: head(body).replace(b"HTTP/1.1", b"HTTP/3.0") + body),
    "status 500": _once(lambda body, _: head(body).replace(b"200 OK", b"500 Dead") + body),
    "status 400": _once(lambda body, _: head(body).replace(b"200 OK", b"400 No") + body),
    "status 204": _once(lambda body, _: head(body).replace(b"200 OK", b"204 None")),
}
SOUND_DELIVERIES = {"plain", "chunked", "in time", "until closed", "gzip", "deflate", "same-host redirect", "HTTP/3"}
ODD_LOCATIONS = (
    "",
    "http://[::1",
    "http://",
    "ftp://a/b",
    "http://a:99999/",
    "http://a:b/",
    "//",
    "mailto:x",
    "http:///",
    "\x7f",
)
ALL_DELIVERIES = (*DELIVERIES, "redirect", "redirect loop", "odd redirect", "same-host redirect")


def behaviours(seed: int, count: int) -> tuple[Behaviour, ...]:
    """Return random behaviours; the same seed gives the same ones."""
    pick = random.Random(seed)  # noqa: S311 - no secret
    return tuple(_behaviour(pick) for _ in range(count))


def _behaviour(pick: random.Random) -> Behaviour:
    """Return one: half of them are odd in what they say, half in how, and some in both."""
    route = pick.choices((COMPLETION, MODELS, STREAM), (6, 2, 3))[0]
    is_odd_delivery, is_odd_content = pick.choice(((True, False), (False, True), (True, True)))
    delivery = pick.choice(ALL_DELIVERIES) if is_odd_delivery else "plain"
    content = pick.choice(CONTENTS[route]) if is_odd_content else "good"
    return Behaviour(route=route, delivery=delivery, content=content, seed=pick.randrange(2**32))
