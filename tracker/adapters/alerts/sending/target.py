"""Address of a channel, its errors, whose texts never contain a secret, and work with a timeout."""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Semaphore
from typing import ClassVar, TypeVar
from urllib.parse import parse_qsl, urlsplit

from eval_jobs.errors import ChannelRefused, ChannelUnreachable
from eval_jobs.host.bounded.answers import in_thread
from eval_jobs.host.secrets import masked
from eval_jobs.ports import Clock
from tracker.domain.records.display import one_line, shortened

Result = TypeVar("Result")

MIN_TOKEN_CHARS = 16
"""Shorter parts of a URL are words, not tokens."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """One channel's address and key."""

    channel: str
    """Name in the settings."""
    service: str
    """Name of the service, such as `DingTalk`."""
    url: str = field(repr=False)
    url_setting: str
    """Setting that the URL comes from, such as `url_env`."""
    host: str
    """Part of the URL that may be shown; empty: none."""
    clock: Clock
    user: str = ""
    secret: str = field(default="", repr=False)
    """Signing key, password or token; empty: none."""
    secret_setting: str = "secret_env"  # noqa: S105 - a name
    patience_s: float = 25.0
    """Timeout of a request, in seconds."""

    @property
    def place(self) -> str:
        """Name of the channel, with service and host."""
        return f"channel {self.channel!r} ({self.service}{f' at {self.host}' if self.host else ''})"

    def harmless(self, foreign: object) -> str:
        """Return the text of a service or a library as one short line without secrets."""
        return shortened(one_line(masked(str(foreign), hidden_parts(self.url, self.secret, self.user))), 300)

    def unreachable(self, what: object, *, retry_after_s: float | None = None) -> ChannelUnreachable:
        """Return the error for no response or a temporary refusal."""
        context = {} if retry_after_s is None else {"retry_after_s": retry_after_s}
        hint = f"pending alerts are retried; if this persists, check the network and this channel's {self.url_setting}"
        return ChannelUnreachable(f"{self.place}: {self.harmless(what)}", hint=hint, **context)

    def refused(self, what: object, *, hint: str) -> ChannelRefused:
        """Return the error for a message that the service rejects."""
        return ChannelRefused(f"{self.place}: {self.harmless(what)}", hint=hint)

    def look_at_url(self) -> str:
        """Return the hint for a wrong URL."""
        return f"copy the URL from {self.service} into this channel's {self.url_setting} again"

    def look_at_secret(self) -> str:
        """Return the hint for a wrong key or signature."""
        return f"set or fix the key in this channel's {self.secret_setting}, or fix this machine's clock"


@dataclass(frozen=True, kw_only=True)
class Channel:
    """Base class of our channels: their services keep accepted messages, so nothing is repeated."""

    target: Target
    repeat_s: ClassVar[float | None] = None
    """Interval of `ports.Notifier`."""

    @property
    def name(self) -> str:
        """Name of the channel in the settings."""
        return self.target.channel


def hmac_base64(key: bytes, data: bytes) -> str:
    """Return the HMAC-SHA256 of `data` in base64, as most services expect a signature."""
    return base64.b64encode(hmac.new(key, data, hashlib.sha256).digest()).decode()


def within(seconds: float, work: Callable[[], Result], alone: Semaphore | None = None) -> Result:
    """Return what `work` returns, or raise what it raises.

    A name lookup cannot be interrupted, so `work` runs in a thread that may outlive the call; with the same `alone`,
    there is at most one such thread.

    Raises:
        TimeoutError: `work` had not ended after `seconds`, or that of an earlier call has not ended yet.
    """
    alone = alone or Semaphore()
    if not alone.acquire(blocking=False):
        raise TimeoutError

    def run() -> Result:
        try:
            return work()
        finally:
            alone.release()

    return in_thread("alert channel", run).result(timeout=seconds)


def hidden_parts(url: str, secret: str, user: str = "") -> frozenset[str]:
    """Return the texts to hide of a URL and its key: both, and the tokens in path and query."""
    try:
        parts = urlsplit(url)
    except ValueError:  # it is rejected as an invalid URL
        parts = urlsplit("")
    tokens = {value for _, value in parse_qsl(parts.query)} | set(parts.path.split("/"))
    if parts.scheme not in {"http", "https", "smtp"}:  # elsewhere the host may be a token
        tokens |= set(re.split(r"[@:]", parts.netloc))
    long = {token for token in tokens if len(token) >= MIN_TOKEN_CHARS}
    query = f"{parts.path}?{parts.query}" if parts.query else ""
    return frozenset({url, query, parts.password or ""} | long | _as_sent(user, secret))


def _as_sent(user: str, secret: str) -> set[str]:
    """Return a key in the forms in which it is sent: plain, for HTTP, and in the two ways of a mail server."""
    if not secret:
        return set()
    texts = (f"{user}:{secret}", f"\0{user}\0{secret}", secret)
    return {secret} | {base64.b64encode(text.encode()).decode() for text in texts}
