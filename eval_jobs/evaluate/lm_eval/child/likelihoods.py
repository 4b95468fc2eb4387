"""Likelihoods of prompts, as the completions API returns them with `echo`. Pure.

The harness sends token ids and counts the likelihoods from the first one. If a server adds a token in front or leaves
one out, the harness would silently score neighboring tokens instead of the intended ones.
"""

import math
from typing import Any

Json = dict[str, Any]


def asks_likelihoods(body: Json) -> bool:
    """Return whether a request is for the likelihoods of its prompt."""
    return bool(body.get("echo"))


def unsupported_request(body: Json, reply: Json) -> str:
    """Return why a response lacks the likelihood of a token that was sent; empty if it has all."""
    expected = _tokens(body) + 1  # one is generated
    problems = (_problem(choice.get("logprobs"), expected) for choice in reply["choices"])
    return next(filter(None, problems), "")


def _problem(found: object, expected: int) -> str:
    known = found if isinstance(found, dict) else {}
    likely, best = known.get("token_logprobs"), known.get("top_logprobs")
    if not isinstance(likely, list) or not isinstance(best, list) or len(likely) != len(best):
        return "none in its response"
    if len(likely) != expected:
        return f"{len(likely)} in its response (expected {expected})"
    if all(map(_is_number, likely[1:])) and all(map(_is_ranking, best[1:])):
        return ""
    return "some in its response are not numbers"


def _tokens(body: Json) -> int:
    """Return how many tokens were sent: one prompt, directly or alone in a list."""
    prompt = body.get("prompt")
    while isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], list):
        prompt = prompt[0]
    if isinstance(prompt, list):
        return len(prompt)
    return 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_ranking(value: object) -> bool:
    return isinstance(value, dict) and bool(value)
