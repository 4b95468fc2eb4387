"""Tables of tracker.toml: who is told, and how."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from tracker.config.programs import MAY_BE_A_NAME, Options, program_of
from tracker.config.section import AnchoredPath, Section, named_twice, record_of, without_key
from tracker.domain.alerts.channels import ChannelKind, ChannelSettings, MailRoute, MailSecurity, SecretSource
from tracker.domain.records.alerts import Patience

_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9.-]+")
_PORTS = {MailSecurity.STARTTLS: 587, MailSecurity.TLS: 465, MailSecurity.NONE: 25}
_MAY_BE_PLAIN = {ChannelKind.WEBHOOK, ChannelKind.ALERTMANAGER}
_TAKES_NO_SECRET = {ChannelKind.SLACK, ChannelKind.WECOM, ChannelKind.APPRISE}
_TAKES_A_USER = {ChannelKind.EMAIL, ChannelKind.ALERTMANAGER}
_OF_MAIL = ("host", "port", "security", "sender", "recipients")


class ChannelSection(Section):
    """An alert channel. Its address and key are secrets: keep them in the environment or in a file."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    """Name of the channel in `tracker alerts`."""
    kind: Annotated[ChannelKind | str, MAY_BE_A_NAME] = Field(union_mode="left_to_right")
    """`slack`, `dingtalk`, `wecom`, `feishu`, `lark`, `webhook`, `email`, `alertmanager`, `apprise` or the name
    of a plugin channel."""
    url: str = ""
    """URL of a `webhook` or an `alertmanager`, without credentials."""
    url_env: str = ""
    """Environment variable that contains the URL."""
    url_file: AnchoredPath | None = None
    """File with the URL in its first line."""
    secret_env: str = ""
    """Environment variable that contains the signing key (`dingtalk`, `feishu`, `lark`, `webhook`), the
    password (`email`, `alertmanager` with `user`) or the bearer token (`alertmanager`)."""
    secret_file: AnchoredPath | None = None
    """File with that secret in its first line."""
    user: str = ""
    """User name for the mail server or Alertmanager."""
    host: str = ""
    """Mail server."""
    port: int | None = Field(default=None, ge=1, le=65535)
    """Port of the mail server. Default: 587; 465 with `tls`; 25 with `none`."""
    security: MailSecurity = MailSecurity.STARTTLS
    """Connection to the mail server: `starttls`, `tls` or `none`."""
    sender: str = ""
    """Sender address."""
    recipients: tuple[str, ...] = ()
    """Recipient addresses."""
    options: Options = Field(default={})
    """Settings of a plugin channel, which uses no others except `name` and `kind`."""

    @property
    def is_mail(self) -> bool:
        """Whether it sends mails."""
        return self.kind is ChannelKind.EMAIL

    @property
    def has_secret(self) -> bool:
        """Whether a key or a password is named."""
        return bool(self.secret_env) or self.secret_file is not None

    @property
    def is_plugin(self) -> bool:
        """Whether another package brings it."""
        return not isinstance(self.kind, ChannelKind)

    @model_validator(mode="after")
    def _has_options_of_its_own_or_none(self) -> ChannelSection:
        given = sorted(self.model_fields_set - {"name", "kind", "options"})
        if self.is_plugin and given:
            known = ", ".join(ChannelKind)
            raise ValueError(f"unknown kind {self.kind} (known: {known}); if it is a plugin channel, remove {given[0]}")
        if self.options and not self.is_plugin:
            raise ValueError(f"{self.kind} is a built-in channel: remove options")
        return self

    @field_validator("url")
    @classmethod
    def _holds_no_key(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError("it must start with http:// or https://")
        return without_key(value, instead="use secret_env or secret_file for it, or url_env for the whole URL")

    @model_validator(mode="after")
    def _says_once_where_its_address_is(self) -> ChannelSection:
        given = [bool(self.url), bool(self.url_env), self.url_file is not None].count(True)
        if self.is_mail and given:
            raise ValueError("an email channel has no url: set host, sender and recipients")
        if self.is_plugin or self.is_mail:
            return self
        if self.url and self.kind not in _MAY_BE_PLAIN:
            raise ValueError(
                f"the URL of {self.kind} is a secret: set url_env to an environment variable, "
                "or url_file to a file that contains it"
            )
        if given != 1:
            plain = "url, " if self.kind in _MAY_BE_PLAIN else ""
            raise ValueError(f"set exactly one of {plain}url_env and url_file")
        return self

    @model_validator(mode="after")
    def _has_a_key_where_it_is_used(self) -> ChannelSection:
        if self.secret_env and self.secret_file is not None:
            raise ValueError("set secret_env or secret_file, not both")
        if self.has_secret and self.kind in _TAKES_NO_SECRET:
            raise ValueError(f"{self.kind} does not use a secret: remove secret_env and secret_file")
        return self

    @model_validator(mode="after")
    def _has_a_user_with_a_password(self) -> ChannelSection:
        if self.user and self.kind not in _TAKES_A_USER:
            raise ValueError(f"{self.kind} does not use a user name: remove user")
        if self.user and not self.has_secret:
            raise ValueError("user requires a password: set secret_env or secret_file")
        if self.has_secret and self.is_mail and not self.user:
            raise ValueError("a password requires a user name: set user")
        return self

    @model_validator(mode="after")
    def _has_what_a_mail_needs_or_nothing_of_it(self) -> ChannelSection:
        if not self.is_mail:
            for name in _OF_MAIL:
                if name in self.model_fields_set:
                    raise ValueError(f"{name} is only for email channels: remove it")
            return self
        missing = [name for name in ("host", "sender", "recipients") if not getattr(self, name)]
        if missing:
            raise ValueError(f"an email channel requires {' and '.join(missing)}")
        wrong = [address for address in (self.sender, *self.recipients) if not _ADDRESS.fullmatch(address)]
        if wrong:
            raise ValueError("sender and recipients must be plain addresses, such as team@example.org")
        if self.user and self.security is MailSecurity.NONE:
            raise ValueError('with security = "none" the password is sent unencrypted: use starttls or tls')
        return self

    def variables(self) -> tuple[str, ...]:
        """Return the names of the environment variables that hold its address and keys."""
        own = (value for name, value in self.options.items() if name.endswith("_env") and isinstance(value, str))
        return tuple(filter(None, (self.url_env, self.secret_env, *own)))

    def to_channel(self) -> ChannelSettings:
        """Return the record for opening it."""
        mail = None
        if self.is_mail:
            mail = record_of(MailRoute, self, port=self.port or _PORTS[self.security])
        return record_of(
            ChannelSettings,
            self,
            url_place=SecretSource(variable=self.url_env, file=self.url_file),
            secret_place=SecretSource(variable=self.secret_env, file=self.secret_file),
            mail=mail,
            program=program_of(self.kind, self.options) if self.is_plugin else None,
        )


class AlertsSection(Section, Patience):
    """Alerts and their channels. Alerts are always logged too."""

    leading = ("link", "lost_samples", "log_lines")
    link: str = ""
    """Link shown with every alert; `{run}` and `{step}` are substituted."""
    lost_samples: int = Field(default=3, ge=0, le=10)
    """Number of lost samples to quote in an alert; 0: none."""
    log_lines: int = Field(default=5, ge=0, le=20)
    """Number of lines of the trainer's log to quote in an alert; 0: no line leaves the machine."""
    channel: tuple[ChannelSection, ...] = ()

    @field_validator("link")
    @classmethod
    def _is_an_address_for_all(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError("it must start with http:// or https://")
        return without_key(value, instead="it is visible to everyone who receives an alert")

    @field_validator("channel")
    @classmethod
    def _names_are_unique(cls, value: tuple[ChannelSection, ...]) -> tuple[ChannelSection, ...]:
        if twice := named_twice(channel.name for channel in value):
            raise ValueError(f"duplicate channel name {twice!r}: set a different name")
        return value

    def to_patience(self) -> Patience:
        """Return the record for the stall monitor."""
        return record_of(Patience, self)

    def variables(self) -> tuple[str, ...]:
        """Return the names of the environment variables that hold addresses and keys."""
        return tuple(name for one in self.channel for name in one.variables())

    def to_channels(self) -> tuple[ChannelSettings, ...]:
        """Return the records for opening the channels."""
        return tuple(one.to_channel() for one in self.channel)
