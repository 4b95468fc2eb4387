"""Fixed prompts that show whether two engines are the same: greedy outputs with the log probability of each token.

    before = ask_canaries(port, model, vocab_size=fingerprint.vocab_size)
    ...
    assert ask_canaries(port, model, vocab_size=...) == before     # equal to the bit

Prompts are token ids, not texts, so that no tokenizer is involved. One is longer than a block of the engine's prefix
cache (128 tokens on a CPU, 16 on a GPU), because cache entries computed with other weights show only there.
They are sent one at a time, to an idle engine and right after its weights were loaded: in bfloat16, an output depends
on the rest of the batch, and on whether its prompt was in the cache.
"""

import math

from eval_jobs.errors import CanaryFailed
from eval_jobs.serve.process.control import EngineReply, get, post_to_engine
from eval_jobs.types import Canary

PROMPT_TOKENS = (3, 40, 170)
"""Lengths of the prompts; the last one fills more than a block of 128."""
ANSWER_TOKENS = 8
CANARY_TIMEOUT_S = 120.0

_FIRST, _STEP = 7_919, 104_729
"""Primes: the ids cover the whole vocabulary, and no two prompts start alike."""


def canary_prompts(vocab_size: int, max_model_len: int) -> tuple[tuple[int, ...], ...]:
    """Return the prompts for a vocabulary, cut so that an output fits into the context. Pure."""
    longest = max(1, max_model_len - ANSWER_TOKENS)
    return tuple(
        tuple((_FIRST * (row + 1) + _STEP * place) % vocab_size for place in range(min(length, longest)))
        for row, length in enumerate(PROMPT_TOKENS)
    )


def ask_canaries(port: int, model: str, *, vocab_size: int, timeout_s: float = CANARY_TIMEOUT_S) -> tuple[Canary, ...]:
    """Send all canaries to the engine on `port` of this machine, one after another.

    `vocab_size`: see `Fingerprint.vocab_size`; `timeout_s`: for each response.

    Raises:
        CanaryFailed: the engine does not respond, or a response is too short or contains NaN or Inf.
    """
    models = get(port, "/v1/models", timeout_s=timeout_s)
    prompts = canary_prompts(vocab_size, max_model_len(models))
    return tuple(_asked(port, model, prompt, timeout_s) for prompt in prompts)


def read_canary(prompt: tuple[int, ...], body: object) -> Canary:
    """Return the canary from one response of /v1/completions. Pure.

    Raises:
        CanaryFailed: as in `ask_canaries`.
    """
    try:
        (choice,) = body["choices"]  # type: ignore[index]
        tokens = tuple(map(int, choice["token_ids"]))
        logprobs = tuple(map(float, choice["logprobs"]["token_logprobs"]))
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise canary_failed(f"a response lacks tokens or log probabilities ({error!r})") from error
    return checked_canary(Canary(prompt=prompt, tokens=tokens, logprobs=logprobs))


def checked_canary(canary: Canary) -> Canary:
    """Return `canary`; raise CanaryFailed if it is too short, or contains NaN or Inf. Pure."""
    if not all(map(math.isfinite, canary.logprobs)):
        raise canary_failed(NOT_FINITE)
    if len(canary.tokens) != ANSWER_TOKENS or len(canary.logprobs) != ANSWER_TOKENS:
        raise canary_failed(f"a response has {len(canary.tokens)} tokens (expected {ANSWER_TOKENS})")
    return canary


NOT_FINITE = "a token probability is NaN or Inf: the weights have diverged or were loaded incorrectly"


def _asked(port: int, model: str, prompt: tuple[int, ...], timeout_s: float) -> Canary:
    body = {
        "model": model,
        "prompt": list(prompt),
        "max_tokens": ANSWER_TOKENS,
        "temperature": 0.0,
        "top_p": 1.0,
        "seed": 0,
        "logprobs": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    reply = post_to_engine(port, "/v1/completions", body, timeout_s=timeout_s)
    if reply.is_ok:
        return read_canary(prompt, reply.body)
    if "not JSON compliant" in reply.text:  # the body would contain NaN, which JSON cannot represent
        raise canary_failed(NOT_FINITE)
    raise canary_refused(reply)


def max_model_len(reply: EngineReply) -> int:
    """Return the context length from /v1/models; an adapter's entry does not contain it, its base's does."""
    models = reply.body.get("data") if isinstance(reply.body, dict) else None
    lengths = [model.get("max_model_len") for model in models or () if isinstance(model, dict)]
    known = [length for length in lengths if isinstance(length, int)]
    if not known:
        raise canary_failed(f"no max_model_len in /v1/models ({reply.words})")
    return min(known)


def canary_refused(reply: EngineReply) -> CanaryFailed:
    """Return the error for a reply that is no answer; context `is_server_error` if every request would fail so."""
    return canary_failed(reply.words, is_server_error=reply.status >= 500)


def canary_failed(why: str, *, is_server_error: bool = False) -> CanaryFailed:
    """Return the error of an engine that fails on the fixed prompts."""
    return CanaryFailed(
        f"the engine failed on the fixed prompts: {why}",
        hint="if it fails again after the restart, check the training loss before this step",
        is_server_error=is_server_error,
    )
