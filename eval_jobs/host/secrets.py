"""Keeps keys and passwords from processes that do not need them, and out of all stored or shown text. Pure.

env = without_secrets(os.environ, keep=("GATEWAY_KEY",))     # for a child process
line = masked(line, held_secrets(os.environ))                # a server may echo the key that was sent
"""

import base64
import json
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

MASK = "***"
MIN_CHARS = 8
"""Shorter values are not masked: they may be ordinary words, such as `none` or `EMPTY`."""

HUB_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "MODELSCOPE_SDK_TOKEN", "MODELSCOPE_API_TOKEN")
"""Tokens for downloading models and data."""

_SECRET = re.compile(r"passw(or)?d|passphrase|(^|_)(secrets?|token|credentials?|api_?key|key)(_|$)", re.IGNORECASE)
_PLACE = re.compile(r"_(path|file|dir|url|uri)$", re.IGNORECASE)
_REMEMBERED: set[str] = set()
"""Secrets read from a file or removed from the environment. Global, because logging is process-wide."""


def is_secret(variable: str) -> bool:
    """Return whether the name of an environment variable indicates a key, a token or a password."""
    return _SECRET.search(variable) is not None


def without_secrets(environment: Mapping[str, str], *, keep: Iterable[str] = ()) -> dict[str, str]:
    """Return the environment without keys, tokens and passwords, except the variables in `keep`."""
    kept = frozenset(keep)
    return {name: value for name, value in environment.items() if name in kept or not is_secret(name)}


def register_secret(secret: str) -> str:
    """Return `secret`, and include it in `held_secrets` from now on."""
    if secret:
        _REMEMBERED.add(secret)
    return secret


def held_secrets(environment: Mapping[str, str]) -> frozenset[str]:
    """Return the values that no text may show: of variables with secret names, and of `register_secret`."""
    values = {value for name, value in environment.items() if is_secret(name) and not _PLACE.search(name)}
    user, password = (environment.get(f"MLFLOW_TRACKING_{name}", "") for name in ("USERNAME", "PASSWORD"))
    if password:  # as sent over HTTP
        values.add(base64.b64encode(f"{user}:{password}".encode()).decode())
    return frozenset(values | _REMEMBERED)


def masked(text: str, secrets: Iterable[str]) -> str:
    """Return `text` with `***` in place of each secret, also if it is encoded for a URL or JSON."""
    forms = {
        form
        for secret in secrets
        if len(secret) >= MIN_CHARS
        for form in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1])
    }
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, MASK)
    return text
