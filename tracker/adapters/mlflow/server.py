"""Runs MLflow's own server on the project's store, to browse it.

The server has its own process group; it listens on 127.0.0.1 only and ends with the context.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from eval_jobs.errors import PortTaken, TrackingUnreachable
from eval_jobs.host.bounded.client import BoundedClient
from eval_jobs.host.secrets import passed_on
from tracker.adapters.mlflow.address import public
from tracker.adapters.mlflow.client import connect
from tracker.adapters.mlflow.errors_sql import mapped_mlflow_errors
from tracker.adapters.mlflow.view import VIEW_TAG, view_link
from tracker.domain.records.display import one_line

HOST = "127.0.0.1"
START_POLLS = 600
POLL_S = 0.2
STOP_TIMEOUT_S = 10.0
LOG_NAME = "mlflow-server.log"


@dataclass(frozen=True, kw_only=True)
class RunningServer:
    """A server that responds."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path


def serve_ui(store_uri: str, artifacts_dir: Path, port: int, on_ready: Callable[[str], None]) -> int:
    """Serve the pages of `store_uri` until Ctrl-C; return the exit code 0.

    Args:
        store_uri: MLflow tracking URI. For a server that is already running, only its links are passed to `on_ready`.
        artifacts_dir: folder of the store's files; the server's log is written next to it.
        port: 0 picks a free one.
        on_ready: called with the name of each experiment and the link of its ready-made page, as one line, last changed
            first, once they can be opened.

    Raises:
        PortTaken: another process listens on `port`.
        TrackingUnreachable: the store cannot be opened, or the server did not start or ended; the hint names its log.
    """
    if store_uri.startswith("http"):
        _announce(store_uri, store_uri, on_ready)
        return 0
    with running_server(store_uri, artifacts_dir, port) as server:
        _announce(store_uri, server.url, on_ready)
        with suppress(KeyboardInterrupt):
            code = server.process.wait()
            raise _died(server.log, code)
    return 0


@contextmanager
def running_server(store_uri: str, artifacts_dir: Path, port: int = 0) -> Iterator[RunningServer]:
    """Run a server while the context is open.

    Raises:
        PortTaken, TrackingUnreachable: as `serve_ui`.
    """
    with mapped_mlflow_errors(public(store_uri)):
        connect(store_uri)  # creates the tables: a server with a broken store would start and fail on every page
    port = _free_port(port)
    artifacts_dir.mkdir(parents=True, exist_ok=True)
    log = artifacts_dir.parent / LOG_NAME
    with log.open("wb") as output:
        process = _start(store_uri, artifacts_dir, port, output.fileno())
    server = RunningServer(url=f"http://{HOST}:{port}", process=process, log=log)
    try:
        _wait_until_ready(server)
        yield server
    finally:
        _stop(process)


def page_links(store_uri: str, base_url: str) -> Mapping[str, str]:
    """Return the link of every experiment that the tracker writes to by its name, last changed first.

    Raises:
        TrackingUnreachable, StoreError: the store cannot be read.
    """
    with mapped_mlflow_errors(public(store_uri)):
        experiments = connect(store_uri).search_experiments(order_by=["last_update_time DESC"])
        return {e.name: view_link(base_url, e.experiment_id) for e in experiments if VIEW_TAG in e.tags}


def _announce(store_uri: str, base_url: str, on_ready: Callable[[str], None]) -> None:
    links = page_links(store_uri, base_url).items()
    for line in [f"experiment {one_line(name)}: {link}" for name, link in links] or [base_url]:
        on_ready(line)


def _free_port(port: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was just released is free
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise PortTaken(
                f"port {port} on {HOST} is in use", hint="pass another --port, or --port 0 for any free port"
            ) from error
        free: int = probe.getsockname()[1]
        return free


def _start(store_uri: str, artifacts_dir: Path, port: int, output: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(port), "--workers", "1"]
    needed = (name for name in os.environ if name.startswith(("MLFLOW_", "AWS_", "AZURE_STORAGE_", "PG")))
    environment = passed_on(os.environ, keep=needed) | {
        "MLFLOW_BACKEND_STORE_URI": store_uri,  # not an argument: it may hold a password, and `ps` shows arguments
        "MLFLOW_ARTIFACTS_DESTINATION": artifacts_dir.absolute().as_uri(),
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # saves 230 MB for jobs that are never submitted
    }
    return subprocess.Popen(
        command,
        cwd=artifacts_dir.parent,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _wait_until_ready(server: RunningServer) -> None:
    for _ in range(START_POLLS):
        with suppress(httpx.HTTPError), BoundedClient(POLL_S * 10, {}, trust_env=False) as client:
            if client.get(f"{server.url}/health").is_success:
                return
        with suppress(subprocess.TimeoutExpired):
            raise _died(server.log, server.process.wait(POLL_S))
    raise TrackingUnreachable(
        f"no response from the MLflow server at {server.url} after {START_POLLS * POLL_S:.0f} s",
        hint=f"see {server.log}",
    )


def _died(log: Path, code: int) -> TrackingUnreachable:
    return TrackingUnreachable(f"the MLflow server exited with code {code}", hint=f"see {log}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_TIMEOUT_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # its workers, if they have outlived it
    process.wait()
