"""Sends the fixed prompts of `canary` to SGLang's own `/generate`, which returns tokens and log probabilities."""

from collections.abc import Mapping

from eval_jobs.serve.process.control import get, post_to_engine
from eval_jobs.serve.resident.canary import (
    ANSWER_TOKENS,
    CANARY_TIMEOUT_S,
    canary_failed,
    canary_prompts,
    canary_refused,
    checked_canary,
    max_model_len,
)
from eval_jobs.types import Canary


def ask_sglang(port: int, *, vocab_size: int, digest: str) -> tuple[Canary, ...]:
    """Send all canaries to the engine on `port` of this machine, one after another.

    Versions that report a digest in each response must report `digest`, that of the checkpoint.

    Raises:
        CanaryFailed: no response, or one that comes from other weights, is too short or contains NaN or Inf.
    """
    models = get(port, "/v1/models", timeout_s=CANARY_TIMEOUT_S)
    prompts = canary_prompts(vocab_size, max_model_len(models))
    return tuple(_asked(port, prompt, digest) for prompt in prompts)


def read_reply(prompt: tuple[int, ...], body: object, digest: str) -> Canary:
    """Return the canary from one response of /generate. Pure.

    Raises:
        CanaryFailed: as in `ask_sglang`.
    """
    if not isinstance(body, Mapping):
        raise canary_failed("a response lacks tokens or log probabilities")
    try:
        meta = body["meta_info"]
        version = meta.get("weight_version", digest)
        logprobs = tuple(float(pair[0]) for pair in meta["output_token_logprobs"])
        tokens = tuple(int(pair[1]) for pair in meta["output_token_logprobs"])
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise canary_failed(f"a response lacks tokens or log probabilities ({error!r})") from error
    if version != digest:
        raise canary_failed(f"a response came from the weights {version!r} (expected {digest!r})")
    return checked_canary(Canary(prompt=prompt, tokens=tokens, logprobs=logprobs))


def _asked(port: int, prompt: tuple[int, ...], digest: str) -> Canary:
    sampling = {"temperature": 0.0, "top_p": 1.0, "max_new_tokens": ANSWER_TOKENS, "ignore_eos": True}
    body = {"input_ids": list(prompt), "sampling_params": sampling, "return_logprob": True}
    reply = post_to_engine(port, "/generate", body, timeout_s=CANARY_TIMEOUT_S)
    if not reply.is_ok:
        raise canary_refused(reply)
    return read_reply(prompt, reply.body, digest)
