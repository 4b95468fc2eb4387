"""A small, strict mail server on loopback: what a real one demands in which order, and what it says otherwise.

with MailServer(users={"bot": "password"}) as server:
    ...  # send to server.port; then look at server.mails
"""

import base64
import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default
from typing import Self

MAX_LINE_BYTES = 1000
"""Of a mail, with its end: RFC 5321."""


@dataclass(frozen=True)
class Delivered:
    """One mail with its envelope."""

    sender: str
    recipients: tuple[str, ...]
    raw: bytes

    @property
    def mail(self) -> EmailMessage:
        mail = BytesParser(policy=default).parsebytes(self.raw)
        assert isinstance(mail, EmailMessage)
        return mail


@dataclass
class MailServer:
    """The server; a context manager."""

    users: Mapping[str, str] = field(default_factory=dict)
    """With these nobody sends without a password."""
    certificate: tuple[str, str] | None = None
    """Files of chain and key: STARTTLS is offered, and demanded before a password."""
    is_tls: bool = False
    """TLS from the first byte."""
    unknown: Sequence[str] = ()
    """Recipients that are refused."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """What is said instead, by command; `hang` says nothing, `drop` hangs up."""
    mails: list[Delivered] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    """Commands as they came, passwords included."""

    def __enter__(self) -> Self:
        self._stopping = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def tls(self) -> ssl.SSLContext:
        assert self.certificate is not None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.certificate)
        return context

    def wait(self) -> None:
        self._stopping.wait()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            if self.is_tls:
                connection = self.tls().wrap_socket(connection, server_side=True)
            with connection:
                _Session(self, connection).run()


class _Session:
    def __init__(self, server: MailServer, connection: socket.socket) -> None:
        self._server = server
        self._connection = connection
        self._file = connection.makefile("rb")
        self._is_secret = server.is_tls
        self._user = ""
        self._sender = ""
        self._recipients: list[str] = []
        self._greeted = False

    def run(self) -> None:
        try:
            self._converse()
        finally:
            self._file.close()
            self._connection.close()

    def _converse(self) -> None:
        if not self._override("CONNECT"):
            self._say("220 mail.example ESMTP")
        while line := self._file.readline(MAX_LINE_BYTES):
            text = line.decode().rstrip("\r\n")
            self._server.seen.append(text)
            verb = text.partition(" ")[0].upper()
            if self._override(verb):
                continue
            if verb == "QUIT":
                self._say("221 bye")
                return
            self._obey(verb, text)

    def _obey(self, verb: str, text: str) -> None:
        commands = {
            "EHLO": self._ehlo, "STARTTLS": self._starttls, "AUTH": self._auth,
            "MAIL": self._mail, "RCPT": self._rcpt, "DATA": self._data,
        }  # fmt: skip
        command = commands.get(verb)
        if command is None:
            self._say("502 command not implemented")
        else:
            command(text)

    def _override(self, verb: str) -> bool:
        said = self._server.answers.get(verb)
        if said is None:
            return False
        if said == "hang":
            self._server.wait()
        if said in {"hang", "drop"}:
            raise OSError
        self._say(said)
        return True

    def _ehlo(self, _: str) -> None:
        self._greeted = True
        offers = ["SIZE 10485760", "8BITMIME"]
        if self._server.certificate and not self._is_secret:
            offers.append("STARTTLS")
        if self._server.users and (self._is_secret or not self._server.certificate):
            offers.append("AUTH PLAIN")
        lines = ["mail.example", *offers]
        for index, line in enumerate(lines):
            self._say(f"250{' ' if index == len(lines) - 1 else '-'}{line}")

    def _starttls(self, _: str) -> None:
        if not self._server.certificate:
            self._say("502 no TLS here")
            return
        self._say("220 go ahead")
        self._file.close()
        self._connection = self._server.tls().wrap_socket(self._connection, server_side=True)
        self._file = self._connection.makefile("rb")
        self._is_secret, self._greeted = True, False

    def _auth(self, text: str) -> None:
        _, _, given = text.partition("AUTH PLAIN ")
        try:
            _, user, password = base64.b64decode(given).decode().split("\0")
        except ValueError:
            self._say("501 cannot decode")
            return
        if self._server.users.get(user) != password:
            self._say("535 5.7.8 authentication credentials invalid")
            return
        self._user = user
        self._say("235 2.7.0 accepted")

    def _mail(self, text: str) -> None:
        found = re.fullmatch(r"MAIL FROM:<([^<>\s]+@[^<>\s]+)>( SIZE=\d+)?( BODY=8BITMIME)?", text, re.IGNORECASE)
        if not self._greeted:
            self._say("503 EHLO first")
        elif self._server.users and not self._user:
            self._say("530 5.7.0 authentication required")
        elif found is None:
            self._say("501 syntax error")
        else:
            self._sender, self._recipients = found[1], []
            self._say("250 ok")

    def _rcpt(self, text: str) -> None:
        found = re.fullmatch(r"RCPT TO:<([^<>\s]+@[^<>\s]+)>", text, re.IGNORECASE)
        if not self._sender or found is None:
            self._say("503 MAIL first")
        elif found[1] in self._server.unknown:
            self._say("550 5.1.1 no such user")
        else:
            self._recipients.append(found[1])
            self._say("250 ok")

    def _data(self, _: str) -> None:
        if not self._recipients:
            self._say("503 RCPT first")
            return
        self._say("354 end with a dot")
        lines = []
        while (line := self._file.readline()) not in {b".\r\n", b""}:
            lines.append(line.removeprefix(b"."))
        is_sound = all(line.endswith(b"\r\n") and len(line) <= MAX_LINE_BYTES and line.isascii() for line in lines)
        if not is_sound:
            self._say("500 5.6.0 lines too long, without an end, or not of ASCII")
            return
        self._server.mails.append(Delivered(self._sender, tuple(self._recipients), b"".join(lines)))
        self._say("250 2.0.0 queued")

    def _say(self, line: str) -> None:
        self._connection.sendall(f"{line}\r\n".encode())
