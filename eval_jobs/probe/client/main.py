"""The load itself, in a separate process, so that no other code of the tracker delays a timestamp.

    python -m eval_jobs.probe.client.main < REQUESTS > REPLIES     # one JSON document a line, see wire.py

`concurrency` workers each send one streaming request after another, as `vllm bench serve --max-concurrency` does; or
requests arrive at random times, as with its `--request-rate`.
Before that, the client finds out which dialect the endpoint supports: a server that is not our own may offer only
/v1/chat/completions, and may reject `ignore_eos`. Then responses may be shorter than the load specifies.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import time
from collections.abc import Sequence

from eval_jobs.host.cpu_placement import run_first, waited_for_cpu_s
from eval_jobs.host.secrets import masked
from eval_jobs.probe.client import ask
from eval_jobs.probe.client.prompts import LONG_WORDS, SHORT_WORDS, arrivals_s, calibrate, word_prompt
from eval_jobs.probe.latency import Measurement, Timeline
from eval_jobs.probe.wire import REPLY, REQUEST, ClientReply, ClientRequest
from eval_jobs.types import ProbeLoad

PARENT_CHECK_S = 1.0
COUNTED_AT_ONCE = 4
"""Number of prompts whose tokens are counted concurrently."""

DIALECTS = (ask.Dialect(), ask.Dialect(chat=True), ask.Dialect(chat=True, ignore_eos=False))
"""For endpoints that are not our own vLLM, in the order in which they are tried."""

OTHER_DIALECT_MAY_HELP = (400, 404, 405, 415, 422, 501)


class CannotMeasureError(Exception):
    """Nothing could be measured; the text has the reason."""


def main() -> None:
    """Reply to each line on stdin with one line on stdout, until stdin is closed."""
    run_first()
    known: KnownPrompts = {}
    for line in sys.stdin.buffer:
        request = REQUEST.validate_json(line)
        reply = REPLY.dump_json(asyncio.run(_reply(request, known))).decode()
        # A server may echo the key that it was sent.
        sys.stdout.buffer.write(masked(reply, [os.environ.get(request.api_key_env, "")]).encode() + b"\n")
        sys.stdout.buffer.flush()


KnownPrompts = dict[tuple[str, ProbeLoad], Sequence[str]]
"""Digest of a tokenizer and a load -> prompts of the length that the load specifies, warm-up first."""


async def measure(request: ClientRequest, known: KnownPrompts) -> Measurement:
    """Warm up the endpoint, put the load on it and return the timelines.

    `known`: prompts of earlier measurements; new ones for our own vLLM are added.

    Raises:
        CannotMeasureError: the endpoint gave no valid response, or the API key is not set.
    """
    load = request.load
    api_key = os.environ.get(request.api_key_env, "")
    if request.api_key_env and not api_key:
        raise CannotMeasureError(f"the environment variable {request.api_key_env} with the API key is not set")
    async with ask.open_session(
        request.base_url, api_key=api_key, request_timeout_s=request.request_timeout_s
    ) as session:
        asker, prompts = await _traffic(request, session, known)
        await _run(asker, prompts[: load.warmup_requests], load)
        started_s, waited_s = time.perf_counter(), waited_for_cpu_s()
        timelines = await _run(asker, prompts[load.warmup_requests :], load)
        return Measurement(
            timelines=timelines,
            duration_s=time.perf_counter() - started_s,
            client_waited_s=waited_for_cpu_s() - waited_s,
        )


async def _reply(request: ClientRequest, known: KnownPrompts) -> ClientReply:
    watch = asyncio.create_task(_end_with(request.prober_pid))
    await asyncio.sleep(0)  # so that its first check runs before the first request is sent
    try:
        return ClientReply(measurement=await measure(request, known))
    except CannotMeasureError as error:
        return ClientReply(error=str(error))
    finally:
        watch.cancel()


async def _end_with(prober_pid: int) -> None:
    """Exit when the prober was killed, so that the load does not outlive it."""
    while os.getppid() == prober_pid:
        await asyncio.sleep(PARENT_CHECK_S)
    os._exit(1)


async def _run(asker: ask.Asker, prompts: Sequence[str], load: ProbeLoad) -> tuple[Timeline, ...]:
    """Send all prompts as the load specifies, and return their timelines in any order."""
    if load.request_rate is not None:
        return await _run_open(asker, prompts, arrivals_s(len(prompts), load.request_rate, seed=load.seed), load)
    waiting = iter(prompts)

    async def worker() -> list[Timeline]:
        # One iterator for all workers: each takes the next prompt as soon as its response is complete.
        return [await asker.ask(prompt, load.output_tokens) for prompt in waiting]

    parts = await asyncio.gather(*(worker() for _ in range(load.concurrency)))
    return tuple(timeline for part in parts for timeline in part)


async def _run_open(
    asker: ask.Asker, prompts: Sequence[str], at_s: Sequence[float], load: ProbeLoad
) -> tuple[Timeline, ...]:
    """Send each prompt at its time from now, whether or not earlier responses are complete."""
    started_s = time.perf_counter()

    async def send(prompt: str, after_s: float) -> Timeline:
        await asyncio.sleep(max(0.0, started_s + after_s - time.perf_counter()))
        return await asker.ask(prompt, load.output_tokens)

    timelines = await asyncio.gather(*(send(prompt, after_s) for prompt, after_s in zip(prompts, at_s, strict=True)))
    return tuple(timelines)


async def _traffic(
    request: ClientRequest, session: ask.Session, known: KnownPrompts
) -> tuple[ask.Asker, Sequence[str]]:
    """Find the first dialect that the endpoint supports; return its asker, and the prompts, warm-up first."""
    # A warm server must not use cache entries of an earlier probe: vLLM gets a new salt every time, so that the prompts
    # can stay the same; others, which do not support a salt, get new prompts.
    nonce = secrets.token_hex(8)
    dialects = (ask.Dialect(cache_salt=nonce),) if request.vllm else DIALECTS
    seed = str(request.load.seed) if request.vllm else nonce
    refusals = []
    for dialect in dialects:
        asker = ask.Asker(session=session, base_url=request.base_url, model=request.model, dialect=dialect)
        try:
            return asker, await _prompts_once(asker, request, seed, known)
        except ask.FAILURES as error:
            refusals.append(f"{asker.url}: {ask.reason(error)}")
            if not (isinstance(error, ask.RequestRefused) and error.status in OTHER_DIALECT_MAY_HELP):
                break
    raise CannotMeasureError("; ".join(refusals))


async def _prompts_once(asker: ask.Asker, request: ClientRequest, seed: str, known: KnownPrompts) -> Sequence[str]:
    """Return the prompts; for our own vLLM the earlier ones, as long as its tokenizer is the same."""
    key = (request.tokenizer, request.load)
    if request.vllm and key in known:
        await asker.try_ask(word_prompt(SHORT_WORDS, seed=seed, index=-1), 1)  # check that it responds
        return known[key]
    prompts = await _prompts(asker, request.load, seed)
    if request.vllm and request.tokenizer:
        for other in [old for old in known if old[0] != request.tokenizer]:
            del known[other]  # a run has one tokenizer and few loads
        known[key] = prompts
    return prompts


async def _prompts(asker: ask.Asker, load: ProbeLoad, seed: str) -> Sequence[str]:
    """Return the prompts for warm-up and load, after two requests for one token each."""
    short = await asker.try_ask(word_prompt(SHORT_WORDS, seed=seed, index=-1), 1)
    long = await asker.try_ask(word_prompt(LONG_WORDS, seed=seed, index=-2), 1)
    calibration = calibrate(short.prompt_tokens, long.prompt_tokens)
    indices = range(load.warmup_requests + load.requests)
    if not asker.dialect.chat:
        words = calibration.words_for_more_than(load.input_tokens)
        try:
            return await _cut(asker, [word_prompt(words, seed=seed, index=i) for i in indices], load.input_tokens)
        except ask.FAILURES:
            pass  # only vLLM can count tokens; the calibrated number of words is close enough
    words = calibration.words_for(load.input_tokens)
    return [word_prompt(words, seed=seed, index=i) for i in indices]


async def _cut(asker: ask.Asker, prompts: Sequence[str], tokens: int) -> Sequence[str]:
    """Cut each prompt to exactly `tokens` tokens, including the start token.

    Raises:
        FAILURES: the endpoint does not offer vLLM's /tokenize and /detokenize.
    """
    with_special = await _tokens(asker, prompts[0], special=True)
    without = await _tokens(asker, prompts[0], special=False)
    keep = max(1, tokens - (len(with_special) - len(without)))

    turns = asyncio.Semaphore(COUNTED_AT_ONCE)

    async def cut(prompt: str) -> str:
        async with turns:
            ids = await _tokens(asker, prompt, special=False)
            text = (await asker.call("/detokenize", {"tokens": ids[:keep]})).get("prompt")
        if not isinstance(text, str):
            raise ValueError("no prompt in the /detokenize response")  # noqa: TRY004 - one of FAILURES
        return text

    return await asyncio.gather(*map(cut, prompts))


async def _tokens(asker: ask.Asker, prompt: str, *, special: bool) -> list[int]:
    answer = await asker.call("/tokenize", {"prompt": prompt, "add_special_tokens": special})
    tokens = answer.get("tokens")
    if not isinstance(tokens, list):
        raise ValueError("no tokens in the /tokenize response")  # noqa: TRY004 - one of FAILURES
    return tokens


if __name__ == "__main__":
    main()
