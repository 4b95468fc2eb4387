"""E-mail: text and HTML over SMTP. All mails about one cause belong to one thread."""

import contextlib
import html
import io
import smtplib
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

from eval_jobs.errors import ChannelRefused, ChannelUnreachable
from eval_jobs.host.bounded.answers import MeteredReader
from eval_jobs.identity import content_hash
from eval_jobs.limits import CHANNEL_ANSWER
from tracker.adapters.alerts.sending.markdown import address
from tracker.adapters.alerts.sending.target import Channel, Target, within
from tracker.domain.alerts.channels import MailRoute, MailSecurity
from tracker.domain.alerts.text import LINK, Markup, Room, blocks_text, id_of, message_text
from tracker.domain.records.alerts import AlertMessage

ROOM = Room(total=200_000)
MAX_REFERENCES = 20
ENCODING = "quoted-printable"
"""Keeps lines short and ASCII, whatever the server supports."""

TEXT = Markup(escape=str, bold=str, quote=lambda text: f"  {text}", code=lambda text: f"  {text}")
HTML = Markup(
    escape=html.escape,
    bold=lambda text: f"<b>{text}</b>",
    quote=lambda text: f"<i>{text}</i>",
    code=lambda text: f"<code>{html.escape(text)}</code>",
    line_end="<br>\n",
)


@dataclass(frozen=True, kw_only=True)
class Mail(Channel):
    """`tracker.ports.Notifier` by e-mail."""

    route: MailRoute

    def notify(self, message: AlertMessage) -> str:
        """Deliver the message; see the port."""
        target = self.target
        mail = mail_of(message, self.route)
        mail["Date"] = format_datetime(target.clock.now())
        try:
            refused = within(target.patience_s, lambda: _send(mail, target, self.route))
        except (smtplib.SMTPException, OSError, ValueError) as error:
            raise _mapped(error, target) from error
        count = len(self.route.recipients)
        if refused:
            return f"accepted for {count - refused} of {count} recipients"
        return "accepted"


def mail_of(message: AlertMessage, route: MailRoute) -> EmailMessage:
    """Return the mail, without its date."""
    text = message_text(message)
    domain = route.sender.rpartition("@")[2]
    causes = [f"<{content_hash(alert.fingerprint)}.cause@{domain}>" for alert in message.alerts[:MAX_REFERENCES]]
    mail = EmailMessage(policy=SMTP)
    mail["Subject"] = text.title
    mail["From"] = route.sender
    mail["To"] = ", ".join(route.recipients)
    mail["Message-ID"] = f"<{id_of(message)}@{domain}>"
    # The id of a mail that was never sent: mail programs group all mails that refer to it.
    mail["In-Reply-To"] = causes[0]
    mail["References"] = " ".join(causes)
    mail["Auto-Submitted"] = "auto-generated"
    where = address(text.link)
    link = f"{LINK}: {where}" if where else ""
    mail.set_content("\n\n".join(filter(None, [text.title, *blocks_text(text, TEXT, ROOM), link])) + "\n", cte=ENCODING)
    anchor = f'<a href="{html.escape(where)}">{LINK}</a>' if where else ""
    title = f"<b>{html.escape(text.title)}</b>"
    paragraphs = filter(None, [title, *blocks_text(text, HTML, ROOM), anchor])
    body = "\n".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    mail.add_alternative(f"<!doctype html>\n<html><body>\n{body}\n</body></html>\n", subtype="html", cte=ENCODING)
    return mail


class _Bounded(smtplib.SMTP):
    """A session with a deadline: a reply may have lines without an end, and its bytes may come slowly."""

    def getreply(self) -> tuple[int, bytes]:
        if self.file is None and self.sock is not None:
            self.file = io.BufferedReader(MeteredReader(self.sock, time.monotonic() + self.timeout, CHANNEL_ANSWER))
        return super().getreply()


class _BoundedTls(_Bounded, smtplib.SMTP_SSL):
    """The same over TLS from its beginning."""


def _send(mail: EmailMessage, target: Target, route: MailRoute) -> int:
    """Send the mail; return how many recipients were refused while at least one was accepted."""
    with _connected(target, route) as smtp:
        if target.user:
            smtp.login(target.user, target.secret)
        return len(smtp.send_message(mail, route.sender, route.recipients))


@contextlib.contextmanager
def _connected(target: Target, route: MailRoute) -> Iterator[smtplib.SMTP]:
    timeout_s = target.patience_s
    # smtplib's own lookup of this machine's name may take minutes.
    name = socket.gethostname() if "." in socket.gethostname() else "[127.0.0.1]"
    if route.security is MailSecurity.TLS:
        context = ssl.create_default_context()
        smtp: smtplib.SMTP = _BoundedTls(route.host, route.port, name, timeout=timeout_s, context=context)
    else:
        smtp = _Bounded(route.host, route.port, name, timeout=timeout_s)
    try:
        if route.security is MailSecurity.STARTTLS:
            smtp.starttls(context=ssl.create_default_context())
        yield smtp
        with contextlib.suppress(smtplib.SMTPException, OSError):
            smtp.quit()  # the mail was accepted, however the session ends
    finally:
        smtp.close()


_NO_ENTRY = 535


def _mapped(error: Exception, target: Target) -> ChannelRefused | ChannelUnreachable:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        code, reply = next(iter(error.recipients.values()))
        return _answered(code, f"all recipients refused: {code} {_decoded(reply)}", target)
    if isinstance(error, smtplib.SMTPResponseException):
        if isinstance(error, smtplib.SMTPAuthenticationError) and error.smtp_code >= 500:
            return _answered(_NO_ENTRY, f"{error.smtp_code} {_decoded(error.smtp_error)}", target)
        return _answered(error.smtp_code, f"{error.smtp_code} {_decoded(error.smtp_error)}", target)
    if isinstance(error, smtplib.SMTPNotSupportedError) or type(error) is smtplib.SMTPException:
        hint = "set this channel's `security` to what the server supports (starttls, tls, none), or remove `user`"
        return target.refused(error, hint=hint)
    if isinstance(error, TimeoutError):
        return target.unreachable(f"no response within {target.patience_s:g} s")
    return target.unreachable(f"connection failed: {type(error).__name__} {error}")


def _answered(code: int, reply: str, target: Target) -> ChannelRefused | ChannelUnreachable:
    if not 500 <= code < 600:  # SMTP codes 4xx are temporary failures
        return target.unreachable(reply)
    if code in {_NO_ENTRY, 530, 534, 538}:
        return target.refused(reply, hint=f"set or fix this channel's `user` and password ({target.secret_setting})")
    return target.refused(
        reply, hint="fix this channel's `sender` or `recipients`, or contact the server's administrator"
    )


def _decoded(reply: bytes | str) -> str:
    if isinstance(reply, bytes):
        return reply.decode(errors="replace")
    return reply
