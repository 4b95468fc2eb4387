"""Rules for every response of an endpoint, whichever library receives it. Pure."""

import re
from typing import Any
from urllib.parse import urljoin, urlsplit

from eval_jobs import limits

ENVELOPE_BYTES, TOKEN_BYTES, EVENT_BYTES = 64 << 10, 256, 8 << 10
"""Of an answer without its text, and of one token in it and in a stream.

Common vocabularies have tokens of 128 characters, and JSON doubles some.
"""
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def answer_bytes(tokens: int, token_bytes: int) -> int:
    """Return how large an answer of at most `tokens` tokens may be; see `limits.ANSWER`."""
    return min(limits.ANSWER.most, ENVELOPE_BYTES + token_bytes * tokens)


def token_count(value: object) -> int | None:
    """Return a reported number of tokens; None if it is not a possible one."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= limits.TOKENS.most:
        return value
    return None


def storable(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a JSON value with U+FFFD for NUL and half surrogates, which databases and files cannot contain."""
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, list):
        return [storable(one) for one in value]
    if isinstance(value, dict):
        return {storable(name): storable(one) for name, one in value.items()}
    return value


def redirect_problem(url: str, location: str) -> str:
    """Return why a redirect is not followed: to another scheme, host or port. Empty if it may be."""
    here, there = urlsplit(url), urlsplit(urljoin(url, location))
    if (here.scheme, here.netloc) == (there.scheme, there.netloc):
        return ""
    hosts = f"{here.scheme}://{here.netloc} redirects to another host, {there.scheme}://{there.netloc}"
    return f"{limits.cut(hosts)}: set that address instead if it may get what is sent"
