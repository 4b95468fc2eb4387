"""Fixed prompts that show whether two engines are the same: greedy answers with the probability of each token.

    before = ask_canaries(port, model, vocab_size=fingerprint.vocab_size)
    ...
    assert ask_canaries(port, model, vocab_size=...) == before     # bit by bit

Token ids and not texts, so that no tokenizer is between. One prompt is longer than a block of the engine's cache of
prompts (128 tokens on a CPU, 16 on a GPU), because what is left of other weights in there shows nowhere else.
All are asked in one request: together they make the same batches every time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from eval_jobs.errors import CanaryFailed
from eval_jobs.serve.control import Reply, get, post
from eval_jobs.types import Canary

PROMPT_TOKENS = (3, 17, 40, 170)
"""Lengths of the prompts; the last fills a block of 128, and more."""
ANSWER_TOKENS = 8
CANARY_TIMEOUT_S = 120.0

_FIRST, _STEP = 7_919, 104_729
"""Primes: the ids run over the whole vocabulary, and no prompt begins like another."""


def canary_prompts(vocab_size: int, max_model_len: int) -> tuple[tuple[int, ...], ...]:
    """Return the prompts for a vocabulary, cut so that an answer fits behind them. Pure."""
    longest = max(1, max_model_len - ANSWER_TOKENS)
    return tuple(
        tuple((_FIRST * (row + 1) + _STEP * place) % vocab_size for place in range(min(length, longest)))
        for row, length in enumerate(PROMPT_TOKENS)
    )


def ask_canaries(port: int, model: str, *, vocab_size: int, timeout_s: float = CANARY_TIMEOUT_S) -> tuple[Canary, ...]:
    """Ask the engine on `port` of this machine all canaries at once, in their order.

    Args:
        port: of our own engine.
        model: name that it is served under.
        vocab_size: `Fingerprint.vocab_size`.
        timeout_s: for all answers together.

    Raises:
        CanaryFailed: the engine does not answer, or an answer is too short or holds NaN or Inf.
    """
    prompts = canary_prompts(vocab_size, _max_model_len(get(port, "/v1/models", timeout_s=timeout_s).body))
    body = {
        "model": model,
        "prompt": [list(prompt) for prompt in prompts],
        "max_tokens": ANSWER_TOKENS,
        "temperature": 0.0,
        "top_p": 1.0,
        "seed": 0,
        "logprobs": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    reply = post(port, "/v1/completions", body, timeout_s=timeout_s)
    if reply.status != 200:
        raise _failed(_refusal(reply))
    return read_canaries(prompts, reply.body)


def read_canaries(prompts: tuple[tuple[int, ...], ...], body: object) -> tuple[Canary, ...]:
    """Return the canaries of an answer of /v1/completions. Pure.

    Raises:
        CanaryFailed: as in `ask_canaries`.
    """
    choices = body.get("choices") if isinstance(body, dict) else None
    if not isinstance(choices, list) or len(choices) != len(prompts):
        raise _failed(f"it answered {len(choices) if isinstance(choices, list) else 'no'} of {len(prompts)} prompts")
    try:
        by_index = {choice["index"]: choice for choice in choices}
        return tuple(_canary(prompt, by_index[row]) for row, prompt in enumerate(prompts))
    except (KeyError, TypeError, ValueError) as error:
        raise _failed(f"an answer lacks tokens or their probabilities ({error!r})") from error


# --- private


def _max_model_len(body: object) -> int:
    """Return the context of what /v1/models lists; an adapter's entry does not say it, its base's does."""
    models = body.get("data") if isinstance(body, dict) else None
    lengths = [model.get("max_model_len") for model in models or () if isinstance(model, dict)]
    known = [length for length in lengths if isinstance(length, int)]
    if not known:
        raise _failed("/v1/models does not say how long a prompt may be")
    return min(known)


def _canary(prompt: tuple[int, ...], choice: Mapping[str, object]) -> Canary:
    tokens, logprobs = choice["token_ids"], choice["logprobs"]
    if not isinstance(tokens, list) or not isinstance(logprobs, dict):
        raise TypeError("no lists")
    numbers = tuple(float(number) for number in logprobs["token_logprobs"])
    if not all(map(math.isfinite, numbers)):
        raise _failed("the probability of a token is NaN or Inf: the weights have diverged, or were loaded wrong")
    if len(tokens) != ANSWER_TOKENS or len(numbers) != ANSWER_TOKENS:
        raise _failed(f"an answer has {len(tokens)} tokens instead of {ANSWER_TOKENS}")
    return Canary(prompt=prompt, tokens=tuple(map(int, tokens)), logprobs=numbers)


def _refusal(reply: Reply) -> str:
    if "not JSON compliant" in reply.text or "NaN" in reply.text:
        return "the probability of a token is NaN or Inf: the weights have diverged, or were loaded wrong"
    return f"HTTP {reply.status}: {reply.text}" if reply.status else reply.text


def _failed(why: str) -> CanaryFailed:
    return CanaryFailed(
        f"the engine did not answer the fixed prompts that tell weights apart: {why}",
        hint="it is started anew; if that happens again, look at the training's loss before this step",
    )
