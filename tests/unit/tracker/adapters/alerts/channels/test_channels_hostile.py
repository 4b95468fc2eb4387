"""Notification services that stall, fill or redirect: each attempt ends in time, and nothing is sent elsewhere."""

import threading
import tracemalloc
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
from tracker.domain.alerts.channels import ChannelKind

ALL = (*KINDS, ChannelKind.APPRISE)
WITHOUT_SENSE: dict[str, Behaviour] = {
    "compressed": compressed,
    "lists in lists": answer(b"[" * 60_000),
    "digits": answer(b'{"errcode": ' + b"9" * 9000),
}
FULL: tuple[Behaviour, ...] = (endless, zstd)
SLOW: tuple[Behaviour, ...] = (trickle, trickle_headers)
MOST_BYTES = 32 << 20
"""What a server may send until its client has gone: more than both of their buffers."""
MOST_MEMORY = 16 << 20


def is_taken(kind: ChannelKind, server: HostileServer, folder: Path, *, patience_s: float = 60.0) -> bool:
    """Send an alert to the server; return whether its answer counts as a receipt."""
    url = server.url.replace("http", "json") if kind is ChannelKind.APPRISE else server.url
    channel = opened(kind, url, folder, secret=SECRETS.get(kind, ""), patience_s=patience_s)
    try:
        channel.notify(ordinary())
    except ChannelUnreachable:
        return False
    return True


# Both ways to send: httpx, which all channels have in common, and requests, which apprise uses.
@pytest.mark.parametrize("kind", [ChannelKind.DINGTALK, ChannelKind.APPRISE])
def test_an_answer_without_an_end_is_left_at_its_limit_or_at_the_end_of_the_patience(
    kind: ChannelKind, tmp_path: Path
) -> None:
    for behave in FULL:
        with HostileServer(behave) as server:
            assert not is_taken(kind, server, tmp_path, patience_s=2.0), behave
            assert server.sent_bytes < MOST_BYTES, behave
    for behave in SLOW:
        with HostileServer(behave) as server:
            assert not is_taken(kind, server, tmp_path, patience_s=0.25), behave
    for thread in threading.enumerate():
        if thread.name == "alert channel":  # of a slow server, which has gone
            thread.join(60)
            assert not thread.is_alive()


def test_an_answer_without_sense_is_tried_again_and_fills_no_memory(tmp_path: Path) -> None:
    with HostileServer(compressed) as server:
        for kind in ALL:
            for name, server.behave in WITHOUT_SENSE.items():
                tracemalloc.start()
                try:
                    taken = is_taken(kind, server, tmp_path)
                    peak = tracemalloc.get_traced_memory()[1]
                finally:
                    tracemalloc.stop()
                # A webhook and apprise take any answer with this status that is as short as it should be.
                takes_any = kind in {ChannelKind.WEBHOOK, ChannelKind.APPRISE} and name != "compressed"
                assert (taken, peak < MOST_MEMORY) == (takes_any, True), (kind, name, peak)


def test_no_alert_goes_to_another_server(tmp_path: Path) -> None:
    with HostileServer(answer(b"ok")) as other, HostileServer(redirect(other.url)) as server:
        for number, kind in enumerate(ALL, 1):
            url = server.url.replace("http", "json") if kind is ChannelKind.APPRISE else server.url
            with pytest.raises(AlertError):
                opened(kind, url, tmp_path, secret=SECRETS.get(kind, "")).notify(ordinary())
            assert len(server.asked) >= number, kind
            assert other.asked == [], kind
