"""Tables of tracker.toml: who is told, and how."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import Field, field_validator, model_validator

from tracker.config.programs import Options, anchored_options, checked_name, program_of
from tracker.config.section import Section, named_twice, record_of, without_key
from tracker.domain.records.alerts import Patience
from tracker.domain.records.channels import ChannelKind, ChannelSettings, MailRoute, MailSecurity, SecretSource

_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9.-]+")
_PORTS = {MailSecurity.STARTTLS: 587, MailSecurity.TLS: 465, MailSecurity.NONE: 25}
_MAY_BE_PLAIN = {ChannelKind.WEBHOOK, ChannelKind.ALERTMANAGER}
_TAKES_A_SECRET = {
    ChannelKind.DINGTALK,
    ChannelKind.FEISHU,
    ChannelKind.LARK,
    ChannelKind.WEBHOOK,
    ChannelKind.EMAIL,
    ChannelKind.ALERTMANAGER,
}
_TAKES_A_USER = {ChannelKind.EMAIL, ChannelKind.ALERTMANAGER}
_OF_MAIL = ("host", "port", "security", "sender", "recipients")


class ChannelSection(Section):
    """One way to reach people. Its address and its key are secrets: they stand in the environment or in a file."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    """Name of the channel, as `tracker alerts` shows it."""
    kind: ChannelKind | str = Field(union_mode="left_to_right")
    """`slack`, `dingtalk`, `wecom`, `feishu`, `lark`, `webhook`, `email`, `alertmanager` or `apprise`, or a channel of
    another package (docs/extending.md)."""
    url: str = ""
    """Address of a `webhook` or an `alertmanager`, without a key in it."""
    url_env: str = ""
    """Environment variable that holds the address."""
    url_file: Path | None = None
    """File whose first line is the address."""
    secret_env: str = ""
    """Environment variable that holds the key for signing (`dingtalk`, `feishu`, `lark`, `webhook`), the password
    (`email`, `alertmanager` with `user`) or the bearer token (`alertmanager`)."""
    secret_file: Path | None = None
    """File whose first line is that key."""
    user: str = ""
    """User at the mail server or at the Alertmanager."""
    host: str = ""
    """Mail server."""
    port: int | None = Field(default=None, ge=1, le=65535)
    """Its port. Default: 587, with `tls` 465, with `none` 25."""
    security: MailSecurity = MailSecurity.STARTTLS
    """Connection to the mail server: `starttls`, `tls` or `none`."""
    sender: str = ""
    """Address from which mails are sent."""
    recipients: tuple[str, ...] = ()
    """Addresses to which mails are sent."""
    options: Options = Field(default={})
    """Settings of a channel of another package; it takes no others."""

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

    @field_validator("kind")
    @classmethod
    def _may_be_a_name(cls, value: ChannelKind | str) -> ChannelKind | str:
        if isinstance(value, ChannelKind):
            return value
        return checked_name(value)

    @model_validator(mode="after")
    def _has_options_of_its_own_or_none(self) -> ChannelSection:
        given = sorted(self.model_fields_set - {"name", "kind", "options"})
        if self.is_plugin and given:
            known = ", ".join(ChannelKind)
            raise ValueError(f"{self.kind} is none of {known}; a channel of another package takes no {given[0]}")
        if self.options and not self.is_plugin:
            raise ValueError(f"options are for a channel of another package, and {self.kind} is built in")
        return self

    @field_validator("url")
    @classmethod
    def _holds_no_key(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError("it must begin with http:// or https://")
        return without_key(value, instead="name it with secret_env or secret_file, or the whole address with url_env")

    @model_validator(mode="after")
    def _a_mail_has_no_address(self) -> ChannelSection:
        if self.is_mail and (self.url or self.url_env or self.url_file):
            raise ValueError("a channel by email has no url: set host, sender and recipients")
        return self

    @model_validator(mode="after")
    def _says_once_where_its_address_is(self) -> ChannelSection:
        if self.is_plugin or self.is_mail:
            return self
        if self.url and self.kind not in _MAY_BE_PLAIN:
            raise ValueError(
                f"the address of {self.kind} is a secret: put it into the environment and name it with url_env, "
                "or into a file and name it with url_file"
            )
        given = [bool(self.url), bool(self.url_env), self.url_file is not None].count(True)
        if given != 1:
            plain = "url, " if self.kind in _MAY_BE_PLAIN else ""
            raise ValueError(f"set one of {plain}url_env and url_file{', not several' if given else ''}")
        return self

    @model_validator(mode="after")
    def _has_a_key_only_where_one_is_used(self) -> ChannelSection:
        if self.secret_env and self.secret_file is not None:
            raise ValueError("set secret_env or secret_file, not both")
        if self.has_secret and self.kind not in _TAKES_A_SECRET:
            raise ValueError(f"{self.kind} signs nothing: leave secret_env and secret_file out")
        return self

    @model_validator(mode="after")
    def _has_a_user_and_a_password_together(self) -> ChannelSection:
        if self.user and self.kind not in _TAKES_A_USER:
            raise ValueError(f"{self.kind} knows no user: leave it out")
        if self.user and not self.has_secret:
            raise ValueError("user needs a password: name it with secret_env or secret_file")
        if self.has_secret and self.is_mail and not self.user:
            raise ValueError("a password needs its user")
        return self

    @model_validator(mode="after")
    def _is_a_mail_or_has_nothing_of_one(self) -> ChannelSection:
        for name in _OF_MAIL:
            if name in self.model_fields_set and not self.is_mail:
                raise ValueError(f"{name} is for a channel of the kind email: leave it out")
        return self

    @model_validator(mode="after")
    def _a_mail_has_all_that_it_needs(self) -> ChannelSection:
        if not self.is_mail:
            return self
        missing = [name for name in ("host", "sender", "recipients") if not getattr(self, name)]
        if missing:
            raise ValueError(f"a channel by email needs {' and '.join(missing)}")
        wrong = [address for address in (self.sender, *self.recipients) if not _ADDRESS.fullmatch(address)]
        if wrong:
            raise ValueError("sender and recipients are plain addresses, such as team@example.org")
        if self.user and self.security is MailSecurity.NONE:
            raise ValueError("with security none the password could be read on the way: use starttls or tls")
        return self

    def anchored(self, folder: Path) -> ChannelSection:
        """Return it with its files in `folder`, unless they are absolute."""
        files = {"url_file": self.url_file, "secret_file": self.secret_file}
        found: dict[str, object] = {key: folder / file for key, file in files.items() if file is not None}
        return self.model_copy(update=found | {"options": anchored_options(self.options, folder)})

    def variables(self) -> tuple[str, ...]:
        """Return the names of the environment variables that hold its address and keys."""
        own = (value for name, value in self.options.items() if name.endswith("_env") and isinstance(value, str))
        return tuple(filter(None, (self.url_env, self.secret_env, *own)))

    def to_channel(self) -> ChannelSettings:
        """Return the record for opening it."""
        mail = None
        if self.is_mail:
            mail = MailRoute(
                host=self.host,
                port=self.port or _PORTS[self.security],
                security=self.security,
                sender=self.sender,
                recipients=self.recipients,
            )
        return ChannelSettings(
            name=self.name,
            kind=self.kind,
            url=self.url,
            url_place=SecretSource(variable=self.url_env, file=self.url_file),
            secret_place=SecretSource(variable=self.secret_env, file=self.secret_file),
            user=self.user,
            mail=mail,
            program=program_of(self.kind, self.options) if self.is_plugin else None,
        )


class AlertsSection(Section, Patience):
    """Who is told what went wrong, beside the log."""

    leading = ("link", "lost_samples")
    link: str = ""
    """Address where a run can be looked at, shown with every alert; `{run}` and `{step}` are replaced."""
    lost_samples: int = Field(default=3, ge=0, le=10)
    """Questions of lost samples that an alert of a loss shows; 0: none."""
    channel: tuple[ChannelSection, ...] = ()

    @field_validator("link")
    @classmethod
    def _is_an_address_for_all(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError("it must begin with http:// or https://")
        return without_key(value, instead="everybody who reads an alert sees it")

    @field_validator("channel")
    @classmethod
    def _names_are_unique(cls, value: tuple[ChannelSection, ...]) -> tuple[ChannelSection, ...]:
        if twice := named_twice(channel.name for channel in value):
            raise ValueError(f"two channels are called {twice!r}: give one of them another name")
        return value

    def anchored(self, folder: Path) -> AlertsSection:
        """Return it with its files in `folder`, unless they are absolute."""
        return self.model_copy(update={"channel": tuple(one.anchored(folder) for one in self.channel)})

    def to_patience(self) -> Patience:
        """Return the record for the stall monitor."""
        return record_of(Patience, self)

    def variables(self) -> tuple[str, ...]:
        """Return the names of the environment variables that hold addresses and keys."""
        return tuple(name for one in self.channel for name in one.variables())

    def to_channels(self) -> tuple[ChannelSettings, ...]:
        """Return the records for opening the channels."""
        return tuple(one.to_channel() for one in self.channel)
