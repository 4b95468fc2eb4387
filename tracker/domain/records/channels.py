"""Which channels there are to people, and what opening one takes. Frozen values; no secret is in them."""

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
    """How the connection to a mail server is made safe."""

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
    """From whom to whom, and over which server."""

    host: str
    port: int
    security: MailSecurity
    sender: str
    recipients: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ChannelSettings:
    """One channel, as it is set."""

    name: str
    kind: ChannelKind | str
    """A text: the name of a channel of another package."""
    url: str = ""
    """Where the address is no secret; else empty, and `url_place` says where it is."""
    url_place: SecretSource = SecretSource()
    secret_place: SecretSource = SecretSource()
    """Of the key for signing, or of the password or token."""
    user: str = ""
    mail: MailRoute | None = None
    """Of a channel by e-mail; others have none."""
    program: Program | None = None
    """Of a channel of another package; others have none."""
