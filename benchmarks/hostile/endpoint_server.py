"""A server that plays one random behaviour for each path `/N/...`: how it delivers bytes, and what they say."""

import contextlib
import gzip
import json
import random
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

COMPLETION, MODELS, STREAM = "completion", "models", "stream"
PLAY_S = 20.0
"""A client that is still there after so long is stalled."""
MODEL = "m"


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """One behaviour of an endpoint. `is_sound`: the client must get what it asked for; otherwise it must fail."""

    route: str
    delivery: str
    content: str
    seed: int

    @property
    def is_sound(self) -> bool:
        return self.delivery in SOUND_DELIVERIES and self.content in SOUND_CONTENTS[self.route]

    @property
    def may_fail(self) -> bool:
        """Whether a failure is right too, although the answer can be read."""
        return self.content in EITHER or self.delivery == "HTTP/3"


def completion(content: str, pick: random.Random) -> bytes:
    """Return the body of a completion."""
    usage: object = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    choice: dict[str, object] = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "42"}}
    body: dict[str, object] = {"id": "x", "object": "chat.completion", "created": 1, "model": MODEL}
    body |= {"choices": [choice], "usage": usage}
    if content in USAGES:
        body["usage"] = USAGES[content]
    elif content in MESSAGES:
        choice["message"] = {"role": "assistant", "content": MESSAGES[content]}
    elif content in CHANGES:
        body |= CHANGES[content]
    elif content in CHOICES:
        body["choices"] = [choice | CHOICES[content]]
    elif content == "two choices":
        body["choices"] = [choice, choice | {"index": -1, "finish_reason": "abort"}]
    elif content == "many choices":
        body["choices"] = [choice] * 100_000
    elif content in RAW:
        return RAW[content]
    elif content == "noise":
        return pick.randbytes(pick.randint(0, 5000))
    elif content == "cut JSON":
        text = json.dumps(body).encode()
        return text[: pick.randrange(1, len(text) - 1)]
    return json.dumps(body).encode()


def models(content: str, _: random.Random) -> bytes:
    """Return the body of a list of models."""
    if content == "good":
        return json.dumps({"object": "list", "data": [{"id": MODEL}]}).encode()
    return RAW.get(content, json.dumps(MODEL_LISTS.get(content)).encode())


def stream(content: str, _: random.Random) -> bytes:
    """Return the body of a streamed answer."""
    first: dict[str, object] = {"choices": [{"index": 0, "text": "4", "finish_reason": None}]}
    last: dict[str, object] = {"choices": [{"index": 0, "text": "2", "finish_reason": "length"}]}
    usage: dict[str, object] = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    events: list[object] = [first, last, usage]
    if content in USAGES:
        usage["usage"] = USAGES[content]
    elif content == "no end":
        events = [first, first]
    elif content == "error event":
        events = [first, {"error": {"message": "died \ud83d\x00"}}]
    elif content == "aborted":
        events = [first, {"choices": [{"text": "", "finish_reason": "abort"}]}]
    elif content == "no objects":
        events = [first, [1, 2]]
    elif content == "odd choices":
        events = [{"choices": 5}, {"choices": "text"}]
    elif content == "one endless line":
        return b"data: " + b"x" * (8 << 20)
    elif content == "endless events":
        return b'data: {"choices": [{"text": ""}]}\n' * 300_000
    lines = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    return lines if content == "no end" else lines + b"data: [DONE]\n\n"


USAGES: dict[str, object] = {
    "huge usage": {"prompt_tokens": 10**30, "completion_tokens": 2, "total_tokens": 10**30},
    "negative usage": {"prompt_tokens": -1, "completion_tokens": -5, "total_tokens": -6},
    "NaN usage": {"prompt_tokens": float("nan"), "completion_tokens": 2, "total_tokens": float("inf")},
    "text usage": {"prompt_tokens": "3", "completion_tokens": "two", "total_tokens": "5"},
    "fraction usage": {"prompt_tokens": 3.5, "completion_tokens": 2.0, "total_tokens": 5.5},
    "true usage": {"prompt_tokens": True, "completion_tokens": False, "total_tokens": True},
    "list usage": [1, 2, 3],
    "word usage": "none",
    "detail usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, "prompt_tokens_details": "x"},
    "half usage": {"prompt_tokens": 3},
}
MESSAGES: dict[str, object] = {
    "half surrogate": "42\ud83d",
    "NUL": "42\x00",
    "number content": 42,
    "list content": [1, 2],
    "map content": {"text": "42"},
    "null content": None,
    "20 MB": "42" * (10 << 20),
    "2 MB": "4\n" * (1 << 20),
}
CHANGES: dict[str, dict[str, object]] = {
    "no choices": {"choices": []},
    "null choices": {"choices": None},
    "text choices": {"choices": "42"},
    "map choices": {"choices": {"0": "42"}},
    "number choice": {"choices": [42]},
    "number id": {"id": 5},
    "list model": {"model": ["m"]},
    "error beside": {"error": {"message": "engine died", "code": 500}},
}
CHOICES: dict[str, dict[str, object]] = {
    "no finish": {"finish_reason": None},
    "abort": {"finish_reason": "abort"},
    "list finish": {"finish_reason": ["stop"]},
    "number finish": {"finish_reason": 1},
    "text index": {"index": "zero"},
    "odd logprobs": {"logprobs": {"content": "x"}},
    "text message": {"message": "42"},
    "list message": {"message": ["42"]},
}
RAW = {
    "empty": b"",
    "null": b"null",
    "HTML": b"<html>bad gateway</html>",
    "deep": b"[" * 100_000,
    "deep objects": b'{"a":' * 50_000,
    "digits": b'{"id": ' + b"9" * 50_000 + b"}",
    "bad UTF-8": b'{"choices": [{"message": {"content": "\xff"}}]}',
    "many values": b"[" + b"[]," * 3_000_000 + b"[]]",
}
MODEL_LISTS: dict[str, object] = {
    "other model": {"data": [{"id": "another"}]},
    "no data": {"models": []},
    "text data": {"data": "m"},
    "odd ids": {"data": [{"id": 5}, {"id": None}, 7, {"id": ["m"]}]},
    "long id": {"data": [{"id": "m" * 3_000_000}, {"id": "\ud83d"}]},
}
EITHER = {"number id", "list model", "text index", "odd logprobs", "half usage"}
"""An answer that can be read in spite of them may count or fail."""

SOUND_CONTENTS = {
    COMPLETION: {"good", "half surrogate", "NUL", *USAGES, *EITHER},
    MODELS: {"good"},
    STREAM: {"good", *USAGES},
}
CONTENTS = {
    COMPLETION: ("good", *USAGES, *MESSAGES, *CHANGES, *CHOICES, *RAW, "two choices", "many choices", "noise", "cut JSON"),
    MODELS: ("good", *RAW, *MODEL_LISTS),
    STREAM: (
        "good", *USAGES, "no end", "error event", "aborted", "no objects", "odd choices", "one endless line",
        "endless events",
    ),
}  # fmt: skip
BODIES: dict[str, Callable[[str, random.Random], bytes]] = {COMPLETION: completion, MODELS: models, STREAM: stream}


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
        connection.sendall(head(completion("good", random.Random(0))) + completion("good", random.Random(0)))

    def _play(self, connection: socket.socket) -> None:
        method, path = request(connection)
        behaviour = self._behaviours[int(path.split("/")[1])]
        pick = random.Random(behaviour.seed)
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
        if delivery == "redirect loop":
            connection.sendall(redirect(path))
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
    "too short": _once(lambda body, pick: head(body, length=len(body) // 2) + body),
    "odd length": _once(lambda body, pick: head(body).replace(b"Content-Length: ", b"Content-Length: -") + body),
    "closed": _once(lambda body, pick: head(body) + body[: len(body) // 2]),
    "reset": _once(lambda body, pick: head(body) + body[: len(body) // 2]),
    "odd chunks": _once(lambda body, pick: _CHUNKED + b"zz\r\n" + body),
    "huge chunk": _once(lambda body, pick: _CHUNKED + b"f" * 16 + b"\r\n" + body),
    "no head": _once(lambda body, pick: body),
    "TLS": _once(lambda body, pick: b"\x16\x03\x03" + pick.randbytes(500)),
    "SSH": _once(lambda body, pick: b"SSH-2.0-OpenSSH_9.2\r\n"),
    "HTTP/3": _once(lambda body, pick: head(body).replace(b"HTTP/1.1", b"HTTP/3.0") + body),
    "status 500": _once(lambda body, pick: head(body).replace(b"200 OK", b"500 Dead") + body),
    "status 400": _once(lambda body, pick: head(body).replace(b"200 OK", b"400 No") + body),
    "status 204": _once(lambda body, pick: head(body).replace(b"200 OK", b"204 None")),
}
SOUND_DELIVERIES = {"plain", "chunked", "in time", "until closed", "gzip", "deflate", "same-host redirect", "HTTP/3"}
ALL_DELIVERIES = (*DELIVERIES, "redirect", "redirect loop", "same-host redirect")


def behaviours(seed: int, count: int) -> tuple[Behaviour, ...]:
    """Return random behaviours; the same seed gives the same ones."""
    pick = random.Random(seed)
    return tuple(_behaviour(pick) for _ in range(count))


def _behaviour(pick: random.Random) -> Behaviour:
    """Return one: half of them are odd in what they say, half in how, and some in both."""
    route = pick.choices((COMPLETION, MODELS, STREAM), (6, 2, 3))[0]
    is_odd_delivery, is_odd_content = pick.choice(((True, False), (False, True), (True, True)))
    delivery = pick.choice(ALL_DELIVERIES) if is_odd_delivery else "plain"
    content = pick.choice(CONTENTS[route]) if is_odd_content else "good"
    return Behaviour(route=route, delivery=delivery, content=content, seed=pick.randrange(2**32))
