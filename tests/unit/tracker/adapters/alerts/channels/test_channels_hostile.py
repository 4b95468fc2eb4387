"""Services that stall, fill, or send us elsewhere: within the patience, and to nobody else."""

import resource
from pathlib import Path

import pytest

from eval_jobs.errors import AlertError, ChannelUnreachable
from tests.alert_messages import ordinary
from tests.channels import KINDS, SECRETS, opened
from tests.fakes.hostile_server import (
    Behaviour,
    HostileServer,
    answer,
    compressed,
    endless,
    redirect,
    trickle,
    trickle_headers,
    zstd,
)
from tracker.domain.records.channels import ChannelKind

MAX_KIB = 600 << 10


@pytest.mark.parametrize("kind", [*KINDS, ChannelKind.APPRISE])
@pytest.mark.parametrize(
    "behave",
    [trickle, trickle_headers, endless, compressed, zstd, answer(b"[" * 60_000), answer(b'{"errcode": ' + b"9" * 9000)],
    ids=["trickle", "trickled headers", "endless", "compressed", "zstd", "lists in lists", "digits"],
)
def test_an_answer_without_an_end_or_without_sense_is_tried_again_within_the_patience(
    kind: ChannelKind, behave: Behaviour, tmp_path: Path
) -> None:
    with HostileServer(behave) as server:
        url = server.url.replace("http", "json") if kind is ChannelKind.APPRISE else server.url
        channel = opened(kind, url, tmp_path, secret=SECRETS.get(kind, ""), patience_s=0.2)
        try:
            channel.notify(ordinary())
        except ChannelUnreachable:
            pass
        else:  # a webhook and apprise accept any answer with this status
            assert kind in {ChannelKind.WEBHOOK, ChannelKind.APPRISE}
    # What is left of it ends with its server, and does not fill the memory meanwhile.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < MAX_KIB


@pytest.mark.parametrize("kind", [*KINDS, ChannelKind.APPRISE])
def test_no_alert_goes_to_another_server(kind: ChannelKind, tmp_path: Path) -> None:
    with HostileServer(answer(b"ok")) as other, HostileServer(redirect(other.url)) as server:
        url = server.url.replace("http", "json") if kind is ChannelKind.APPRISE else server.url
        channel = opened(kind, url, tmp_path, secret=SECRETS.get(kind, ""))
        with pytest.raises(AlertError):
            channel.notify(ordinary())
        assert server.asked
        assert other.asked == []
