"""Rules for every response of an endpoint, whichever library receives it. Pure."""

import re
from typing import Any
from urllib.parse import urljoin, urlsplit

from eval_jobs import limits

MAX_REDIRECTS = 3
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


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
    shown = limits.cut(f"{there.scheme}://{there.netloc}")
    return (
        f"{here.scheme}://{here.netloc} redirects to another host, {shown}, which would get the prompts: "
        "set serve.base_url to it if you trust it"
    )
