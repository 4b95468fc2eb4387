"""An MLflow server that stalls, fills, redirects or lies delays what is sent to it, and nothing else."""

import itertools
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException

from eval_jobs.errors import ConfigError
from eval_jobs.limits import MLFLOW_ANSWERS
from eval_jobs.queue.database_sql import open_database
from tests.fakes import hostile_server as hostile
from tests.fakes.clock import FakeClock
from tests.fakes.hostile_server import Behaviour, HostileServer
from tests.mlflow_stores import MlflowFiles
from tests.records import forgetting_run
from tracker.adapters.bounded_http import conversation
from tracker.adapters.mlflow import address
from tracker.adapters.mlflow.client import connect
from tracker.adapters.mlflow.registry import registered_checkpoint
from tracker.adapters.mlflow.runs import TrackingSettings
from tracker.adapters.mlflow.store import MlflowStore
from tracker.adapters.tracking.outbox_sql import BACKOFF, OutboxTracking

RUN = forgetting_run(checkpoints=1, samples=2, trouble=False)
ANSWER_S = 0.5
MAX_BYTES = 400 << 20

DEEP = b"[" * 1_000_000
LIES: dict[str, bytes] = {
    "no object": b"[1, 2]",
    "nothing": b"{}",
    "a list as an object": b'{"experiments": {"a": 1}, "runs": 7, "run": []}',
    "numbers as texts": b'{"experiments": [{"experiment_id": 1e400}], "runs": [{"info": {"start_time": "x"}}]}',
    "a whole number of a million digits": b'{"experiments": ' + b"9" * 1_000_000 + b"}",
    "lists in lists": DEEP,
    "half a character": b'{"experiments": [{"name": "\\ud800", "experiment_id": "\\ud800"}]}',
    "three million values": b'{"experiments": [' + b"0," * 3_000_000 + b"0]}",
    "no JSON": b"<html>Please sign in</html>",
    "no UTF-8": b"\xff\xfe\x00{",
}


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setattr(address, "CONNECT_TIMEOUT_S", 0.3)


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


@pytest.mark.parametrize(
    "behave",
    [
        hostile.trickle,
        hostile.trickle_headers,
        hostile.endless,
        hostile.endless_chunk_size,
        hostile.compressed,
        hostile.zstd,
        hostile.silent,
    ],
    ids=lambda behave: behave.__name__,
)
def test_an_answer_without_an_end_ends_and_is_no_refusal(
    behave: Behaviour, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with HostileServer(behave) as server, outbox(tmp_path, server.url) as (tracking, _):
        assert tracking.flush(60.0) == 2
        assert tracking.set_aside() == ()
    assert caplog.text.count("results not sent to MLflow, retrying") == 1
    assert "Traceback" not in caplog.text
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10 < MAX_BYTES + _before


@pytest.mark.parametrize("body", LIES.values(), ids=LIES)
def test_an_answer_of_another_form_is_an_error_of_the_store_and_no_exit(
    body: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with HostileServer(hostile.answer(body)) as server, outbox(tmp_path, server.url) as (tracking, clock):
        for _ in range(6):
            tracking.flush(60.0)
            clock.advance(BACKOFF.longest_s)
        assert tracking.flush(60.0) + len(tracking.set_aside()) == 2
        assert all(len(item.reason) < 1000 for item in tracking.set_aside())
    assert "Traceback" not in caplog.text


def test_all_arrives_once_when_the_server_is_back(tmp_path: Path) -> None:
    with HostileServer(hostile.endless) as server, outbox(tmp_path, server.url) as (tracking, _):
        assert tracking.flush(60.0) == 2
    files = MlflowFiles(tmp_path)
    with outbox(tmp_path, files.uri) as (tracking, _):
        assert tracking.flush() == 0
    assert len(files.runs()) == len(files.models()) == 1


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


@pytest.mark.parametrize("status", ["301 Moved Permanently", "302 Found", "307 Temporary Redirect"])
def test_neither_results_nor_the_token_go_to_another_server(
    status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "token-of-this-server")
    with HostileServer(hostile.answer(b"{}")) as other:
        behave = hostile.redirect(f"{other.url}/api/2.0/mlflow/experiments/search", status)
        with HostileServer(behave) as server, outbox(tmp_path, server.url) as (tracking, _):
            assert tracking.flush(60.0) == 2
            assert server.asked
        assert other.asked == []


def test_a_redirect_on_the_same_server_is_followed() -> None:
    steps = itertools.chain([hostile.redirect("/elsewhere", "308 Permanent Redirect")], itertools.repeat(_NO_MODEL))

    def behave(asked: bytes, connection: socket.socket) -> None:
        next(steps)(asked, connection)

    with HostileServer(behave) as server:
        with pytest.raises(ConfigError, match="no models:/m@champion"):
            registered_checkpoint(TrackingSettings(uri=server.url, experiment="e"), "models:/m@champion", [])
        assert "GET /elsewhere HTTP/1.1" in server.asked


_NO_MODEL = hostile.answer(b'{"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no"}', status="404 Not Found")


@pytest.mark.parametrize("behave", [hostile.trickle, hostile.trickle_headers, hostile.endless, hostile.compressed])
def test_a_check_of_the_address_ends(behave: Behaviour) -> None:
    with HostileServer(behave) as server:
        address.check_reachable(server.url)  # the version stays unknown


def test_a_list_whose_pages_never_end_ends() -> None:
    page = b'{"metrics": [{"key": "loss", "value": 1, "step": 1, "timestamp": 1}], "next_page_token": "again"}'
    with HostileServer(hostile.answer(page)) as server:
        client = connect(server.url, answer_s=ANSWER_S)
        with conversation(1.0, MLFLOW_ANSWERS), pytest.raises(MlflowException, match=r"timed out|too"):
            client.get_metric_history("r", "loss")


_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
