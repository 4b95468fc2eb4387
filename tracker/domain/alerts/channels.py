"""Kinds and settings of notification channels. Frozen values; they contain no secret."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from eval_jobs.records.program import Program


class ChannelKind(StrEnum):
    """The service behind a channel."""

    SLACK = "slack"
    DINGTALK = "dingtalk"
    WECOM = "wecom"
    FEISHU = "feishu"
    LARK = "lark"
    WEBHOOK = "webhook"
    EMAIL = "email"
    ALERTMANAGER = "alertmanager"
    APPRISE = "apprise"


class MailSecurity(StrEnum):
    """Encryption of the connection to a mail server."""

    STARTTLS = "starttls"
    TLS = "tls"
    NONE = "none"


@dataclass(frozen=True, kw_only=True)
class SecretSource:
    """Where a secret is: an environment variable, the first line of a file, or nowhere."""

    variable: str = ""
    file: Path | None = None


@dataclass(frozen=True, kw_only=True)
class MailRoute:
    """Sender, recipients and server of e-mail."""

    host: str
    port: int
    security: MailSecurity
    sender: str
    recipients: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ChannelSettings:
    """Settings of one channel."""

    name: str
    kind: ChannelKind | str
    """A plain string is the name of a channel of another package."""
    url: str = ""
    """Set if the address is no secret; else empty, and `url_place` is its source."""
    url_place: SecretSource = SecretSource()
    secret_place: SecretSource = SecretSource()
    """Source of the signing key, or of the password or token."""
    user: str = ""
    mail: MailRoute | None = None
    """Only for e-mail channels."""
    program: Program | None = None
    """Only for channels of another package."""
