"""Channels through the library apprise: on its word."""

import logging
from pathlib import Path

import apprise
import pytest

from eval_jobs.errors import ChannelUnreachable, ConfigError
from eval_jobs.host.secrets import held_secrets
from tests.alert_messages import hostile, ordinary
from tests.channels import opened
from tests.fakes.chat_services import Asked, ChatService, Said
from tracker.domain.alerts.channels import ChannelKind

TOKEN = "q7rK2mZ9x4Wv8LpT"  # noqa: S105 - of nobody


class Receiver:
    """Takes what apprise calls `json://`."""

    path = f"/{TOKEN}"

    def answer(self, asked: Asked) -> Said:
        return Said(200) if asked.json().get("title") else Said(400)

    def is_taken(self, said: Said) -> bool:
        return said.status == 200


def test_a_message_arrives_with_title_and_text(tmp_path: Path) -> None:
    with ChatService(Receiver()) as service:
        channel = opened(ChannelKind.APPRISE, service.url.replace("http", "json"), tmp_path)
        assert (channel.name, channel.repeat_s) == ("team", None)
        assert channel.notify(ordinary()) == "apprise reports delivery"
        channel.notify(hostile())
    document = service.taken[0].json()
    assert document["title"] == "run-a step 600: sums regressed"
    assert "tracker compare run-a 500 600" in document["message"]
    assert document["type"] == "failure"


def test_what_was_not_taken_is_tried_again_and_no_address_is_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with ChatService(Receiver()) as service:
        channel = opened(ChannelKind.APPRISE, service.url.replace("http", "json"), tmp_path)
        service.faults.append(Said(500, "oops"))
        with pytest.raises(ChannelUnreachable) as caught:
            channel.notify(ordinary())
    with pytest.raises(ChannelUnreachable):
        channel.notify(ordinary())  # nobody is there any more
    for text in (str(caught.value), repr(channel), caplog.text):
        assert TOKEN not in text


def test_a_token_in_the_place_of_a_host_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = opened(ChannelKind.APPRISE, f"bark://{TOKEN}", tmp_path)
    monkeypatch.setattr(apprise.Apprise, "notify", lambda _, **__: False)
    with pytest.raises(ChannelUnreachable) as caught:
        channel.notify(ordinary())
    assert TOKEN not in f"{caught.value}{channel!r}"
    assert TOKEN in held_secrets({})


@pytest.mark.parametrize("address", [f"nonsense://{TOKEN}", f"json://[{TOKEN}", TOKEN])
def test_an_address_that_apprise_does_not_know_is_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="apprise does not recognize the URL") as caught:
        opened(ChannelKind.APPRISE, address, tmp_path)
    assert TOKEN not in str(caught.value)
