"""Alerts on a real Alertmanager: seen with their labels, over when they are over, and there again after it forgot."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from eval_jobs.errors import ChannelRefused, ChannelUnreachable
from eval_jobs.host.clock import SystemClock
from tests.alert_messages import alert, hostile, huge, message_of
from tests.alertmanagers import AlertmanagerServer, alertmanager, eventually
from tests.fakes.chat_services import Asked, ChatService, Said
from tracker.adapters.alerts.opening import open_channels
from tracker.domain.alerts.channels import ChannelKind, ChannelSettings, SecretSource
from tracker.domain.records.alerts import AlertMessage, AlertState
from tracker.ports import Notifier

HASH_OF_SECRET = "$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW"  # noqa: S105 - of a server in this test


class Receiver:
    """What Alertmanager sends its own news to."""

    path = "/news"

    def __init__(self) -> None:
        self.news: list[dict[str, Any]] = []

    def answer(self, asked: Asked) -> Said:
        self.news.append(asked.json())
        return Said(200)

    def is_taken(self, said: Said) -> bool:
        return said.status == 200

    def names(self, status: str) -> set[tuple[str, str]]:
        """Return alert name and subject of everything that was said to be so."""
        alerts = [one for news in self.news for one in news["alerts"] if one["status"] == status]
        return {(one["labels"]["alertname"], one["labels"]["subject"]) for one in alerts}


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def server(receiver: Receiver) -> Iterator[AlertmanagerServer]:
    with ChatService(receiver) as service, alertmanager(receiver=service.url) as server:
        yield server


def channel_to(url: str, **more: Any) -> Notifier:
    settings = ChannelSettings(name="ops", kind=ChannelKind.ALERTMANAGER, url=url, **more)
    return open_channels((settings,), SystemClock())[0]


def message(state: AlertState, *numbers: int) -> AlertMessage:
    """Return news of now: what is over began before."""
    subjects = {number: f"part-{number}" for number in numbers}
    moment = datetime.now(UTC) - (timedelta(minutes=5) if state is AlertState.FIRING else timedelta())
    return message_of(*(replace(alert(n, state=state, subject=name), raised_at=moment) for n, name in subjects.items()))


def subjects(server: AlertmanagerServer) -> set[str]:
    return {one["labels"]["subject"] for one in server.alerts()}


def test_an_alert_is_seen_with_its_labels_and_evidence_and_gone_when_it_is_over(
    server: AlertmanagerServer, receiver: Receiver
) -> None:
    channel = channel_to(server.url)
    channel.notify(message(AlertState.FIRING, 1, 2))
    channel.notify(message(AlertState.FIRING, 1, 2))  # at least once
    (one, two) = sorted(server.alerts(), key=lambda found: str(found["labels"]["subject"]))
    assert one["labels"] == {
        "alertname": "CheckpointRegressed",
        "run": "run-a",
        "subject": "part-1",
        "kind": "loss",
        "severity": "critical",
        "fingerprint": "0000000000000001",
    }
    assert one["annotations"]["summary"] == "run-a step 600: part-1 regressed"
    assert one["annotations"]["change"].endswith("(95 % CI −0.310 to −0.110; positive is better)")  # noqa: RUF001 - as it is shown
    assert one["annotations"]["lost_samples"] == "What is 17 + 25?\nWhat is 8 * 7?"
    assert one["annotations"]["command"] == "tracker compare run-a 500 600"
    assert one["generatorURL"] == "https://mlflow.example/#/experiments/1"
    assert datetime.fromisoformat(two["endsAt"].replace("Z", "+00:00")) > datetime.now(UTC) + timedelta(days=29)
    eventually(lambda: len(receiver.names("firing")) == 2)

    channel.notify(message(AlertState.RESOLVED, 1))
    assert subjects(server) == {"part-2"}
    eventually(lambda: receiver.names("resolved") == {("CheckpointRegressed", "part-1")})
    assert receiver.names("firing") == {("CheckpointRegressed", "part-1"), ("CheckpointRegressed", "part-2")}
    grouped = receiver.news[0]
    assert grouped["groupLabels"] == {"run": "run-a"}


def test_one_that_forgot_hears_again_what_is_firing(server: AlertmanagerServer) -> None:
    channel = channel_to(server.url)
    channel.notify(message(AlertState.FIRING, 1))
    server.stop()
    with pytest.raises(ChannelUnreachable, match="ops"):
        channel.notify(message(AlertState.FIRING, 1))
    server.start()
    assert subjects(server) == set()
    assert channel.repeat_s is not None
    channel.notify(message(AlertState.FIRING, 1))
    assert subjects(server) == {"part-1"}
    # one that ended while it was away, and is unknown there, is no alert
    channel.notify(message(AlertState.RESOLVED, 2))
    assert subjects(server) == {"part-1"}


def test_what_others_wrote_is_only_text_to_it(server: AlertmanagerServer) -> None:
    channel = channel_to(f"{server.url}/")
    channel.notify(hostile())
    channel.notify(huge("错", count=60))
    assert len(server.alerts()) == 61
    assert any("错误😀" in one["annotations"]["description"] for one in server.alerts())


def test_who_asks_for_a_password_lets_nobody_else_in(tmp_path: Path) -> None:
    with alertmanager(password_hash=HASH_OF_SECRET) as server:
        (tmp_path / "password").write_text("secret")
        with pytest.raises(ChannelRefused, match="401"):
            channel_to(server.url).notify(message(AlertState.FIRING, 1))
        channel = channel_to(server.url, user="me", secret_place=SecretSource(file=tmp_path / "password"))
        channel.notify(message(AlertState.FIRING, 1))
        assert subjects(server) == {"part-1"}


def test_somebody_else_at_the_address_is_no_alertmanager(server: AlertmanagerServer) -> None:
    with pytest.raises(ChannelRefused, match="404"):
        channel_to(f"{server.url}/prefix").notify(message(AlertState.FIRING, 1))
