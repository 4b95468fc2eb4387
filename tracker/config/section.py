"""What all tables of tracker.toml have in common."""

from __future__ import annotations

import json
import re

from pydantic import BaseModel, ConfigDict

_KEY_IN_QUERY = re.compile(r"(^|&)[^=&]*(key|token|secret|password)[^=&]*=", re.IGNORECASE)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_key(name: str) -> str:
    """Return a name as it stands between the dots of a table's head, in quotes where TOML asks for them."""
    return name if _BARE_KEY.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def without_key(url: str, *, instead: str) -> str:
    """Return the address if it holds no key: it is stored with every plan, logged and shown.

    Args:
        url: any address.
        instead: where a key belongs.

    Raises:
        ValueError: there is a password or a key in it; the message does not repeat it.
    """
    address, _, query = url.partition("?")
    scheme, _, rest = address.partition("://")
    user, separator, _ = rest.partition("/")[0].rpartition("@")
    # A database is asked for as somebody; over HTTP a user's name alone may be a token.
    has_key = ":" in user or (bool(separator) and scheme.startswith("http"))
    if has_key or _KEY_IN_QUERY.search(query):
        raise ValueError(f"there is a key or a password in it: leave it out, {instead}, and change it: it was seen")
    return url


class Section(BaseModel):
    """A table of the file: frozen, unknown keys are refused, and no error shows a value: it may be a secret."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
