"""One streaming request to an OpenAI-compatible endpoint, timed. The only file that imports aiohttp."""

import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp

from eval_jobs import limits
from eval_jobs.host.bounded.json_text import parse_json
from eval_jobs.host.bounded.replies import EVENT_BYTES, answer_bytes, redirect_problem, storable
from eval_jobs.host.loopback import LOOPBACK
from eval_jobs.probe.client.stream import DataLines, StreamEvent, read_event, server_message
from eval_jobs.probe.latency import Timeline

CONNECT_TIMEOUT_S = 10.0
MAX_ERROR_CHARS = 300

Session = aiohttp.ClientSession

FAILURES = (aiohttp.ClientError, TimeoutError, OSError, ValueError)
"""Every error that one request may raise, including `RequestRefused`."""


class RequestRefused(ValueError):
    """The endpoint responded with a status other than 200."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"HTTP {status}: {server_message(text)[:MAX_ERROR_CHARS]}")
        self.status = status


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """One way to request a response of a fixed length."""

    chat: bool = False
    ignore_eos: bool = True
    cache_salt: str = ""
    """vLLM: prevents hits in the prefix cache on prompts of an earlier probe."""

    @property
    def path(self) -> str:
        """Path below the base URL."""
        if self.chat:
            return "/chat/completions"
        return "/completions"

    def body(self, model: str, prompt: str, max_tokens: int) -> dict[str, object]:
        """Return the request body; sampling parameters are set, because servers' defaults differ."""
        body: dict[str, object] = {
            "model": model,
            "max_tokens": max_tokens,
            "temperature": 0.0,
            "top_p": 1.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        body |= {"messages": [{"role": "user", "content": prompt}]} if self.chat else {"prompt": prompt}
        if self.ignore_eos:
            body["ignore_eos"] = True
        if self.cache_salt:
            body["cache_salt"] = self.cache_salt
        return body


@dataclass(frozen=True, kw_only=True)
class Asker:
    """Sends requests to one model at one endpoint in one dialect."""

    session: Session
    base_url: str
    model: str
    dialect: Dialect

    @property
    def url(self) -> str:
        """URL that requests are sent to."""
        return self.base_url.rstrip("/") + self.dialect.path

    async def try_ask(self, prompt: str, max_tokens: int) -> Timeline:
        """Send a request and time the response.

        Raises:
            FAILURES: there was no complete response.
        """
        body = self.dialect.body(self.model, prompt, max_tokens)
        sent_s = time.perf_counter()
        async with self.session.post(self.url, json=body) as response:
            if response.status != 200:
                raise RequestRefused(response.status, await _text(response))
            return await _read(response, sent_s, answer_bytes(max_tokens, EVENT_BYTES))

    async def call(self, path: str, body: Mapping[str, object]) -> Mapping[str, object]:
        """Call one of vLLM's own routes, which are not below /v1, and return its JSON object.

        Raises:
            FAILURES: the server does not have the route, or rejects the request.
        """
        url = self.base_url.rstrip("/").removesuffix("/v1") + path
        async with self.session.post(url, json={"model": self.model, **body}) as response:
            text = await _text(response)
        if response.status != 200:
            raise RequestRefused(response.status, text)
        value = parse_json(text)
        if isinstance(value, dict):
            return value
        return {}

    async def ask(self, prompt: str, max_tokens: int) -> Timeline:
        """Send a request and time the response; a failure is a timeline with its reason."""
        sent_s = time.perf_counter()
        try:
            return await self.try_ask(prompt, max_tokens)
        except FAILURES as error:
            return Timeline(sent_s=sent_s, error=reason(error))


def open_session(base_url: str, *, api_key: str, request_timeout_s: float) -> Session:
    """Return a session that keeps its connections, so that only the first requests include connection setup."""
    redirects = aiohttp.TraceConfig()
    redirects.on_request_redirect.append(_check_redirect)
    return Session(
        trace_configs=[redirects],
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
        timeout=aiohttp.ClientTimeout(total=request_timeout_s, sock_connect=CONNECT_TIMEOUT_S),
        # A proxy from the environment must not be used for a server on this machine.
        trust_env=urlsplit(base_url).hostname not in LOOPBACK,
        headers={"Accept-Encoding": "identity", **({"Authorization": f"Bearer {api_key}"} if api_key else {})},
    )


def reason(error: BaseException) -> str:
    """Return the error as one line for messages."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, TimeoutError):
        text = f"request timed out ({error})".removesuffix(" ()")
    elif isinstance(error, RequestRefused) or type(error) is ValueError:
        text = str(error)
    return str(storable(limits.cut(text)))


async def _check_redirect(_: Session, __: object, redirect: aiohttp.TraceRequestRedirectParams) -> None:
    location = redirect.response.headers.get("location", "")
    if problem := redirect_problem(str(redirect.response.url), location):
        raise ValueError(problem)


async def _text(response: aiohttp.ClientResponse) -> str:
    return b"".join([part async for part in _parts(response, limits.REPLY.most)]).decode(errors="replace")


async def _parts(response: aiohttp.ClientResponse, most: int) -> AsyncIterator[bytes]:
    """Yield the parts of a body as they arrive, decompressed; ValueError if it is larger than `most`."""
    received = 0
    async for part in response.content.iter_any():
        received += len(part)
        if received > most:
            raise ValueError(f"response exceeds {most} bytes")
        yield part


async def _read(response: aiohttp.ClientResponse, sent_s: float, most: int) -> Timeline:
    lines, last = DataLines(), StreamEvent()
    events_s: list[float] = []
    done, output_tokens, prompt_tokens = False, None, None
    async for chunk in _parts(response, most):
        for last in map(read_event, lines.feed(chunk)):
            if last.error:
                raise ValueError(last.error)
            if last.has_choices:
                events_s.append(time.perf_counter())
            done = done or last.done
            # Some servers send usage with every event: the last one counts.
            output_tokens = output_tokens if last.output_tokens is None else last.output_tokens
            prompt_tokens = prompt_tokens if last.prompt_tokens is None else last.prompt_tokens
    if not (done and events_s):
        raise ValueError("the stream ended before the response was complete")
    return Timeline(sent_s=sent_s, events_s=tuple(events_s), output_tokens=output_tokens, prompt_tokens=prompt_tokens)
