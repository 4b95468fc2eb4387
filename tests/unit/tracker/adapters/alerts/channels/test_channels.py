"""What each chat service makes of our messages: signatures, refusals with what to do, and text that attacks."""

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eval_jobs.errors import AlertError, ChannelRefused, ChannelUnreachable
from tests.alert_messages import alert, hostile, message_of, ordinary, resolved
from tests.channels import KINDS, SECRET, SECRETS, opened, wired
from tests.fakes.chat_rules import AlertmanagerRules, DingTalkRules, FeishuRules, SlackRules, WebhookRules, WeComRules
from tests.fakes.chat_services import ChatService, Rules, Said
from tests.fakes.clock import FakeClock
from tracker.adapters.alerts.channels import alertmanager, dingtalk, feishu, slack
from tracker.adapters.alerts.opening import open_channels
from tracker.adapters.alerts.sending.markdown import address, escape_markdown
from tracker.domain.alerts.channels import ChannelKind, ChannelSettings, SecretSource
from tracker.domain.records.alerts import AlertKind, AlertState

NOW = datetime(2026, 2, 1, 13, 0, tzinfo=UTC)


def test_dingtalk_is_signed_as_its_documentation_computes_it_and_encoded_once() -> None:
    secret = "SEC000"  # noqa: S105 - of the example
    url = dingtalk.signed("https://oapi.dingtalk.com/robot/send?access_token=x", secret, NOW)
    timestamp = int(NOW.timestamp() * 1000)
    digest = hmac.new(b"SEC000", f"{timestamp}\nSEC000".encode(), hashlib.sha256).digest()
    found = re.fullmatch(r"https://.*\?access_token=x&timestamp=(\d{13})&sign=([A-Za-z0-9%]+)", url)
    assert found is not None
    assert int(found[1]) == timestamp
    assert "%25" not in found[2]
    decoded = re.sub("%([0-9A-F]{2})", lambda match: chr(int(match[1], 16)), found[2])
    assert base64.b64decode(decoded) == digest


def test_feishu_signs_nothing_with_time_and_secret_as_its_key() -> None:
    digest = hmac.new(b"1769950800\nsecret", b"", hashlib.sha256).digest()
    assert feishu.feishu_signature("secret", 1769950800) == base64.b64encode(digest).decode()


@pytest.mark.parametrize("kind", [ChannelKind.DINGTALK, ChannelKind.FEISHU, ChannelKind.LARK, ChannelKind.WEBHOOK])
@pytest.mark.parametrize("hours", [-2, 2])
def test_a_clock_that_is_wrong_is_a_refusal_that_names_the_clock(kind: ChannelKind, hours: int, tmp_path: Path) -> None:
    clock = FakeClock(datetime.now(UTC) + timedelta(hours=hours))
    with wired(kind, tmp_path) as one:
        channel = opened(kind, one.service.url, tmp_path, secret=SECRETS[kind], clock=clock)
        with pytest.raises(ChannelRefused) as caught:
            channel.notify(ordinary())
    assert "clock" in caught.value.hint
    assert "secret_file" in caught.value.hint


@pytest.mark.parametrize("kind", [ChannelKind.DINGTALK, ChannelKind.FEISHU, ChannelKind.LARK, ChannelKind.WEBHOOK])
@pytest.mark.parametrize("secret", ["", "another secret of somebody"])
def test_a_key_that_is_wrong_or_missing_is_a_refusal_that_names_the_setting(
    kind: ChannelKind, secret: str, tmp_path: Path
) -> None:
    with wired(kind, tmp_path) as one:
        channel = opened(kind, one.service.url, tmp_path, secret=secret)
        with pytest.raises(ChannelRefused) as caught:
            channel.notify(ordinary())
        assert one.service.taken == []
    assert "secret" in caught.value.hint


@pytest.mark.parametrize("kind", KINDS)
def test_an_address_that_nobody_knows_any_more_is_a_refusal_that_names_the_setting(
    kind: ChannelKind, tmp_path: Path
) -> None:
    with wired(kind, tmp_path) as one:
        url = one.service.url.replace("abcdef", "zbcdef").replace("d8f3", "d8f4").replace("693a", "693b")
        url = url.replace("8b1c", "8b1d").replace("/hooks/", "/hook/")
        channel = opened(
            kind, f"{url}/x" if kind is ChannelKind.ALERTMANAGER else url, tmp_path, secret=SECRETS.get(kind, "")
        )
        with pytest.raises(ChannelRefused) as caught:
            channel.notify(ordinary())
    assert "url_file" in caught.value.hint


BUSY: dict[ChannelKind, Callable[[], Rules]] = {
    ChannelKind.DINGTALK: lambda: DingTalkRules(secret=SECRET, per_minute=2),
    ChannelKind.WECOM: lambda: WeComRules(per_minute=2),
    ChannelKind.FEISHU: lambda: FeishuRules(secret=SECRET, per_minute=2),
    ChannelKind.LARK: lambda: FeishuRules(secret=SECRET, per_minute=2, is_old=True),
}


@pytest.mark.parametrize("kind", BUSY)
def test_too_many_messages_a_minute_are_to_be_sent_a_minute_later(kind: ChannelKind, tmp_path: Path) -> None:
    with wired(kind, tmp_path, rules=BUSY[kind]()) as one:
        for _ in range(2):
            one.channel.notify(ordinary())
        with pytest.raises(ChannelUnreachable) as caught:
            one.channel.notify(ordinary())
        assert len(one.service.taken) == 2
    waits_s = 600.0 if kind is ChannelKind.DINGTALK else 60.0  # its robot is closed for ten minutes then
    assert caught.value.context == {"retry_after_s": waits_s}


def test_dingtalk_is_sent_few_enough_a_minute_that_its_robot_is_never_closed(tmp_path: Path) -> None:
    clock = FakeClock(datetime.now(UTC))
    with wired(ChannelKind.DINGTALK, tmp_path) as one:
        channel = opened(ChannelKind.DINGTALK, one.service.url, tmp_path, secret=SECRET, clock=clock)
        for _ in range(dingtalk.PER_MINUTE):
            channel.notify(ordinary())
        clock.advance(20)
        with pytest.raises(ChannelUnreachable, match="limit of 15 messages per minute reached") as caught:
            channel.notify(ordinary())
        assert caught.value.context == {"retry_after_s": 40.0}
        assert len(one.service.asked) == dingtalk.PER_MINUTE
        clock.advance(40)
        channel.notify(ordinary())


BODIES = [
    (ChannelKind.DINGTALK, '{"errcode":310000,"errmsg":"keywords not in content"}', ChannelRefused, "name of the run"),
    (
        ChannelKind.DINGTALK,
        '{"errcode":310000,"errmsg":"ip 1.2.3.4 not in whitelist"}',
        ChannelRefused,
        "this machine's IP address",
    ),
    (ChannelKind.DINGTALK, '{"errcode":-1,"errmsg":"系统繁忙"}', ChannelUnreachable, "pending alerts are retried"),
    (
        ChannelKind.DINGTALK,
        '{"errcode":410100,"errmsg":"发送速度太快而限流"}',
        ChannelUnreachable,
        "pending alerts are retried",
    ),
    (
        ChannelKind.DINGTALK,
        '{"errcode":90030,"errmsg":"webhook over limit"}',
        ChannelUnreachable,
        "pending alerts are retried",
    ),
    (ChannelKind.DINGTALK, '{"errcode":1,"errmsg":"never heard of"}', ChannelRefused, "settings in DingTalk"),
    (
        ChannelKind.WECOM,
        '{"errcode":45033,"errmsg":"api concurrent out of limit"}',
        ChannelUnreachable,
        "pending alerts are retried",
    ),
    (ChannelKind.FEISHU, '{"code":9499,"msg":"Bad Request","StatusCode":0}', ChannelRefused, "settings in Feishu"),
    (ChannelKind.FEISHU, '{"code":9499,"msg":"too many request"}', ChannelUnreachable, "pending alerts are retried"),
    (ChannelKind.FEISHU, '{"code":19007,"msg":"Bot Not Enabled"}', ChannelRefused, "enable the bot"),
    (ChannelKind.FEISHU, '{"code":19022,"msg":"Ip Not Allowed"}', ChannelRefused, "this machine's IP address"),
    (ChannelKind.FEISHU, '{"code":0,"StatusCode":19021,"StatusMessage":"sign"}', ChannelRefused, "secret"),
    (ChannelKind.LARK, '{"StatusCode":19024,"StatusMessage":"Key Words Not Found"}', ChannelRefused, "name of the run"),
]


@pytest.mark.parametrize(("kind", "body", "error", "hint"), BODIES)
def test_what_a_service_says_in_its_body_decides(
    kind: ChannelKind, body: str, error: type[AlertError], hint: str, tmp_path: Path
) -> None:
    with wired(kind, tmp_path) as one:
        one.service.faults.append(Said(200, body))
        with pytest.raises(error) as caught:
            one.channel.notify(ordinary())
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("status", "word", "error"),
    [
        (400, "invalid_blocks", ChannelRefused),
        (403, "action_prohibited", ChannelRefused),
        (410, "channel_is_archived", ChannelRefused),
        (500, "rollup_error", ChannelUnreachable),
    ],
)
def test_slack_says_it_with_a_status_and_a_word(
    status: int, word: str, error: type[AlertError], tmp_path: Path
) -> None:
    with wired(ChannelKind.SLACK, tmp_path, rules=SlackRules()) as one:
        one.service.faults.append(Said(status, word))
        with pytest.raises(error, match=word):
            one.channel.notify(ordinary())


# --- what others wrote


ACTIVE = re.compile(r"<(?!\w+\s+color=|/font>)|\[[^\]]*\]\(|(?<!\*)\*(?!\*)|~~|`[^`]*<|!\[|&\w+;|\\")


@example("0__")
@given(st.text(max_size=200))
def test_no_text_means_anything_in_markdown(text: str) -> None:
    said = escape_markdown(text)
    assert not ACTIVE.search(said)
    assert not re.match(r"\s*(#|>|[-+*] |\d+[.)])", said)
    assert not re.search(r"(?<!\w)_|_(?!\w)", said)


@pytest.mark.parametrize("text", ["my_task_v2", "mmlu / anatomy", "R&D", "3 + 4 = 7", "a-b", "错误😀", "50 %"])
def test_ordinary_names_are_left_alone(text: str) -> None:
    assert escape_markdown(text) == text


@pytest.mark.parametrize(
    "text", ["<!channel>", "<https://evil.example|click>", "*b*", "_i_", "a__", "`c`", "~s~", "&lt;"]
)
def test_no_text_means_anything_in_slack(text: str) -> None:
    said = slack.escape_mrkdwn(text)
    assert not re.search(r"<|>|\*|`|~|(?<!\w)_|_(?!\w)", said)
    assert "&lt;lt;" not in said


@pytest.mark.parametrize(
    ("link", "meant"),
    [
        ("https://mlflow/#/experiments/1?x=a b", "https://mlflow/#/experiments/1?x=a%20b"),
        ("https://mlflow/)[x](<b>", "https://mlflow/%29%5Bx%5D%28%3Cb%3E"),
        ("https://mlflow/%2F", "https://mlflow/%2F"),
        ("javascript:alert(1)", ""),
        ("", ""),
    ],
)
def test_a_link_cannot_leave_its_brackets(link: str, meant: str) -> None:
    assert address(link) == meant


def _strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in _strings(item)]
    if isinstance(value, list):
        return [text for item in value for text in _strings(item)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("kind", [ChannelKind.DINGTALK, ChannelKind.WECOM, ChannelKind.FEISHU, ChannelKind.SLACK])
def test_an_attack_arrives_as_text_that_can_be_read(kind: ChannelKind, tmp_path: Path) -> None:
    with wired(kind, tmp_path) as one:
        one.channel.notify(hostile())
        document = one.service.taken[0].json()
    whole = "\n".join(_strings({k: v for k, v in document.items() if k not in {"sign", "timestamp"}}))
    assert "错误😀" in whole
    links = [] if kind is ChannelKind.SLACK else ["](https://evil.example)"]  # Slack writes links otherwise
    for attack in ("<at ", "<!channel>", "<script>", "**bold**", "\x1b", *links):
        # the title of a card is plain text: nothing in it means anything
        assert attack not in whole.replace(_plain_title(document), ""), attack


def _plain_title(document: dict[str, Any]) -> str:
    if "card" in document:
        return str(document["card"]["header"]["title"]["content"])
    return str(document["blocks"][0]["text"]["text"]) if "blocks" in document else "\0"


# --- forms


def test_a_resolved_message_is_green_and_says_so(tmp_path: Path) -> None:
    bodies = {}
    for kind in (ChannelKind.WECOM, ChannelKind.FEISHU):
        with wired(kind, tmp_path) as one:
            one.channel.notify(resolved())
            bodies[kind] = one.service.taken[0].body.decode()
    assert 'color=\\"info\\"' in bodies[ChannelKind.WECOM]
    assert '"template":"green"' in bodies[ChannelKind.FEISHU]
    assert all("Resolved: sums: loss closed" in body for body in bodies.values())


def test_a_receiver_sees_the_same_id_again_and_another_one_for_other_news(tmp_path: Path) -> None:
    rules = WebhookRules(secret=SECRET)
    with wired(ChannelKind.WEBHOOK, tmp_path, rules=rules) as one:
        for message in (ordinary(), ordinary(), resolved()):
            one.channel.notify(message)
    first, again, other = rules.seen
    assert first == again
    assert other != first


def test_a_receiver_gets_the_numbers_as_numbers(tmp_path: Path) -> None:
    with wired(ChannelKind.WEBHOOK, tmp_path) as one:
        one.channel.notify(ordinary())
        document = json.loads(one.service.taken[0].body)
    assert document["schema_version"] == 1
    assert (document["run"], document["step"], document["is_firing"]) == ("run-a", 600, True)
    (told,) = document["alerts"]
    assert (told["state"], told["kind"], told["fingerprint"]) == ("firing", "loss", "0000000000000001")
    assert told["evidence"]["change"] == -0.21
    assert told["evidence"]["baseline_steps"] == [100, 200, 300, 400, 500]
    assert datetime.fromisoformat(told["raised_at"]).tzinfo is not None
    page = Path("docs/how-to/alerts.md").read_text("utf-8")
    names = {*document, *told, *told["evidence"]} - {"alerts"}
    assert {name for name in names if f"`{name}`" not in page} == {"evidence"}, "in the section on receivers"


def test_a_changed_body_or_an_old_time_is_not_believed_by_a_receiver(tmp_path: Path) -> None:
    now = [datetime.now(UTC).timestamp()]
    rules = WebhookRules(secret=f"whsec_{base64.b64encode(b'0123456789abcdef').decode()}", now=lambda: now[0])
    with ChatService(rules) as service:
        opened(ChannelKind.WEBHOOK, service.url, tmp_path, secret=rules.secret).notify(ordinary())
        asked = service.taken[0]
        changed = type(asked)(asked.method, asked.target, asked.headers, asked.body.replace(b"600", b"700"))
        assert service.answer(changed).status == 401
        assert service.answer(asked).status == 204
        now[0] += 301
        assert service.answer(asked).status == 401


def test_firing_and_resolved_are_one_alert_of_alertmanager() -> None:
    firing, over = ordinary(), resolved()
    (one,), (other,) = alertmanager.alerts_of(firing, NOW), alertmanager.alerts_of(over, NOW + timedelta(hours=1))
    assert (
        one["labels"]
        == other["labels"]
        == {
            "alertname": "CheckpointRegressed",
            "run": "run-a",
            "subject": "sums",
            "kind": "loss",
            "severity": "critical",
            "fingerprint": "0000000000000001",
        }
    )
    assert one["startsAt"] == firing.alerts[0].raised_at.isoformat()
    assert one["endsAt"] == (NOW + timedelta(days=30)).isoformat()
    assert other["endsAt"] == (NOW + timedelta(hours=1)).isoformat()


def test_a_test_is_over_after_minutes_without_anybody_saying_so() -> None:
    (one,) = alertmanager.alerts_of(message_of(alert(kind=AlertKind.TEST)), NOW)
    assert one["endsAt"] == (NOW + timedelta(minutes=5)).isoformat()


@pytest.mark.parametrize("kind", AlertKind)
def test_every_kind_has_a_name_for_alertmanager(kind: AlertKind) -> None:
    (one,) = alertmanager.alerts_of(message_of(alert(kind=kind, state=AlertState.FIRING)), NOW)
    labels = one["labels"]
    assert isinstance(labels, dict)
    assert labels["alertname"].isalnum()
    assert all(labels.values())


def test_a_user_of_alertmanager_asks_with_the_password(tmp_path: Path) -> None:
    rules = AlertmanagerRules(authorization=f"Basic {base64.b64encode(b'me:pass word').decode()}")
    (tmp_path / "password").write_text("pass word")
    with ChatService(rules) as service:
        settings = ChannelSettings(
            name="team",
            kind=ChannelKind.ALERTMANAGER,
            url=f"{service.origin}/",
            user="me",
            secret_place=SecretSource(file=tmp_path / "password"),
        )
        (channel,) = open_channels((settings,), FakeClock(NOW))
        assert channel.notify(ordinary()) == "HTTP 200"
