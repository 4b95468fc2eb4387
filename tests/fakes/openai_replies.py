"""What a client asks the scripted server, and what it can be told to answer."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any


class Fault(Enum):
    """A way to fail after the request was read."""

    HANG = auto()
    """Say nothing until the server stops."""
    CLOSE = auto()
    """Close the socket without a word."""
    CUT = auto()
    """Stop in the middle of the body and close."""
    ERROR_EVENT = auto()
    """Streaming: an error object inside a 200 stream, as vLLM writes it."""
    GARBAGE = auto()
    """200 with a body that is not JSON."""
    RESET = auto()
    """Reset the connection, as a process does that dies."""
    SILENCE = auto()
    """200 and the first byte of the body, then nothing until the server stops."""
    ENDLESS = auto()
    """200 and a body that goes on, a little at a time, until the server stops."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a client asked."""

    number: int
    """0 for the first request to this server (completions only)."""
    path: str
    body: dict[str, Any]
    headers: dict[str, str]

    @property
    def prompt(self) -> str:
        """The text of the last user message, or of the prompt."""
        if "messages" in self.body:
            return str(self.body["messages"][-1]["content"])
        return str(self.body.get("prompt", ""))


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What to answer. `status` other than 200 sends `text` as the error message."""

    text: str = ""
    tokens: tuple[str, ...] | None = None
    finish_reason: str | None = "stop"
    status: int = 200
    error_type: str = "BadRequestError"
    fault: Fault | None = None
    prompt_tokens: int = 8
    usage: bool = True
    headers: tuple[tuple[str, str], ...] = ()
    """Sent beside the usual ones."""
    changes: Mapping[str, object] | None = None
    """What is different in the body of a whole answer; keys with dots reach into it: `choices.0.message.content`."""
    raw: bytes | None = None
    """A whole answer, as it is."""
    content_type: str = "application/json"
    first_token_delay_s: float = 0.0
    token_delay_s: float = 0.0

    @property
    def pieces(self) -> tuple[str, ...]:
        """The tokens, one event each."""
        return self.tokens if self.tokens is not None else tuple(_words(self.text))

    @property
    def content(self) -> str:
        """All tokens together."""
        return "".join(self.pieces)


def context_overflow(*, max_len: int = 128, prompt_tokens: int = 500) -> Reply:
    """Return the refusal of a prompt that is too long, in vLLM 0.32's words."""
    return Reply(
        status=400,
        text=(
            f"This model's maximum context length is {max_len} tokens. However, your prompt contains {prompt_tokens} "
            "input tokens, which exceeds this limit even without any output tokens. "
            "Please reduce the length of the input prompt."
        ),
    )


# --- private


def _words(text: str) -> Iterator[str]:
    for number, word in enumerate(text.split(" ")):
        if number:
            yield " " + word
        elif word:
            yield word
