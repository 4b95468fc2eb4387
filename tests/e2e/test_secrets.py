"""Canaries for keys and passwords: everything fails on purpose and repeats what it was sent; then they are looked for.

Looked through: every file of the project (Parquet and compressed records unpacked), every table of PostgreSQL, the
MLflow store, all that was printed with `--debug`, the report, the command lines of all processes meanwhile, and the
environment of the processes that have no use for a password.
"""

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from sqlalchemy import inspect, text

from eval_jobs.queue.database_sql import open_database
from tests.fakes.openai_server import OpenAIServer, Reply, Request
from tests.postgres import PostgresServer
from tests.shared_servers import shared
from tests.tiny_model import write_checkpoint

TRACKER = Path(sys.executable).parent / "tracker"
KEY = "canary-key-8c1f4711"
DATABASE = "canary-database-7d20"
WRONG_PASSWORD = "canary-wrong-password-03e9"  # noqa: S105 - of nobody
STORE = "canary-mlflow-91ce"
BASIC = base64.b64encode(f"me:{STORE}".encode()).decode()
CANARIES = tuple(canary.encode() for canary in (KEY, DATABASE, WRONG_PASSWORD, STORE, BASIC))
REPEATS = 8
CHILDREN = ("eval_jobs.evaluate.evalscope.child.main", "eval_jobs.probe.client.main")

CONFIG = """
[run]
name = "sums"
output_dir = "out"
[watch]
settle_s = 0.2
rescan_s = 0.5
[serve]
engine = "remote"
base_url = "{base_url}"
api_key_env = "GATEWAY_KEY"
[suite]
max_tokens = 8
[[benchmark]]
benchmark = "exact"
name = "repeats"
data = "repeats.jsonl"
[[benchmark]]
benchmark = "exact"
name = "refuses"
data = "refuses.jsonl"
[probe]
requests = 2
warmup_requests = 0
[store]
database = "{database}"
{password}
[tracking]
{tracking}
"""

pytestmark = pytest.mark.timeout(900)


def answer(request: Request) -> Reply:
    """Repeat the header with the key: as an answer, as a refused sample, as a refused key."""
    said = next(value for name, value in request.headers.items() if name.lower() == "authorization")
    if request.body.get("stream"):
        return Reply(text=f"the header was {said}")
    if request.prompt.startswith("key"):
        return Reply(status=401, text=f"{said} is refused")
    if request.prompt.startswith("refuse"):
        return Reply(status=400, text=f"not for {said}")
    return Reply(text=f"the header was {said}", headers=(("X-Echo", said),))


class Echo(BaseHTTPRequestHandler):
    """An MLflow server that refuses everybody and repeats the header with the password."""

    def do_GET(self) -> None:
        said = self.headers.get("Authorization", "")
        body = json.dumps({"error_code": "PERMISSION_DENIED", "message": f"{said} is refused"}).encode()
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""


@contextmanager
def refusing_mlflow() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


class Sampler(threading.Thread):
    """Notes the command line of every process, and the environment of our children, as long as it runs."""

    def __init__(self, marker: str) -> None:
        super().__init__(daemon=True)
        self.marker = marker.encode()
        """What stands in the environment of our children only: other tests have such processes too."""
        self.command_lines: set[bytes] = set()
        self.environments: dict[str, bytes] = {}
        self.ended = threading.Event()
        self.repeated = threading.Semaphore(0)
        """Counts requests of `repeats` since the last of `refuses`."""

    def run(self) -> None:
        while not self.ended.wait(0.1):
            self.look()

    def look(self) -> None:
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                line = (folder / "cmdline").read_bytes()
                self.command_lines.add(line)
                for child in CHILDREN:
                    if child.encode() in line:
                        environment = (folder / "environ").read_bytes()
                        if self.marker in environment:
                            self.environments[child] = environment
            except OSError:
                continue

    def answer(self, request: Request) -> Reply:
        """Look while the child that asks waits for its answer, then answer; a refused key ends what is left to ask."""
        self.look()
        if request.prompt.startswith("repeat"):
            self.repeated.release()
        elif request.prompt.startswith("key"):
            for _ in range(REPEATS):
                self.repeated.acquire(timeout=60)
        return answer(request)


def tracker(folder: Path, *arguments: str, until: str = "", **variables: str) -> tuple[int, str]:
    """Run `tracker --debug`, interrupted as soon as it says `until`; return its exit code and all that it said."""
    said = folder / f"said-{len(list(folder.glob('said-*')))}.txt"
    with said.open("wb") as output:
        process = subprocess.Popen(
            [str(TRACKER), "--debug", *arguments],
            cwd=folder,
            env=os.environ
            | {
                "OF_TEST": str(folder),
                "TRACKER_PASS_ENV": "OF_TEST",
                "MLFLOW_TRACKING_USERNAME": "me",
                "MLFLOW_TRACKING_PASSWORD": STORE,
            }
            | variables,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        waited = threading.Event()
        while until and process.poll() is None and until not in said.read_text():
            waited.wait(0.1)
        if until:
            process.send_signal(signal.SIGINT)
        process.wait(300)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return process.returncode, said.read_text()


def contents(path: Path) -> bytes:
    """Return what is in a file, unpacked."""
    if path.suffix == ".parquet":
        return repr(pq.read_table(path).to_pylist()).encode()
    return path.read_bytes()


def tables(url: str) -> Iterator[tuple[str, bytes]]:
    """Yield every row of every table, unpacked."""
    engine = open_database(url, password=DATABASE)
    with engine.connect() as connection:
        for table in inspect(engine).get_table_names():
            for row in connection.execute(text(f"SELECT * FROM {table}")):  # noqa: S608 - of a database of our own
                for value in row:
                    data = bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode()
                    yield table, zlib.decompress(data) if data[:1] == b"\x78" else data
    engine.dispose()


class Site:
    """A project in which everything repeats what it was sent."""

    def __init__(self, folder: Path, server: OpenAIServer, database: str) -> None:
        self.folder = folder
        self.server = server
        self.database = database
        # no question begins with a word of the latency test's prompts
        rows = [*(f"repeat {n}" for n in range(REPEATS)), "refuse 1"]
        for name, questions in (("repeats", rows), ("refuses", ["key 1"])):
            lines = [json.dumps({"question": question, "answer": "x"}) for question in questions]
            (folder / f"{name}.jsonl").write_text("\n".join(lines))
        write_checkpoint(folder / "out" / "checkpoint-100", seed=1)

    def configure(self, *, store: str, tracking: str = "") -> None:
        text = CONFIG.format(base_url=self.server.base_url, database=self.database, password=store, tracking=tracking)
        (self.folder / "tracker.toml").write_text(text)


def fail_in_every_way(site: Site, mlflow: str) -> None:
    """Watch, report and look, with right and wrong passwords, by variable and by file."""
    password = site.folder.parent / "database-password"  # beside what is looked through
    password.write_text(DATABASE + "\n")
    site.configure(store='password_env = "RUNS"', tracking=f'uri = "{mlflow}"')
    _, said = tracker(site.folder, "watch", until="refuses      ", GATEWAY_KEY=KEY, RUNS=DATABASE)
    assert "Basic *** is refused" in said
    site.configure(store=f'password_file = "{password}"')
    code, said = tracker(site.folder, "watch", "--until-idle", GATEWAY_KEY=KEY)  # now to a store that takes it
    assert (code, "1 checkpoint evaluated, 0 not evaluated" in said) == (4, True), said  # of `refuses`
    assert tracker(site.folder, "report", "--output", "report.html")[0] == 0
    site.configure(store='password_env = "RUNS"')
    code, said = tracker(site.folder, "history", RUNS=WRONG_PASSWORD)
    assert (code != 0, "Traceback" in said, "password authentication failed" in said) == (True, True, True), said


def test_no_key_or_password_is_stored_logged_shown_or_passed_on(tmp_path: Path) -> None:
    sampler = Sampler(str(tmp_path))
    with shared(PostgresServer) as postgres, refusing_mlflow() as mlflow, OpenAIServer(sampler.answer) as server:
        site = Site(tmp_path, server, postgres.new_database(owner=postgres.new_user(DATABASE)))
        sampler.start()
        fail_in_every_way(site, mlflow)
        sampler.ended.set()
        sampler.join()
        rows = list(tables(site.database))
    files = {path: contents(path) for path in tmp_path.rglob("*") if path.is_file()}
    stored = b"\n".join([*files.values(), *(data for _, data in rows)])
    for repeated in (
        b"header was Bearer ***",
        b"not for Bearer ***",
        b"Bearer *** is refused",
    ):
        assert repeated in stored
    assert [path for path, data in files.items() if any(canary in data for canary in CANARIES)] == []
    assert [table for table, data in rows if any(canary in data for canary in CANARIES)] == []
    assert [line for line in sampler.command_lines if any(canary in line for canary in CANARIES)] == []
    assert set(sampler.environments) == set(CHILDREN)
    for environment in sampler.environments.values():
        assert KEY.encode() in environment  # the one that it needs
        assert not [canary for canary in (DATABASE, STORE) if canary.encode() in environment]
