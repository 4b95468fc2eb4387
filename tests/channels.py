"""Channels of every kind over services on this machine, opened as a project opens them."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from eval_jobs.host.clock import SystemClock
from eval_jobs.ports import Clock
from tests.fakes.chat_rules import (
    AlertmanagerRules,
    DingTalkRules,
    FeishuRules,
    SlackRules,
    WebhookRules,
    WeComRules,
)
from tests.fakes.chat_services import ChatService, Rules
from tests.requires import requires_binary
from tracker.adapters.alerts.opening import open_channels
from tracker.domain.alerts.channels import ChannelKind, ChannelSettings, MailRoute, MailSecurity, SecretSource
from tracker.ports import Notifier

SECRET = "SECdd07b0a3c5b94d0bb0e6d1a1+/=&"  # noqa: S105 - of services in this process
BEARER = "glsa_2f4a1bBEARER09TOKEN"


@dataclass(frozen=True)
class Wired:
    """A channel and the service behind it."""

    channel: Notifier
    service: ChatService


def rules_of(kind: ChannelKind) -> Rules:
    """Return the rules of a service that demands everything that it can demand."""
    rules: dict[ChannelKind, Rules] = {
        ChannelKind.SLACK: SlackRules(),
        ChannelKind.DINGTALK: DingTalkRules(secret=SECRET, keyword="step"),
        ChannelKind.WECOM: WeComRules(),
        ChannelKind.FEISHU: FeishuRules(secret=SECRET, keyword="step"),
        ChannelKind.LARK: FeishuRules(secret=SECRET, is_old=True),
        ChannelKind.WEBHOOK: WebhookRules(secret=SECRET),
        ChannelKind.ALERTMANAGER: AlertmanagerRules(authorization=f"Bearer {BEARER}"),
    }
    return rules[kind]


KINDS = tuple(kind for kind in ChannelKind if kind not in {ChannelKind.EMAIL, ChannelKind.APPRISE})
SECRETS = {
    ChannelKind.DINGTALK: SECRET,
    ChannelKind.FEISHU: SECRET,
    ChannelKind.LARK: SECRET,
    ChannelKind.WEBHOOK: SECRET,
    ChannelKind.ALERTMANAGER: BEARER,
}


def opened(
    kind: ChannelKind, url: str, folder: Path, *, secret: str = "", clock: Clock | None = None, patience_s: float = 25.0
) -> Notifier:
    """Return a channel whose address and key stand in files."""
    folder.mkdir(exist_ok=True)
    (folder / "url").write_text(f"{url}\n")
    settings = ChannelSettings(name="team", kind=kind, url_place=SecretSource(file=folder / "url"))
    if secret:
        (folder / "secret").write_text(secret)
        settings = replace(settings, secret_place=SecretSource(file=folder / "secret"))
    return open_channels((settings,), clock or SystemClock(), patience_s=patience_s)[0]


@contextmanager
def wired(kind: ChannelKind, folder: Path, *, rules: Rules | None = None, patience_s: float = 25.0) -> Iterator[Wired]:
    """Yield a channel with the service behind it, which runs until the end."""
    with ChatService(rules or rules_of(kind)) as service:
        secret = SECRETS.get(kind, "")
        yield Wired(opened(kind, service.url, folder, secret=secret, patience_s=patience_s), service)


def mail_channel(
    port: int,
    folder: Path,
    *,
    user: str = "",
    password: str = "",
    security: MailSecurity = MailSecurity.NONE,
    recipients: tuple[str, ...] = ("team@example.org",),
    patience_s: float = 25.0,
) -> Notifier:
    """Return a channel by e-mail to a server on this machine."""
    route = MailRoute(
        host="localhost", port=port, security=security, sender="tracker@example.org", recipients=recipients
    )
    place = SecretSource()
    if password:
        (folder / "password").write_text(password)
        place = SecretSource(file=folder / "password")
    settings = ChannelSettings(name="team", kind=ChannelKind.EMAIL, user=user, secret_place=place, mail=route)
    return open_channels((settings,), SystemClock(), patience_s=patience_s)[0]


def self_signed(folder: Path) -> tuple[str, str]:
    """Return files of chain and key of `localhost`, for which nobody but itself vouches."""
    chain, key = str(folder / "chain.pem"), str(folder / "key.pem")
    command = [
        str(requires_binary("openssl")),
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
    ]
    name = ["-nodes", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "3650"]
    subprocess.run([*command, *name, "-keyout", key, "-out", chain], check=True, capture_output=True)
    return chain, key
