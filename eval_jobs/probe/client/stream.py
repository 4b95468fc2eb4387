"""Parses the bytes of an OpenAI-compatible stream into events. Pure."""

from dataclasses import dataclass

from eval_jobs.host.bounded.json_text import parse_json
from eval_jobs.host.bounded.replies import token_count

BAD_FINISHES = ("abort", "error")
"""Finish reasons of requests that vLLM aborted, after HTTP 200 and some text."""


@dataclass(frozen=True, kw_only=True)
class StreamEvent:
    """One `data:` line."""

    has_choices: bool = False
    done: bool = False
    """The server reported that the response is complete."""
    output_tokens: int | None = None
    prompt_tokens: int | None = None
    error: str = ""
    """Failure that the server reported inside a stream that began with HTTP 200."""


class DataLines:
    """Splits a stream of server-sent events into the payloads of its `data:` lines, in chunks of any size."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        """Of the line that is not complete: joined once, not with every chunk."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add bytes and return the payloads that are complete now. Comments and other fields are ignored."""
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join((*self._parts, lines[0]))
            self._parts = []
        self._parts.append(rest)
        return [line[5:].strip() for line in lines if line.startswith(b"data:")]


def read_event(data: bytes) -> StreamEvent:
    """Read one payload.

    Raises:
        ValueError: it is not the JSON object of an OpenAI-compatible stream.
    """
    if data == b"[DONE]":
        return StreamEvent(done=True)
    body = parse_json(data)
    if not isinstance(body, dict):
        raise ValueError("a stream event is not a JSON object")  # noqa: TRY004 - one kind of error for callers
    if body.get("error"):
        return StreamEvent(error=_message(body["error"]))
    choices, usage = body.get("choices"), body.get("usage")
    finish = _finish_reason(choices)
    counts = usage if isinstance(usage, dict) else {}
    return StreamEvent(
        has_choices=isinstance(choices, list) and bool(choices),
        done=finish is not None,
        output_tokens=token_count(counts.get("completion_tokens")),
        prompt_tokens=token_count(counts.get("prompt_tokens")),
        error=f"the server ended the request with finish_reason {finish}" if finish in BAD_FINISHES else "",
    )


def server_message(text: str) -> str:
    """Return the error in the body of a response other than 200, on one line."""
    try:
        body = parse_json(text)
    except ValueError:
        body = None
    error = body.get("error", body) if isinstance(body, dict) else None
    return " ".join((_message(error) if error else text).split())


def _finish_reason(choices: object) -> str | None:
    first = choices[0] if isinstance(choices, list) and choices else None
    if isinstance(first, dict):
        return first.get("finish_reason")
    return None


def _message(error: object) -> str:
    if isinstance(error, dict):
        return str(error.get("message", error))
    return str(error)
