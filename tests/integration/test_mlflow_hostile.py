"""An MLflow server that stalls, fills, redirects or lies delays what is sent to it, and nothing else."""

import itertools
import socket
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
from mlflow.environment_variables import MLFLOW_HTTP_REQUEST_TIMEOUT
from mlflow.exceptions import MlflowException

from eval_jobs.errors import ConfigError, TrackingUnreachable
from eval_jobs.limits import MLFLOW_ANSWERS, VALUES
from eval_jobs.queue.database_sql import open_database
from tests.fakes import hostile_server as hostile
from tests.fakes.clock import FakeClock
from tests.fakes.hostile_server import HostileServer
from tests.records import forgetting_run
from tracker.adapters.bounded_http import conversation
from tracker.adapters.mlflow import address
from tracker.adapters.mlflow.client import connect
from tracker.adapters.mlflow.registry import registered_checkpoint
from tracker.adapters.mlflow.runs import TrackingSettings
from tracker.adapters.mlflow.store import MlflowStore
from tracker.adapters.tracking.outbox_sql import ASIDE_S, BACKOFF, OutboxTracking

RUN = forgetting_run(checkpoints=1, samples=2, trouble=False)
ANSWER_S = 0.3
PATIENCE_S = "0.3"
MOST_BYTES = MLFLOW_ANSWERS.most + (32 << 20)
"""What a server may send until its client has gone: the limit, and the buffers of both."""
MOST_MEMORY = 3 * MLFLOW_ANSWERS.most

SLOW = (hostile.trickle, hostile.trickle_headers, hostile.silent)
FULL = (hostile.endless, hostile.endless_chunk_size, hostile.compressed, hostile.zstd)
LIES: dict[str, bytes] = {
    "no object": b"[1, 2]",
    "nothing": b"{}",
    "a list as an object": b'{"experiments": {"a": 1}, "runs": 7, "run": []}',
    "numbers as texts": b'{"experiments": [{"experiment_id": 1e400}], "runs": [{"info": {"start_time": "x"}}]}',
    "a whole number of a million digits": b'{"experiments": ' + b"9" * 1_000_000 + b"}",
    "lists in lists": b"[" * 1_000_000,
    "half a character": b'{"experiments": [{"name": "\\ud800", "experiment_id": "\\ud800"}]}',
    "three million values": b'{"experiments": [' + b"0," * (VALUES.most + 1) + b"0]}",
    "no JSON": b"<html>Please sign in</html>",
    "no UTF-8": b"\xff\xfe\x00{",
}


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MLFLOW_HTTP_REQUEST_TIMEOUT, "type", float)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", PATIENCE_S)
    monkeypatch.setattr(address, "CONNECT_TIMEOUT_S", 0.2)
    monkeypatch.setattr(address, "VERSION_TIMEOUT_S", ANSWER_S)


@contextmanager
def outbox(folder: Path, url: str) -> Iterator[tuple[OutboxTracking, FakeClock]]:
    store = MlflowStore(
        TrackingSettings(uri=url, experiment="e", output_dir="/out"), open_client=partial(connect, answer_s=ANSWER_S)
    )
    clock = FakeClock()
    database = open_database(f"sqlite:///{folder}/tracker.db")
    with closing(OutboxTracking(database, store, clock)) as tracking:
        tracking.publish_curves(RUN.records[0].plan.checkpoint, RUN.curves)
        tracking.publish(RUN.records[0], RUN.reports[0])
        yield tracking, clock


def test_an_answer_without_an_end_ends_and_is_no_refusal(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with HostileServer(hostile.silent) as server, outbox(tmp_path, server.url) as (tracking, clock):
        for server.behave in (*SLOW, *FULL):
            asked, sent_bytes = len(server.asked), server.sent_bytes
            tracemalloc.start()
            try:
                assert tracking.flush(60.0) == 2, server.behave
                assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY, server.behave
            finally:
                tracemalloc.stop()
            assert len(server.asked) > asked, server.behave
            assert server.sent_bytes - sent_bytes < 2 * MOST_BYTES, server.behave  # of the version and of a run
            clock.advance(BACKOFF.longest_s)
        assert tracking.set_aside() == ()
    assert caplog.text.count("results not sent to MLflow, retrying") == 1
    assert "Traceback" not in caplog.text


def test_an_answer_of_another_form_is_an_error_of_the_store_and_no_exit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with HostileServer(hostile.silent) as server, outbox(tmp_path, server.url) as (tracking, clock):
        for name, body in LIES.items():
            asked, server.behave = len(server.asked), hostile.answer(body)
            clock.advance(ASIDE_S)  # what an earlier lie refused is sent again
            tracking.flush(60.0)
            assert tracking.flush(60.0) + len(tracking.set_aside()) == 2, name
            assert len(server.asked) > asked, name
            assert all(len(item.reason) < 1000 for item in tracking.set_aside()), name
    assert "Traceback" not in caplog.text


def test_what_a_lying_server_refused_is_sent_again_an_hour_later(tmp_path: Path) -> None:
    refusal = hostile.answer(b'{"error_code": "INVALID_PARAMETER_VALUE"}', status="400 Bad Request")
    with HostileServer(refusal) as server, outbox(tmp_path, server.url) as (tracking, clock):
        while tracking.flush(60.0):
            clock.advance(BACKOFF.longest_s)
        assert len(tracking.set_aside()) == 2
        asked = len(server.asked)
        clock.advance(3600.0)
        tracking.flush(60.0)
        assert len(server.asked) > asked


def test_a_pass_does_not_wait_for_a_server_and_one_thread_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "CONNECT_TIMEOUT_S", 60.0)
    is_asked, may_end = threading.Event(), threading.Event()

    def hold(_: bytes, _connection: socket.socket) -> None:
        is_asked.set()
        may_end.wait(60)

    with HostileServer(hold) as server, outbox(tmp_path, server.url) as (tracking, _clock):
        for _ in range(5):
            assert tracking.flush(0.0) == 2
        assert is_asked.wait(60)
        assert tracking.flush(0.0) == 2
        assert [thread.name for thread in threading.enumerate()].count("sending to MLflow") == 1
        may_end.set()


def test_neither_results_nor_the_token_go_to_another_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "token-of-this-server")
    other, server = HostileServer(hostile.answer(b"{}")), HostileServer(hostile.silent)
    with other, server, outbox(tmp_path, server.url) as (tracking, clock):
        for status in ("301 Moved Permanently", "302 Found", "307 Temporary Redirect"):
            asked = len(server.asked)
            server.behave = hostile.redirect(f"{other.url}/api/2.0/mlflow/experiments/search", status)
            assert tracking.flush(60.0) == 2, status
            assert len(server.asked) > asked, status
            assert other.asked == [], status
            clock.advance(BACKOFF.longest_s)


def test_a_redirect_on_the_same_server_is_followed() -> None:
    steps = itertools.chain([hostile.redirect("/elsewhere", "308 Permanent Redirect")], itertools.repeat(_NO_MODEL))

    def behave(asked: bytes, connection: socket.socket) -> None:
        next(steps)(asked, connection)

    with HostileServer(behave) as server:
        with pytest.raises(ConfigError, match="no models:/m@champion"):
            registered_checkpoint(TrackingSettings(uri=server.url, experiment="e"), "models:/m@champion", [])
        assert "GET /elsewhere HTTP/1.1" in server.asked


_NO_MODEL = hostile.answer(b'{"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no"}', status="404 Not Found")


def test_a_check_of_the_address_ends() -> None:
    for behave in (hostile.trickle, hostile.trickle_headers, hostile.endless, hostile.compressed):
        with HostileServer(behave) as server:
            with pytest.raises(TrackingUnreachable, match="cannot use"):
                address.check_reachable(server.url)
            assert server.sent_bytes < MOST_BYTES, behave


def test_a_list_whose_pages_never_end_ends() -> None:
    page = b'{"metrics": [{"key": "loss", "value": 1, "step": 1, "timestamp": 1}], "next_page_token": "again"}'
    with HostileServer(hostile.answer(page)) as server:
        client = connect(server.url, answer_s=ANSWER_S)
        with conversation(0.2, MLFLOW_ANSWERS), pytest.raises(MlflowException, match=r"timed out|too"):
            client.get_metric_history("r", "loss")
