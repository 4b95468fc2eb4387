"""The tables of channels: what they mean, and that what cannot work is refused before anybody waits for an alert."""

import os
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from docs.generator.settings import settings_page
from eval_jobs.errors import ConfigError
from eval_jobs.host.secrets import held_secrets
from tests.alert_messages import alert, message_of, ordinary
from tests.channels import opened
from tests.fakes.chat_rules import WebhookRules
from tests.fakes.chat_services import ChatService
from tests.fakes.clock import FakeClock
from tests.requires import PROJECT as PROJECT_FOLDER
from tracker.adapters.alerts.channels.alertmanager import alerts_of
from tracker.adapters.alerts.opening import open_channels
from tracker.config import Config, parse_config
from tracker.domain.alerts.channels import ChannelKind, ChannelSettings, MailRoute, MailSecurity, SecretSource
from tracker.domain.records.alerts import AlertKind

HERE = Path("/project/tracker.toml")
PROJECT = '[run]\nname = "r"\noutput_dir = "out"\n[[benchmark]]\nbenchmark = "gsm8k"\n'
TOKEN = "d8f3a6c1e5b74290a1b2c3d4e5f60718"  # noqa: S105 - of nobody
DINGTALK = f"https://oapi.dingtalk.com/robot/send?access_token={TOKEN}"
SLACK = "https://hooks.slack.com/services/T01234567/B01234567/abcdefghijklmnopqrstuvwx"


def parsed(*tables: str, here: Path = HERE) -> Config:
    text = PROJECT + "".join(f"\n[[alerts.channel]]\n{table}\n" for table in tables)
    return parse_config(text, here)


MAIL = 'name = "mail"\nkind = "email"\nhost = "m.example"\nsender = "a@example.org"\nrecipients = ["b@example.org"]\n'

MEANT = {
    'name = "t"\nkind = "slack"\nurl_env = "U"': ChannelSettings(
        name="t", kind=ChannelKind.SLACK, url_place=SecretSource(variable="U")
    ),
    'name = "t"\nkind = "feishu"\nurl_file = "u"\nsecret_file = "/s"': ChannelSettings(
        name="t",
        kind=ChannelKind.FEISHU,
        url_place=SecretSource(file=Path("/project/u")),
        secret_place=SecretSource(file=Path("/s")),
    ),
    'name = "t"\nkind = "alertmanager"\nurl = "http://am:9093"\nuser = "me"\nsecret_env = "S"': ChannelSettings(
        name="t",
        kind=ChannelKind.ALERTMANAGER,
        url="http://am:9093",
        user="me",
        secret_place=SecretSource(variable="S"),
    ),
    MAIL: ChannelSettings(
        name="mail",
        kind=ChannelKind.EMAIL,
        mail=MailRoute(
            host="m.example",
            port=587,
            security=MailSecurity.STARTTLS,
            sender="a@example.org",
            recipients=("b@example.org",),
        ),
    ),
}


@pytest.mark.parametrize("table", MEANT)
def test_a_table_becomes_a_record(table: str) -> None:
    assert parsed(table).alerts.to_channels() == (MEANT[table],)


@pytest.mark.parametrize(("security", "port"), [("starttls", 587), ("tls", 465), ("none", 25)])
def test_a_mail_server_has_the_port_of_its_security(security: str, port: int) -> None:
    mail = parsed(f'{MAIL}security = "{security}"').alerts.to_channels()[0].mail
    assert mail is not None
    assert mail.port == port


REFUSED = {
    'name = "t"\nkind = "pager"\nurl_env = "U"': "slack",
    'name = "t"\nkind = "slack"': "set exactly one of url_env and url_file",
    'name = "t"\nkind = "webhook"': "set exactly one of url, url_env and url_file",
    'name = "t"\nkind = "slack"\nurl_env = "U"\nurl_file = "u"': "set exactly one of url_env and url_file",
    f'name = "t"\nkind = "dingtalk"\nurl = "https://oapi.dingtalk.com/robot/send?access_token={TOKEN}"': "a key",
    f'name = "t"\nkind = "slack"\nurl = "{SLACK}"': "is a secret",
    'name = "t"\nkind = "alertmanager"\nurl = "http://me:hunter22@am:9093"': "a key or password",
    'name = "t"\nkind = "alertmanager"\nurl = "am:9093"': "http://",
    'name = "t"\nkind = "slack"\nurl_env = "U"\nsecret_env = "S"': "slack does not use a secret",
    'name = "t"\nkind = "wecom"\nurl_env = "U"\nsecret_file = "s"': "wecom does not use a secret",
    'name = "t"\nkind = "feishu"\nurl_env = "U"\nsecret_env = "S"\nsecret_file = "s"': "not both",
    'name = "t"\nkind = "feishu"\nurl_env = "U"\nuser = "me"': "feishu does not use a user",
    'name = "t"\nkind = "alertmanager"\nurl = "http://am:9093"\nuser = "me"': "user requires a password",
    'name = "t"\nkind = "slack"\nurl_env = "U"\nhost = "m"': "host is only for email channels",
    'name = "t"\nkind = "slack"\nurl_env = "U"\nsecurity = "none"': "security is only for email channels",
    'name = "t"\nkind = "email"\nhost = "m"': "requires sender and recipients",
    f'{MAIL}url_env = "U"': "has no url",
    f'{MAIL}secret_env = "S"': "a password requires a user name: set user",
    f'{MAIL}user = "me"': "user requires a password",
    f'{MAIL}user = "me"\nsecret_env = "S"\nsecurity = "none"': "the password is sent unencrypted",
    f"{MAIL}port = 0": "port",
    MAIL.replace("b@example.org", "Bob <b@example.org>"): "plain addresses",
    MAIL.replace("b@example.org", r"b@example.org\r\nBcc: x@example.org"): "plain addresses",
    MAIL.replace("b@example.org", "a,b@example.org"): "plain addresses",
    'name = "a b"\nkind = "slack"\nurl_env = "U"': "name",
    'name = "t"\nkind = "slack"\nurl_env = "U"\ntoken = "x"': "token",
}


@pytest.mark.parametrize("table", REFUSED)
def test_what_cannot_work_is_refused_with_what_to_do_and_no_secret(table: str) -> None:
    with pytest.raises(ConfigError, match=REFUSED[table]) as caught:
        parsed(table)
    assert TOKEN not in str(caught.value)
    assert "hunter22" not in str(caught.value)


def test_two_channels_of_one_name_are_refused() -> None:
    table = 'name = "t"\nkind = "slack"\nurl_env = "U"'
    with pytest.raises(ConfigError, match="duplicate channel name 't'"):
        parsed(table, table)


@pytest.mark.parametrize("link", ["mlflow/#/runs", "https://me:pw@mlflow", "https://mlflow/?token=abc"])
def test_a_link_that_is_none_or_holds_a_key_is_refused(link: str) -> None:
    with pytest.raises(ConfigError, match=r"alerts\.link"):
        parse_config(f'{PROJECT}\n[alerts]\nlink = "{link}"\n', HERE)


def test_every_setting_is_on_the_page() -> None:
    assert "## `[[alerts.channel]]`" in settings_page()


# --- opening


def test_an_address_and_a_key_are_read_once_forgotten_by_children_and_never_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ROBOT", DINGTALK)
    monkeypatch.setenv("ROBOT_KEY", "SEC0123456789abcdef")
    table = 'kind = "dingtalk"\nurl_env = "ROBOT"\nsecret_env = "ROBOT_KEY"'
    settings = parsed(f'name = "one"\n{table}', f'name = "two"\n{table}').alerts.to_channels()
    one, two = open_channels(settings, FakeClock())
    assert (one.name, two.name) == ("one", "two")
    assert "ROBOT" not in os.environ
    assert {DINGTALK, TOKEN, "SEC0123456789abcdef"} <= held_secrets({})
    assert TOKEN not in repr(one)
    assert "SEC0123" not in repr(one)


@pytest.mark.parametrize(
    "address",
    [
        "hooks.slack.com/x",
        "ftp://hooks.slack.com/x",
        "https:///x",
        "https://a b/c",
        "https://例/x",
        "https://h:99999/x",
    ],
)
def test_what_is_no_address_is_refused_without_being_shown(address: str, tmp_path: Path) -> None:
    (tmp_path / "url").write_text(address)
    settings = parsed('name = "t"\nkind = "slack"\nurl_file = "url"', here=tmp_path / "tracker.toml")
    with pytest.raises(ConfigError, match="invalid URL") as caught:
        open_channels(settings.alerts.to_channels(), FakeClock())
    assert address not in str(caught.value)


def test_the_address_of_a_robot_does_not_travel_in_the_open(tmp_path: Path) -> None:
    (tmp_path / "url").write_text(SLACK.replace("https", "http"))
    settings = parsed('name = "t"\nkind = "slack"\nurl_file = "url"', here=tmp_path / "tracker.toml")
    with pytest.raises(ConfigError, match="requires https://"):
        open_channels(settings.alerts.to_channels(), FakeClock())


def test_what_is_not_there_is_named_with_its_setting(tmp_path: Path) -> None:
    settings = parsed('name = "t"\nkind = "slack"\nurl_env = "NOT_SET"').alerts.to_channels()
    with pytest.raises(ConfigError, match=r"NOT_SET is not set.*alerts\.channel\.url_env"):
        open_channels(settings, FakeClock())
    settings = parsed('name = "t"\nkind = "slack"\nurl_file = "none"', here=tmp_path / "t").alerts.to_channels()
    with pytest.raises(ConfigError, match=r"cannot read .*alerts\.channel\.url_file"):
        open_channels(settings, FakeClock())


def test_a_key_that_is_no_base64_is_refused_where_base64_is_said(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("whsec_!!!!")
    table = 'name = "t"\nkind = "webhook"\nurl = "http://receiver:8080/x"\nsecret_file = "key"'
    settings = parsed(table, here=tmp_path / "tracker.toml").alerts.to_channels()
    with pytest.raises(ConfigError, match="no base64") as caught:
        open_channels(settings, FakeClock())
    assert "!!!!" not in str(caught.value)


# --- the page


PAGE = (PROJECT_FOLDER / "docs" / "how-to" / "alerts.md").read_text(encoding="utf-8")
EXAMPLES = [textwrap.dedent(block) for block in re.findall(r"^ *```toml\n(.*?)^ *```$", PAGE, re.DOTALL | re.MULTILINE)]


def test_the_page_has_an_example_of_every_kind_that_is_read() -> None:
    channels = parse_config(PROJECT + "\n".join(EXAMPLES), HERE).alerts.to_channels()
    assert {channel.kind for channel in channels} | {ChannelKind.LARK} == set(ChannelKind)


def test_the_check_of_a_signature_on_the_page_believes_us_and_nobody_else(tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - our own page
    for secret in ("a key of any kind", "whsec_MDEyMzQ1Njc4OWFiY2RlZg=="):
        with ChatService(WebhookRules()) as service:
            opened(ChannelKind.WEBHOOK, service.url, tmp_path, secret=secret).notify(ordinary())
        asked = service.taken[0]
        assert names["is_ours"](asked.headers, asked.body, secret)
        assert not names["is_ours"](asked.headers, asked.body + b" ", secret)
        assert not names["is_ours"](asked.headers, asked.body, f"{secret}x" if secret[0] == "a" else "whsec_MDEy")
        assert not names["is_ours"](asked.headers | {"webhook-timestamp": "1769950800"}, asked.body, secret)


@pytest.mark.parametrize("kind", AlertKind)
def test_the_page_names_every_kind_of_alert(kind: AlertKind) -> None:
    (one,) = alerts_of(message_of(alert(kind=kind)), FakeClock().now())
    labels = one["labels"]
    assert isinstance(labels, dict)
    assert f"| `{labels['alertname']}` | {labels['severity']} |" in PAGE
    assert f"`{kind}`" in PAGE
