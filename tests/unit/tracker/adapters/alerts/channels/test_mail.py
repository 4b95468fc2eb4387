"""Alerts by e-mail: what arrives, over which connection, and what is said when it does not."""

import base64
import logging
import re
import threading
from email.message import EmailMessage
from pathlib import Path

import pytest

from eval_jobs.errors import AlertError, ChannelRefused, ChannelUnreachable
from tests.alert_messages import alert, hostile, huge, message_of, ordinary, resolved
from tests.channels import mail_channel, self_signed
from tests.fakes.hostile_server import HostileServer, forever
from tests.fakes.mail_server import MailServer
from tracker.domain.alerts.channels import MailSecurity
from tracker.domain.records.alerts import AlertState

PASSWORD = "correct horse"  # noqa: S105 - of a server in this process


def part(mail: EmailMessage, kind: str) -> str:
    body = mail.get_body((kind,))
    assert body is not None
    return str(body.get_content())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate of `localhost`, signed by itself."""
    return self_signed(tmp_path_factory.mktemp("certificate"))


def test_a_mail_has_a_subject_a_text_and_a_page(tmp_path: Path) -> None:
    with MailServer() as server:
        assert mail_channel(server.port, tmp_path, recipients=("a@example.org", "b@example.org")).notify(ordinary())
    delivered = server.mails[0]
    assert (delivered.sender, delivered.recipients) == ("tracker@example.org", ("a@example.org", "b@example.org"))
    mail = delivered.mail
    assert mail["Subject"] == "run-a step 600: sums regressed"
    assert mail["To"] == "a@example.org, b@example.org"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail["Date"].datetime.tzinfo is not None
    text = part(mail, "plain")
    assert "change: −0.210 (95 % CI −0.310 to −0.110; positive is better)" in text  # noqa: RUF001 - as it is shown
    assert "  tracker compare run-a 500 600" in text
    assert "Open the run: https://mlflow.example/#/experiments/1" in text
    page = part(mail, "html")
    assert "<code>tracker compare run-a 500 600</code>" in page
    assert '<a href="https://mlflow.example/#/experiments/1">' in page


def test_an_attack_is_text_in_the_page_and_no_header(tmp_path: Path) -> None:
    with MailServer() as server:
        mail_channel(server.port, tmp_path).notify(hostile())
    mail = server.mails[0].mail
    page = part(mail, "html")
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "错误😀" in page
    assert len(mail["Subject"].splitlines()) == 1
    assert mail["Bcc"] is None


def test_thousands_of_long_lines_are_taken(tmp_path: Path) -> None:
    with MailServer() as server:
        mail_channel(server.port, tmp_path).notify(huge("错"))
    assert "59 错" in part(server.mails[0].mail, "plain")


def test_all_that_is_said_of_one_cause_is_one_thread(tmp_path: Path) -> None:
    with MailServer() as server:
        channel = mail_channel(server.port, tmp_path)
        for message in (ordinary(), ordinary(), resolved(), message_of(alert(7, state=AlertState.FIRING))):
            channel.notify(message)
    first, again, over, other = (delivered.mail for delivered in server.mails)
    cause = first["In-Reply-To"]
    assert re.fullmatch(r"<[0-9a-f]+\.cause@example\.org>", cause)
    assert again["In-Reply-To"] == over["In-Reply-To"] == cause
    assert cause in over["References"]
    assert other["In-Reply-To"] != cause
    assert first["Message-ID"] == again["Message-ID"]  # a reader shows once what was sent twice
    assert len({first["Message-ID"], over["Message-ID"], other["Message-ID"]}) == 3


@pytest.mark.parametrize("security", [MailSecurity.STARTTLS, MailSecurity.TLS])
def test_a_password_is_given_over_a_connection_that_nobody_can_read(
    security: MailSecurity,
    certificate: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", certificate[0])
    is_tls = security is MailSecurity.TLS
    with MailServer(users={"bot": PASSWORD}, certificate=certificate, is_tls=is_tls) as server:
        channel = mail_channel(server.port, tmp_path, user="bot", password=PASSWORD, security=security)
        assert channel.notify(ordinary()) == "accepted"
    assert len(server.mails) == 1
    commands = [line.partition(" ")[0] for line in server.seen]
    assert ("STARTTLS" in commands) is not is_tls
    assert is_tls or commands.index("STARTTLS") < commands.index("AUTH")


@pytest.mark.parametrize("security", [MailSecurity.STARTTLS, MailSecurity.TLS])
def test_a_server_that_nobody_vouches_for_is_told_nothing(
    security: MailSecurity, certificate: tuple[str, str], tmp_path: Path
) -> None:
    is_tls = security is MailSecurity.TLS
    with MailServer(users={"bot": PASSWORD}, certificate=certificate, is_tls=is_tls) as server:
        channel = mail_channel(server.port, tmp_path, user="bot", password=PASSWORD, security=security)
        with pytest.raises(ChannelUnreachable, match="certificate verify failed"):
            channel.notify(ordinary())
    assert not [line for line in server.seen if line.startswith("AUTH")]


def test_a_server_without_starttls_is_told_nothing(tmp_path: Path) -> None:
    with MailServer(users={"bot": PASSWORD}) as server:
        channel = mail_channel(server.port, tmp_path, user="bot", password=PASSWORD, security=MailSecurity.STARTTLS)
        with pytest.raises(ChannelRefused, match="STARTTLS") as caught:
            channel.notify(ordinary())
    assert "`security`" in caught.value.hint
    assert not [line for line in server.seen if line.startswith("AUTH")]


def test_a_wrong_password_is_a_refusal_that_names_the_setting_and_is_not_shown(
    certificate: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("SSL_CERT_FILE", certificate[0])
    wrong = "wrong horse"
    sent = base64.b64encode(f"\0bot\0{wrong}".encode()).decode()
    for said in ("", f"535 5.7.8 no: {wrong} {sent}"):
        answers = {"AUTH": said} if said else {}
        with MailServer(users={"bot": PASSWORD}, certificate=certificate, answers=answers) as server:
            channel = mail_channel(server.port, tmp_path, user="bot", password=wrong, security=MailSecurity.STARTTLS)
            with pytest.raises(ChannelRefused, match="535") as caught:
                channel.notify(ordinary())
        assert "secret_file" in caught.value.hint
        for text in (str(caught.value), repr(channel), caplog.text):
            assert wrong not in text
            assert sent not in text


def test_who_asks_for_a_password_and_gets_none_refuses(tmp_path: Path) -> None:
    with MailServer(users={"bot": PASSWORD}) as server, pytest.raises(ChannelRefused, match="530") as caught:
        mail_channel(server.port, tmp_path).notify(ordinary())
    assert "`user`" in caught.value.hint


def test_one_unknown_recipient_does_not_keep_the_others_from_being_told(tmp_path: Path) -> None:
    with MailServer(unknown=("gone@example.org",)) as server:
        channel = mail_channel(server.port, tmp_path, recipients=("gone@example.org", "b@example.org"))
        assert channel.notify(ordinary()) == "accepted for 1 of 2 recipients"
        assert server.mails[0].recipients == ("b@example.org",)
        with pytest.raises(ChannelRefused, match="all recipients refused: 550"):
            mail_channel(server.port, tmp_path, recipients=("gone@example.org",)).notify(ordinary())


FAULTS = {
    "greylisted": ({"RCPT": "450 4.2.0 try again later"}, ChannelUnreachable),
    "too busy": ({"CONNECT": "421 4.3.2 too busy"}, ChannelUnreachable),
    "full": ({"DATA": "452 4.3.1 no space"}, ChannelUnreachable),
    "no sender": ({"MAIL": "553 5.1.8 not from there"}, ChannelRefused),
    "spam": ({"DATA": "554 5.7.1 looks like spam"}, ChannelRefused),
    "hangs up": ({"MAIL": "drop"}, ChannelUnreachable),
    "hangs up at once": ({"CONNECT": "drop"}, ChannelUnreachable),
    "speaks something else": ({"CONNECT": "SSH-2.0-OpenSSH_9.2"}, ChannelUnreachable),
    "says nothing": ({"CONNECT": "hang"}, ChannelUnreachable),
    "stops in the middle": ({"DATA": "hang"}, ChannelUnreachable),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_server_is_told_from_a_refusal(fault: str, tmp_path: Path) -> None:
    answers, error = FAULTS[fault]
    patience_s = 0.5 if "hang" in answers.values() else 25.0
    with MailServer(answers=answers) as server:
        with pytest.raises(AlertError) as caught:
            mail_channel(server.port, tmp_path, patience_s=patience_s).notify(ordinary())
        assert server.mails == []
    assert type(caught.value) is error
    assert "team" in caught.value.message


def test_a_server_that_does_not_say_goodbye_has_taken_the_mail(tmp_path: Path) -> None:
    with MailServer(answers={"QUIT": "drop"}) as server:
        assert mail_channel(server.port, tmp_path).notify(ordinary()) == "accepted"


def test_a_refused_connection_is_unreachable(tmp_path: Path) -> None:
    with MailServer() as server:
        pass
    with pytest.raises(ChannelUnreachable, match="localhost"):
        mail_channel(server.port, tmp_path).notify(ordinary())


@pytest.mark.parametrize(
    ("piece", "pause_s"), [(b"220-more\r\n", 0.0), (b"2" * 100_000, 0.0), (b"2", 0.05), (b"220-more\r\n", 0.05)]
)
def test_a_greeting_without_an_end_ends_and_so_does_its_thread(piece: bytes, pause_s: float, tmp_path: Path) -> None:
    with HostileServer(forever(piece, pause_s), speaks_first=True) as server:
        with pytest.raises(AlertError):
            mail_channel(server.port, tmp_path, patience_s=0.2).notify(ordinary())
        for thread in threading.enumerate():
            if thread.name == "alert channel":
                thread.join(60)
                assert not thread.is_alive()
