"""What counts as an answer. Pure.

A client library accepts almost any JSON as a completion, and a missing text as an empty one, which is scored as wrong.
So an answer must be complete, have a known finish reason, and contain a text or a known replacement for it.
"""

import re
from collections.abc import Mapping

from eval_jobs.host.bounded.replies import token_count

FILTERED = "content_filter"
CUT = ("length", "max_tokens")
ENDINGS = ("stop", "eos", *CUT, "tool_calls", "function_call", FILTERED)
"""Known finish reasons. vLLM also sends `abort` or `error`, with the text so far, if it is stopped during a request."""
INSTEAD_OF_TEXT = ("tool_calls", "function_call", "reasoning", "reasoning_content", "refusal", "audio")

_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")
_DETAILS, _DETAIL = ("prompt_tokens_details", "completion_tokens_details"), ("cached_tokens", "reasoning_tokens")
_OVERFLOW = re.compile(r"context length|maximum context|context window|too many tokens|max_model_len", re.IGNORECASE)


class BadAnswer(ValueError):
    """A response with HTTP status 200 that is not an answer."""


def check_answer(response: Mapping[str, object], *, model: str = "", is_chat: bool = True) -> None:
    """Raise `BadAnswer` unless `response` is a complete completion, of `model` if one is given."""
    choices = response.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise BadAnswer(f"response has no choices{_error_of(response)}")
    if len(choices) > 1:  # one was requested, and a harness may take another one than is checked here
        raise BadAnswer(f"response has {len(choices)} choices (expected 1)")
    if model and response.get("model") != model:
        raise BadAnswer(f"response is from model {response.get('model')!r} (expected {model!r})")
    if response.get("error"):
        raise BadAnswer(f"response is an error{_error_of(response)}")
    ending = choices[0].get("finish_reason")
    if ending not in ENDINGS:
        raise BadAnswer(f"unexpected finish_reason {ending}{_error_of(response)}")
    check = _check_message if is_chat else _check_text
    check(choices[0], filtered=ending == FILTERED)


def has_possible_usage(response: Mapping[str, object]) -> bool:
    """Return whether a harness can read the token counts of a response; it must not lose the answer over them."""
    usage = response.get("usage")
    if not isinstance(usage, dict):
        return usage is None
    counts = [usage.get(name) for name in _COUNTS]
    for name in _DETAILS:
        detail = usage.get(name) or {}
        if not isinstance(detail, dict):
            return False
        counts += filter(None, map(detail.get, _DETAIL))
    return None not in map(token_count, counts)


def is_overflow(message: str) -> bool:
    """Return whether an error message means that the prompt is too long."""
    return _OVERFLOW.search(message) is not None


def _check_text(choice: Mapping[str, object], *, filtered: bool) -> None:
    if not filtered and not isinstance(choice.get("text"), str):
        raise BadAnswer("response has no text")


def _check_message(choice: Mapping[str, object], *, filtered: bool) -> None:
    message = choice.get("message")
    if not isinstance(message, dict):
        raise BadAnswer("response has no message")
    content = message.get("content")
    if content is None and not filtered and not any(map(message.get, INSTEAD_OF_TEXT)):
        raise BadAnswer("response has no content")
    if not isinstance(content, str | list | None):
        raise BadAnswer(f"response content is not text: {content!r}")


def _error_of(response: Mapping[str, object]) -> str:
    error = response.get("error")
    if error:
        return f": {error}"
    return ""
