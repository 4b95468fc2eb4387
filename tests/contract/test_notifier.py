"""What every channel to people promises, over services that refuse what the real ones refuse."""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from eval_jobs.errors import AlertError, ChannelRefused, ChannelUnreachable
from tests.alert_messages import alert, hostile, huge, message_of, ordinary, resolved
from tests.channels import BEARER, KINDS, SECRET, SECRETS, mail_channel, opened, rules_of, self_signed, wired
from tests.fakes.alerting import FakeChannel
from tests.fakes.chat_services import ChatService, Said, nobody_there
from tests.fakes.mail_server import MailServer
from tracker.domain.alerts.channels import ChannelKind
from tracker.domain.records.alerts import AlertMessage
from tracker.ports import Notifier

PASSWORD = "correct horse battery"  # noqa: S105 - of a server in this process


@dataclass(frozen=True)
class Line:
    """A channel, and how many messages its service took."""

    channel: Notifier
    count: Callable[[], int]


Opening = Callable[[Path], AbstractContextManager[Line]]


@contextmanager
def _fake(_: Path) -> Iterator[Line]:
    channel = FakeChannel()
    yield Line(channel, lambda: len(channel.messages))


@contextmanager
def _mail(folder: Path) -> Iterator[Line]:
    with MailServer() as server:
        yield Line(mail_channel(server.port, folder), lambda: len(server.mails))


def _http(kind: ChannelKind) -> Opening:
    @contextmanager
    def opening(folder: Path) -> Iterator[Line]:
        with wired(kind, folder) as one:
            yield Line(one.channel, lambda: len(one.service.taken))

    return opening


LINES: dict[str, Opening] = {"fake": _fake, "email": _mail, **{kind.value: _http(kind) for kind in KINDS}}


@pytest.fixture(params=LINES)
def line(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Line]:
    with ExitStack() as stack:
        yield stack.enter_context(LINES[request.param](tmp_path))


MESSAGES: dict[str, Callable[[], AlertMessage]] = {
    "ordinary": ordinary,
    "resolved": resolved,
    "hostile": hostile,
    "many of one letter": lambda: huge("x"),
    "many of Chinese": lambda: huge("错"),
    "many of emoji": lambda: huge("😀"),
    "many that are escaped": lambda: huge('&<>*"\\'),
    "two, one of them over": lambda: message_of(*ordinary().alerts, *resolved().alerts[:0], alert(2)),
    "no evidence, no command, no link": lambda: message_of(alert(evidence=None, command=""), link=""),
    "a link that is none": lambda: message_of(alert(), link="javascript:alert(1)"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_every_message_is_taken_by_the_service_itself_and_its_answer_is_one_line(line: Line, name: str) -> None:
    said = line.channel.notify(MESSAGES[name]())
    assert line.count() == 1
    assert said
    assert len(said.splitlines()) == 1


def test_a_channel_has_the_name_that_a_person_gave_it(line: Line) -> None:
    assert line.channel.name == "team"


def test_what_a_service_forgets_is_repeated_and_nothing_else(tmp_path: Path) -> None:
    for kind in KINDS:
        with wired(kind, tmp_path) as one:
            assert one.channel.repeat_s == (60 if kind is ChannelKind.ALERTMANAGER else None)


# --- faults that every service over HTTP can have

FAULTS = {
    "429": (Said(429, "slow down", {"Retry-After": "17"}), ChannelUnreachable),
    "500": (Said(500, "oops"), ChannelUnreachable),
    "503 for a while": (Said(503, "", {"Retry-After": "17"}), ChannelUnreachable),
    "a closed connection": (Said(hangs_up=True), ChannelUnreachable),
    "half an answer": (Said(200, '{"errcode"', promised_bytes=400), ChannelUnreachable),
    "a redirect": (Said(302, "", {"Location": "http://127.0.0.1:9/login"}), ChannelRefused),
    "a redirect for good": (Said(308, "", {"Location": "http://127.0.0.1:9/new"}), ChannelRefused),
    "400": (Said(400, "invalid_payload"), ChannelRefused),
    "401": (Said(401, "who are you"), ChannelRefused),
    "404": (Said(404, "no_service"), ChannelRefused),
    "413": (Said(413, "too large"), ChannelRefused),
}
STRANGE = {
    "a login page": Said(200, "<html>Sign in</html>", {"Content-Type": "text/html"}),
    "a list": Said(200, "[0]"),
    "an object of somebody else": Said(200, '{"success": true}'),
    "a code that is text": Said(200, '{"errcode": "0", "code": "0"}'),
    "a code that is a truth": Said(200, '{"errcode": false, "code": false}'),
    "null": Said(200, "null"),
    "megabytes": Said(200, "x" * 3_000_000),
    "no text at all": Said(200, "\x00\x1b[31m"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_service_failure_is_distinguished_from_a_rejection(kind: ChannelKind, fault: str, tmp_path: Path) -> None:
    said, error = FAULTS[fault]
    with wired(kind, tmp_path) as one:
        one.service.faults.append(said)
        with pytest.raises(AlertError) as caught:
            one.channel.notify(ordinary())
        assert type(caught.value) is error
        assert caught.value.retryable is (error is ChannelUnreachable)
        asked_for = float(said.headers["Retry-After"]) if "Retry-After" in said.headers else None
        assert caught.value.context.get("retry_after_s") == asked_for
        assert len(one.service.asked) == 1  # nothing is followed, and nothing is tried again in here
        assert one.channel.notify(ordinary())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not ChannelKind.WEBHOOK])
@pytest.mark.parametrize("strange", STRANGE)
def test_an_unexpected_response_is_not_a_delivery(kind: ChannelKind, strange: str, tmp_path: Path) -> None:
    with wired(kind, tmp_path) as one:
        one.service.faults.append(STRANGE[strange])
        with pytest.raises(ChannelUnreachable) as caught:
            one.channel.notify(ordinary())
        assert len(caught.value.message) < 500
        assert caught.value.message.isprintable()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("said", [Said(hangs=True), Said(drips=True)], ids=["silence", "drops"])
def test_a_service_that_never_ends_its_response_times_out(kind: ChannelKind, said: Said, tmp_path: Path) -> None:
    with wired(kind, tmp_path, patience_s=0.3) as one:
        one.service.faults.append(said)
        with pytest.raises(ChannelUnreachable, match=r"no response within 0\.3 s"):
            one.channel.notify(ordinary())


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_connection_is_unreachable(kind: ChannelKind, tmp_path: Path) -> None:
    with nobody_there(rules_of(kind)) as url:
        channel = opened(kind, url, tmp_path, secret=SECRETS.get(kind, ""))
        with pytest.raises(ChannelUnreachable, match=r"team.*127\.0\.0\.1.*Connection refused"):
            channel.notify(ordinary())


def test_a_proxy_that_needs_what_is_not_installed_is_unreachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://127.0.0.1:9")
    channel = opened(ChannelKind.SLACK, "https://nobody.invalid/services/T0/B0/abc", tmp_path)
    with pytest.raises(ChannelUnreachable):
        channel.notify(ordinary())


def test_an_unknown_host_name_is_unreachable(tmp_path: Path) -> None:
    channel = opened(ChannelKind.SLACK, "https://nobody.invalid/services/T0/B0/abc", tmp_path)
    with pytest.raises(ChannelUnreachable, match=r"nobody\.invalid"):
        channel.notify(ordinary())


def test_a_service_with_an_untrusted_certificate_receives_nothing(tmp_path: Path) -> None:
    with ChatService(rules_of(ChannelKind.SLACK), certificate=self_signed(tmp_path)) as service:
        with pytest.raises(ChannelUnreachable, match="certificate verify failed"):
            opened(ChannelKind.SLACK, service.url, tmp_path).notify(ordinary())
        assert service.asked == []


# --- secrets


def _echoes(service: ChatService, secret: str) -> list[Said]:
    """Return answers that repeat everything that the service was sent or is called."""
    everything = f"{service.url} {service.rules.path} {secret} Bearer {secret}"
    return [Said(status, everything) for status in (200, 400, 401, 404, 500)] + [
        Said(200, json.dumps({"errcode": 310000, "errmsg": service.rules.path})),
        Said(200, json.dumps({"code": 19021, "msg": service.rules.path})),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_no_key_token_or_address_is_in_an_error_a_log_or_a_representation(
    kind: ChannelKind, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    texts = []
    with wired(kind, tmp_path) as one:
        texts.append(repr(one.channel))
        for said in _echoes(one.service, SECRETS.get(kind, "")):
            one.service.faults.append(said)
            try:
                texts.append(one.channel.notify(ordinary()))
            except AlertError as error:
                texts += [str(error), repr(error.context)]
        token = max(one.service.rules.path.replace("=", "/").split("/"), key=len)
    secrets = [token] if kind not in {ChannelKind.WEBHOOK, ChannelKind.ALERTMANAGER} else []
    for secret in [*secrets, SECRET, BEARER, SECRET[-15:]]:
        assert not [text for text in [*texts, caplog.text] if secret in text]


def test_nothing_is_sent_through_a_proxy_to_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with wired(ChannelKind.SLACK, tmp_path) as one:
        assert one.channel.notify(ordinary()) == "ok"


# --- what a fake must bear out


def test_the_content_of_a_message_arrives_unchanged(tmp_path: Path) -> None:
    def text_of(message: AlertMessage, kind: ChannelKind) -> str:
        with wired(kind, tmp_path) as one:
            one.channel.notify(message)
            return one.service.taken[0].body.decode()

    for kind in KINDS:
        text = text_of(ordinary(), kind)
        for piece in ("run-a", "600", "sums", "tracker compare run-a 500 600", "What is 17 + 25?"):
            assert piece in text, kind
