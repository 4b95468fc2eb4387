"""Whatever an address answers becomes one of two errors: come back later, or this item is refused."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from mlflow.entities.span import Span
from mlflow.tracing.client import TracingClient

from eval_jobs.errors import ConfigError, StoreError, TrackingUnreachable
from tests.records import forgetting_run
from tracker.adapters.mlflow.address import check_reachable, public
from tracker.adapters.mlflow.errors_sql import mapped_mlflow_errors
from tracker.adapters.mlflow.runs import TrackingSettings
from tracker.adapters.mlflow.store import MlflowStore
from tracker.domain.tracking.batch import curve_batch

RUN = forgetting_run(checkpoints=1, samples=4)
ITEM = curve_batch(RUN.records[0].plan.checkpoint, RUN.curves)


@contextmanager
def answering(status: int, body: str) -> Iterator[str]:
    """Run a server that gives one answer to everything, and yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Retry-After", "600")
            self.end_headers()
            self.wfile.write(body.encode())

        do_POST = do_GET  # noqa: N815 - the name is http.server's

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def send(uri: str) -> None:
    MlflowStore(TrackingSettings(uri=uri, experiment="e")).send(ITEM)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, "<html>somebody else's page</html>"),
        (404, "<html>no such page</html>"),
        (502, "<html>bad gateway</html>"),
        (503, json.dumps({"error_code": "TEMPORARILY_UNAVAILABLE", "message": "database is locked"})),
        (429, json.dumps({"error_code": "REQUEST_LIMIT_EXCEEDED", "message": "slow down"})),
    ],
)
def test_an_address_that_is_no_working_mlflow_is_unreachable(status: int, body: str) -> None:
    with answering(status, body) as uri, pytest.raises(TrackingUnreachable) as caught:
        send(uri)
    assert uri in caught.value.message


@pytest.mark.parametrize("status", [401, 403])
def test_missing_credentials_are_named(status: int) -> None:
    with answering(status, "You are not authenticated") as uri, pytest.raises(TrackingUnreachable) as caught:
        send(uri)
    assert "MLFLOW_TRACKING_USERNAME" in caught.value.hint


def test_a_server_older_than_the_oldest_tested_is_refused_with_both_versions_and_results_wait() -> None:
    refused = pytest.raises(TrackingUnreachable, match=r"has version 2\.22\.0; 3\.1 or newer is required")
    with answering(200, "2.22.0") as uri, refused as caught:
        check_reachable(uri)
    assert "update the MLflow server" in caught.value.hint
    for status, body in ((404, "2.22.0"), (200, "3.1.4"), (200, "3.2.0rc1"), (200, "<html>a proxy</html>")):
        with answering(status, body) as uri:
            check_reachable(uri)


def test_a_server_that_is_too_old_for_traces_is_a_wrong_setting_with_its_version() -> None:
    ids = {"trace_id": "A" * 22 + "==", "span_id": "A" * 11 + "=", "parent_span_id": None, "name": "s"}
    times = {"start_time_unix_nano": 1, "end_time_unix_nano": 1, "events": []}
    status = {"status": {"code": "STATUS_CODE_OK", "message": ""}, "attributes": {"mlflow.traceRequestId": '"tr-1"'}}
    span = Span.from_dict({**ids, **times, **status})
    too_old = pytest.raises(ConfigError, match=r"too old: .*3\.1\.4")
    with answering(200, "3.1.4") as uri, too_old, mapped_mlflow_errors(uri):
        TracingClient(uri).log_spans("0", [span])


@pytest.mark.parametrize("code", ["INVALID_PARAMETER_VALUE", "INTERNAL_ERROR"])
def test_an_answer_about_one_item_is_no_reason_to_give_up_on_the_others(code: str) -> None:
    body = json.dumps({"error_code": code, "message": "this one I do not like"})
    with answering(400, body) as uri, pytest.raises(StoreError, match="do not like") as caught:
        send(uri)
    assert not isinstance(caught.value, TrackingUnreachable)


@pytest.mark.parametrize("uri", ["http://no-such-host.invalid:5000", "postgresql://user:secret@127.0.0.1:1/mlflow"])
def test_an_address_where_nobody_listens_is_named_without_its_password(uri: str) -> None:
    with pytest.raises(TrackingUnreachable, match="cannot connect to") as caught:
        send(uri)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("uri", ["http://host:port", "nosuchdialect+driver://host/db", "mysql+nodriver://127.0.0.1/x"])
def test_an_address_that_is_none_is_a_wrong_setting(uri: str) -> None:
    with pytest.raises((ConfigError, StoreError)) as caught:
        send(uri)
    assert uri.partition(":")[0] in str(caught.value)


def test_a_password_is_never_shown() -> None:
    assert public("http://me:secret@host:5000") == "http://me:***@host:5000"
    assert public("sqlite:////a/b.db") == "sqlite:////a/b.db"
