"""HTTP to the services: one request and one response, in bounded time."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import httpx

from eval_jobs.backoff import retry_after_s
from eval_jobs.errors import ChannelUnreachable
from eval_jobs.host.bounded.answers import decoded
from eval_jobs.host.bounded.json_text import parse_json
from eval_jobs.host.loopback import LOOPBACK
from eval_jobs.limits import CHANNEL_ANSWER
from tracker.adapters.alerts.sending.target import Target, within

MAX_RETRY_AFTER_S = 24 * 3600.0
_authorities = cache(httpx.create_ssl_context)  # loading them takes longer than everything else
JSON = {"Content-Type": "application/json; charset=utf-8"}
_LATER = {408, 425, 429}

# They log URLs, which are secrets here.
logging.getLogger("httpx").setLevel(logging.WARNING)
logging.getLogger("httpcore").setLevel(logging.WARNING)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A service's response with a 2xx status."""

    status: int
    body: str


def json_bytes(value: object) -> bytes:
    """Return a value as compact JSON in UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def json_long(text: str) -> int:
    """Return the size of `text` inside a JSON document, in bytes."""
    return len(json.dumps(text, ensure_ascii=False).encode()) - 2


def post(
    target: Target, body: bytes, *, url: str = "", headers: Mapping[str, str] = JSON, auth: httpx.Auth | None = None
) -> Reply:
    """Send `body` and return the response, which has a 2xx status. Redirects are not followed: they could leak the key.

    `url` replaces that of the channel.

    Raises:
        ChannelUnreachable: no complete response in time, or status 408, 425, 429 or 5xx.
        ChannelRefused: any other status.
    """
    sending = partial(_answer_to, target, body, url or target.url, headers, auth)
    try:
        response = within(target.patience_s + 2, sending)
    except (TimeoutError, httpx.TimeoutException) as error:
        raise target.unreachable(f"no response within {target.patience_s:g} s") from error
    except (httpx.HTTPError, httpx.InvalidURL, ImportError, OSError, ValueError) as error:
        # The text of httpx's errors is often empty. A SOCKS proxy would need another package (ImportError).
        raise target.unreachable(f"request failed: {type(error).__name__} {_reason(error)}") from error
    return _taken(target, *response)


def _taken(target: Target, status: int, text: str, header: str) -> Reply:
    """Return the response if its status is 2xx; raises as `post`."""
    if 200 <= status < 300:
        return Reply(status=status, body=text)
    answer = f"HTTP {status} {text}"
    if status in _LATER or status >= 500:
        asked_s = retry_after_s(header, target.clock.now(), longest_s=MAX_RETRY_AFTER_S)
        raise target.unreachable(answer, retry_after_s=asked_s)
    if 300 <= status < 400:
        hint = f"set this channel's {target.url_setting} to the URL that it redirects to"
        raise target.refused(f"HTTP {status}: redirected", hint=hint)
    hint = target.look_at_secret() if status == 401 else target.look_at_url()
    raise target.refused(answer, hint=hint)


def json_object(target: Target, reply: Reply) -> dict[str, Any]:
    """Return the JSON object in a response.

    Raises:
        ChannelUnreachable: there is none, so the response is not from the service but from a proxy or a login page.
    """
    try:
        value = parse_json(reply.body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise unknown_answer(target, reply)
    return value


def unknown_answer(target: Target, reply: Reply) -> ChannelUnreachable:
    """Return the error for a response that this service never sends."""
    return target.unreachable(f"unexpected response, HTTP {reply.status}: {reply.body or 'empty'}")


def _reason(error: BaseException) -> str:
    """Return the text of the root cause: `All connection attempts failed` does not explain a failure."""
    text = str(error)
    inner = error.__cause__ or error.__context__
    while inner is not None:
        text = str(inner) or text
        inner = inner.__cause__ or inner.__context__
    return text


def _answer_to(
    target: Target, body: bytes, address: str, headers: Mapping[str, str], auth: httpx.Auth | None
) -> tuple[int, str, str]:
    """Return status, text and Retry-After; `within` ends what neither connects nor sends, the clock what sends on."""
    url, ends_s = httpx.URL(address), target.clock.monotonic_s() + target.patience_s
    # Plain, because httpx decompresses without a limit.
    sent = {**headers, "Accept-Encoding": "identity"}
    with (
        httpx.Client(**_options(url, target.patience_s)) as client,
        client.stream("POST", url, content=body, headers=sent, auth=auth) as response,
    ):
        answer = b""
        for chunk in response.iter_raw():
            answer += chunk
            if len(answer) > CHANNEL_ANSWER.most:
                break
            if target.clock.monotonic_s() > ends_s:
                raise TimeoutError
        encoding = response.headers.get("Content-Encoding", "").lower()
        text = decoded([answer[: CHANNEL_ANSWER.most]], encoding, CHANNEL_ANSWER).decode(errors="replace")
        return response.status_code, text, response.headers.get("Retry-After", "")


def _options(url: httpx.URL, patience_s: float) -> dict[str, Any]:
    # A proxy from the environment is not for loopback addresses.
    is_outside = url.host not in LOOPBACK
    return {"timeout": patience_s, "follow_redirects": False, "trust_env": is_outside, "verify": _authorities()}
