"""Settings and secrets -> notification channels."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from eval_jobs.errors import ChannelUnreachable, ConfigError
from eval_jobs.host.loopback import LOOPBACK
from eval_jobs.host.secrets import register_secret
from eval_jobs.ports import Clock
from tracker.adapters.alerts.channels.alertmanager import Alertmanager
from tracker.adapters.alerts.channels.dingtalk import DingTalk
from tracker.adapters.alerts.channels.feishu import Feishu
from tracker.adapters.alerts.channels.mail import Mail
from tracker.adapters.alerts.channels.slack import Slack
from tracker.adapters.alerts.channels.webhook import Webhook, key_of
from tracker.adapters.alerts.channels.wecom import WeCom
from tracker.adapters.alerts.sending.target import Target, hidden_parts
from tracker.adapters.secrets import read_secret
from tracker.domain.alerts.channels import ChannelKind, ChannelSettings, SecretSource
from tracker.domain.records.alerts import AlertMessage
from tracker.ports import Notifier

PATIENCE_S = 25.0


def open_channels(
    channels: Sequence[ChannelSettings], clock: Clock, *, patience_s: float = PATIENCE_S
) -> tuple[Notifier, ...]:
    """Return the channels, in order. Nothing is sent, and no service is contacted.

    Raises:
        ConfigError: a secret is missing, a URL is invalid, or a library is not installed.
    """
    return tuple(_open(channel, clock, patience_s) for channel in channels)


@dataclass(frozen=True, kw_only=True)
class ClosedChannel:
    """A channel without its secret in this process: alerts are queued for it, and a process with the secret sends them.

    The watcher keeps the environment of its start; `tracker accept` in another shell may lack the secret.
    """

    name: str
    why: ConfigError
    repeat_s: float | None = None

    def notify(self, message: AlertMessage) -> str:
        """Send nothing.

        Raises:
            ChannelUnreachable: always; another process may send it.
        """
        what = f"cannot send an alert of {message.run_id} from this process: {self.why.message}"
        raise ChannelUnreachable(what, hint=f"{self.why.hint}, or let `tracker watch` send it")


def open_what_can_be(channels: Sequence[ChannelSettings], clock: Clock) -> tuple[Notifier, ...]:
    """Return the channels, in order; one that cannot be opened here becomes a `ClosedChannel`."""
    found: list[Notifier] = []
    for channel in channels:
        try:
            found.append(_open(channel, clock, PATIENCE_S))
        except ConfigError as error:
            found.append(ClosedChannel(name=channel.name, why=error))
    return tuple(found)


_HttpChannel = Alertmanager | DingTalk | Feishu | Slack | Webhook | WeCom
_SERVICES: dict[ChannelKind | str, tuple[str, type[_HttpChannel]]] = {
    ChannelKind.SLACK: ("Slack", Slack),
    ChannelKind.DINGTALK: ("DingTalk", DingTalk),
    ChannelKind.WECOM: ("WeCom", WeCom),
    ChannelKind.FEISHU: ("Feishu", Feishu),
    ChannelKind.LARK: ("Lark", Feishu),
    ChannelKind.WEBHOOK: ("the receiver", Webhook),
    ChannelKind.ALERTMANAGER: ("Alertmanager", Alertmanager),
}
_INSIDE = {ChannelKind.WEBHOOK, ChannelKind.ALERTMANAGER}
"""Allowed without TLS: they run in the user's own network, and their URL is not a secret."""


def _read(place: SecretSource, setting: str) -> str:
    return read_secret(variable=place.variable, file=place.file, setting=setting)


def _open(channel: ChannelSettings, clock: Clock, patience_s: float) -> Notifier:
    if channel.program is not None:
        from tracker.adapters.alerts.channels.plugin_channel import PluginChannel

        return PluginChannel(channel.name, channel.program, patience_s=patience_s)
    secret = _read(channel.secret_place, "alerts.channel.secret")
    url, service, url_setting = _address(channel)
    target = Target(
        channel=channel.name,
        service=service,
        url=url,
        url_setting=url_setting,
        host="" if channel.kind is ChannelKind.APPRISE else urlsplit(url).hostname or "",
        clock=clock,
        user=channel.user,
        secret=secret,
        secret_setting=_named(channel.secret_place, "secret"),
        patience_s=patience_s,
    )
    is_secret = channel.mail is None and not channel.url
    for part in hidden_parts(url if is_secret else "", secret, channel.user):
        register_secret(part)  # a log line may contain a part of the URL
    if channel.mail is not None:
        return Mail(target=target, route=channel.mail)
    if channel.kind is ChannelKind.APPRISE:
        return _open_apprise(target)
    if channel.kind is ChannelKind.WEBHOOK:
        _check_key(channel, secret)
    return _SERVICES[channel.kind][1](target=target)


def _address(channel: ChannelSettings) -> tuple[str, str, str]:
    """Return the URL, the name of the service, and the setting that the URL comes from, for messages."""
    if channel.mail is not None:
        host = f"[{channel.mail.host}]" if ":" in channel.mail.host else channel.mail.host
        return f"smtp://{host}:{channel.mail.port}", "mail server", "`host`"
    url, setting = channel.url, "`url`"
    if not url:
        url, setting = _read(channel.url_place, "alerts.channel.url"), _named(channel.url_place, "url")
    service = "apprise"
    if channel.kind is not ChannelKind.APPRISE:
        service = _SERVICES[channel.kind][0]
        _check_address(channel, url)
    return url, service, setting


def _named(place: SecretSource, setting: str) -> str:
    if place.variable:
        return f"`{setting}_env` ({place.variable})"
    return f"`{setting}_file`"


def _check_address(channel: ChannelSettings, url: str) -> None:
    hint = "copy the complete URL from the service into this channel's url setting"
    if not _is_web_address(url) or url != "".join(url.split()) or not url.isascii():
        raise ConfigError(f"channel {channel.name!r}: invalid URL (expected https://...)", hint=hint)
    parts = urlsplit(url)
    if parts.scheme == "http" and channel.kind not in _INSIDE and parts.hostname not in LOOPBACK:
        what = "the URL is a secret and requires https://"
        raise ConfigError(f"channel {channel.name!r}: {what}", hint="use the https:// URL")


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _check_key(channel: ChannelSettings, secret: str) -> None:
    try:
        key_of(secret)
    except ValueError as error:
        hint = "copy the complete key from the receiver into this channel's secret setting"
        raise ConfigError(f"channel {channel.name!r}: {error}", hint=hint) from error


def _open_apprise(target: Target) -> Notifier:
    try:
        from tracker.adapters.alerts.channels.catch_all import open_apprise
    except ModuleNotFoundError as error:
        if error.name != "apprise":
            raise
        hint = "install it: pip install 'checkpoint-tracker[apprise]'"
        raise ConfigError(f"channel {target.channel!r} requires the Python package apprise", hint=hint) from error
    return open_apprise(target)
