"""Parses JSON texts of others up to the limits of `eval_jobs.limits`. Pure.

parse_json(text)      # every failure is a ValueError
"""

import json
from itertools import chain
from typing import Any

from eval_jobs import limits
from eval_jobs.limits import Limit

_SCALES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


class TooLarge(ValueError):
    """A file or text of others is larger than its limit. The message continues the name of the file."""

    def __init__(self, limit: Limit) -> None:
        super().__init__(f"is larger than {amount(limit)}")


class TooDeep(ValueError):
    """A JSON text has more levels than `limits.DEPTH`."""

    def __init__(self) -> None:
        super().__init__("it is nested too deeply")


def amount(limit: Limit) -> str:
    """Return how much a limit accepts, with its unit."""
    for scale, unit in _SCALES if limit.unit == "bytes" else ():
        if limit.most >= scale:
            return f"{limit.most // scale} {unit}"
    return f"{limit.most:,} {limit.unit}"


def parse_json(text: str | bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value in a JSON text.

    Raises:
        TooLarge: it has too many values for the memory.
        TooDeep: it is nested too deeply.
        ValueError: it is not valid JSON, or has a whole number with too many digits.
    """
    demand_few_values(text if isinstance(text, bytes) else text.encode(errors="surrogatepass"))
    try:
        value = json.loads(text, parse_int=_whole_number)
    except RecursionError as error:
        raise TooDeep from error
    level = [value]
    for _ in range(limits.DEPTH.most + 1):
        inside = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        if not inside:
            return value
        level = list(chain.from_iterable(inside))
    raise TooDeep  # what follows may be recursive, with less of the stack left


def demand_few_values(text: bytes) -> None:
    """Check a JSON text before it is parsed, by us or by a library.

    Raises:
        TooLarge: it has too many values for the memory.
    """
    # Each value but the first of a list or object follows a comma, and each list or object has a bracket.
    if text.count(b",") + text.count(b"[") + text.count(b"{") > limits.VALUES.most:
        raise TooLarge(limits.VALUES)


def _whole_number(digits: str) -> int:
    if len(digits) > limits.DIGITS.most:
        raise ValueError(f"a number has {len(digits)} digits")
    return int(digits)
