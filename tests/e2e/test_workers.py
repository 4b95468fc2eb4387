"""Workers and watchers as separate processes on one database: PostgreSQL with a password, or SQLite."""

import json
import os
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import text

from eval_jobs.queue.database_sql import open_database, transaction
from eval_jobs.queue.sql_queue import SqlQueue
from tests.commands import RunningTracker
from tests.fakes.openai_server import OpenAIServer, Reply, Request
from tests.postgres import PostgresServer
from tests.records import forgetting_run
from tests.shared_servers import alone_with, shared
from tests.tables import open_all
from tests.tiny_model import write_checkpoint

STEPS = (100, 200, 300)
ROWS = 4
NOW = datetime(2026, 3, 14, 12, 0, tzinfo=UTC)
PATIENCE_S = 120.0
SECRET = "open-sesame-4711"  # noqa: S105 - of a server of our own

CONFIG = """
[run]
name = "sums"
output_dir = "{out}"
[watch]
settle_s = 0.2
rescan_s = 0.5
backlog = "all"
[serve]
engine = "remote"
base_url = "{base_url}"
model = "step-{{step}}"
[suite]
max_tokens = 8
[[benchmark]]
benchmark = "exact"
data = "sums.jsonl"
[probe]
enabled = false
{more}
"""

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def server() -> Iterator[OpenAIServer]:
    names = [f"step-{step}" for step in (*STEPS, 500)]
    with OpenAIServer(answer, model=names[0], more_models=tuple(names[1:])) as running:
        yield running


@pytest.fixture
def database() -> Iterator[str]:
    """URL of a new database that its user enters with a password only."""
    with shared(PostgresServer) as postgres:
        yield postgres.new_database(owner=postgres.new_user(SECRET))


def answer(request: Request) -> Reply:
    left, right = request.prompt.removesuffix("=").split("+")
    return Reply(text=str(int(left) + int(right)))


class Site:
    """A project folder and the processes that a test starts in it."""

    def __init__(self, folder: Path, server: OpenAIServer, *, more: str = "") -> None:
        self.folder = folder
        self._started: list[RunningTracker] = []
        rows = [{"question": f"{i}+{i + 1}=", "answer": str(2 * i + 1)} for i in range(ROWS)]
        (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.configure("tracker.toml", server, more=more)

    def configure(self, name: str, server: OpenAIServer, *, out: str = "out", more: str = "") -> None:
        (self.folder / name).write_text(CONFIG.format(out=out, base_url=server.base_url, more=more))

    def start(self, name: str, *arguments: str, **variables: str) -> RunningTracker:
        """Start `tracker` with what it says going to the file `name`."""
        environment = os.environ | variables
        process = RunningTracker(self.folder, *arguments, output=self.folder / name, environment=environment)
        self._started.append(process)
        return process

    def said(self, name: str) -> str:
        return (self.folder / name).read_text()

    def until(self, condition: Callable[[], object], what: str) -> None:
        waited = threading.Event()
        for _ in range(int(PATIENCE_S / 0.05)):
            if condition():
                return
            waited.wait(0.05)
        logs = "\n".join(f"{path.name}: {path.read_text()}" for path in self.folder.glob("*.out"))
        pytest.fail(f"waited in vain until {what}\n{logs}")

    def close(self) -> None:
        for process in self._started:
            process.kill_all()


def test_two_workers_on_postgresql_carry_out_every_plan_once_and_store_no_password(
    tmp_path: Path, server: OpenAIServer, database: str
) -> None:
    site = Site(tmp_path, server, more=f'[store]\ndatabase = "{database}"\npassword_env = "RUNS_PASSWORD"')
    for step in STEPS:
        write_checkpoint(tmp_path / "out" / f"checkpoint-{step}", seed=step)
    try:
        server.requests.clear()
        watch = site.start("watch.out", "watch", "--until-idle", "--workers", "0", RUNS_PASSWORD=SECRET)
        site.until(
            lambda: "none here; run `tracker worker --config tracker.toml`" in site.said("watch.out"),
            "it says so",
        )
        one = site.start("one.out", "worker", RUNS_PASSWORD=SECRET)
        other = site.start(
            "other.out", "worker", "--work-dir", "elsewhere",
            TRACKER_DATABASE=database, TRACKER_DATABASE_PASSWORD=SECRET,
        )  # fmt: skip
        site.until(lambda: all("is ready" in site.said(f"{name}.out") for name in ("one", "other")), "both are ready")
        assert watch.wait(PATIENCE_S) == 0
        assert [one.stop(), other.stop()] == [0, 0]
    finally:
        site.close()
    asked = Counter((r.body["model"], r.prompt) for r in server.requests)
    assert asked == Counter({(f"step-{s}", f"{i}+{i + 1}="): 1 for s in STEPS for i in range(ROWS)})
    finished = [
        line for name in ("one.out", "other.out") for line in site.said(name).splitlines() if "finished" in line
    ]
    assert len(finished) == len(set(finished)) == len(STEPS)
    assert f"{len(STEPS)} checkpoints evaluated, 0 not evaluated" in site.said("watch.out")
    told = [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert not told


def test_a_wrong_password_is_an_error_that_does_not_show_it(
    tmp_path: Path, server: OpenAIServer, database: str
) -> None:
    site = Site(tmp_path, server)
    (tmp_path / "password").write_text("wrong-sesame\n")
    worker = site.start(
        "worker.out", "worker", "--database", database, "--work-dir", "work", "--password-file", "password"
    )
    try:
        site.until(lambda: "password authentication failed" in site.said("worker.out"), "it is refused")
        worker.stop()
    finally:
        site.close()
    logs = "".join(path.read_text() for path in (tmp_path / "work").glob("*.log"))
    assert "wrong-sesame" not in site.said("worker.out") + logs


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_second_watcher_stands_by_and_takes_over_when_the_first_is_killed(
    kind: str, tmp_path: Path, server: OpenAIServer, request: pytest.FixtureRequest
) -> None:
    more = ""
    if kind == "postgresql":
        more = f'[store]\ndatabase = "{request.getfixturevalue("database")}"\npassword_env = "RUNS_PASSWORD"'
    site = Site(tmp_path, server, more=more)
    site.configure("other.toml", server, out="elsewhere", more=more)
    try:
        first = site.start("first.out", "watch", "--workers", "0", RUNS_PASSWORD=SECRET)
        site.until(lambda: "watching" in site.said("first.out"), "the first one watches")
        second = site.start("second.out", "watch", "--workers", "0", RUNS_PASSWORD=SECRET)
        site.until(lambda: f"process {first.pid} on" in site.said("second.out"), "the second one stands by")
        refused = site.start("refused.out", "watch", "--config", "other.toml", RUNS_PASSWORD=SECRET)
        assert refused.wait(PATIENCE_S) == 2
        assert f"run sums ({tmp_path}/out) is already being watched: process {first.pid}" in site.said("refused.out")
        write_checkpoint(tmp_path / "out" / "checkpoint-100", seed=1)
        site.until(lambda: "found step 100" in site.said("first.out"), "the first one finds the checkpoint")
        assert "watching" not in site.said("second.out")
        first.stop(signal.SIGKILL)
        site.until(lambda: "found step 100" in site.said("second.out"), "the second one goes on with it")
        write_checkpoint(tmp_path / "out" / "checkpoint-200", seed=2)
        site.until(lambda: "found step 200" in site.said("second.out"), "the second one finds the next")
        assert second.stop() == 130
    finally:
        site.close()


def test_rotation_loses_nothing_while_postgresql_is_away_and_one_watcher_leads_when_it_is_back(
    tmp_path: Path, server: OpenAIServer
) -> None:
    with alone_with(PostgresServer) as postgres:
        rotate_while_away(tmp_path, server, postgres)


def rotate_while_away(tmp_path: Path, server: OpenAIServer, postgres: PostgresServer) -> None:
    database = postgres.new_database(owner=postgres.new_user(SECRET))
    site = Site(tmp_path, server, more=f'[store]\ndatabase = "{database}"\npassword_env = "RUNS_PASSWORD"')
    (tmp_path / "out").mkdir()
    watchers = ("first.out", "second.out")
    try:
        site.start("first.out", "watch", "--workers", "0", RUNS_PASSWORD=SECRET)
        site.until(lambda: "watching" in site.said("first.out"), "the first one watches")
        site.start("second.out", "watch", "--workers", "0", RUNS_PASSWORD=SECRET)
        site.until(lambda: "takes over" in site.said("second.out"), "the second one stands by")
        postgres.stop(signal.SIGQUIT)
        site.until(lambda: all("retrying" in site.said(name) for name in watchers), "both miss the database")
        checkpoint = write_checkpoint(tmp_path / "out" / "checkpoint-100", seed=1)
        site.until(lambda: list((tmp_path / ".tracker" / "pins").glob("*/[!.]*/.pin.json")), "it is pinned")
        shutil.rmtree(checkpoint)
        postgres.start()
        site.until(lambda: any("found step 100" in site.said(name) for name in watchers), "a watcher tells it")
        leaders = [name for name in watchers if "found step 100" in site.said(name)]
        assert len(leaders) == 1
        write_checkpoint(tmp_path / "out" / "checkpoint-200", seed=2)
        site.until(lambda: "found step 200" in site.said(leaders[0]), "the same one goes on")
        assert all("gap" not in site.said(name) for name in watchers)
    finally:
        site.close()


def test_a_worker_that_sees_no_checkpoint_leaves_the_plans_to_others(tmp_path: Path, server: OpenAIServer) -> None:
    site = Site(tmp_path, server)
    plan = forgetting_run(checkpoints=1, samples=2, trouble=False).records[0].plan
    plan = replace(plan, checkpoint=replace(plan.checkpoint, uri=str(tmp_path / "not-mounted" / "run" / "pin")))
    (tmp_path / ".tracker").mkdir()
    engine = open_database(f"sqlite:///{tmp_path}/.tracker/tracker.db")
    queue = SqlQueue(engine)
    queue.add(plan, now=NOW)
    try:
        worker = site.start("worker.out", "worker")
        site.until(lambda: "not found on this machine" in site.said("worker.out"), "it says what it does not see")
        assert worker.stop() == 0
    finally:
        site.close()
    assert str(plan.checkpoint.uri) in " ".join(site.said("worker.out").split())
    claim = queue.claim(worker="one that sees it", now=NOW, lease_until=NOW)
    assert claim is not None
    assert (claim.attempt, claim.lost) == (1, 0)
    engine.dispose()


def test_tables_of_a_newer_program_are_refused_at_the_start(tmp_path: Path, server: OpenAIServer) -> None:
    site = Site(tmp_path, server)
    (tmp_path / ".tracker").mkdir()
    url = f"sqlite:///{tmp_path}/.tracker/tracker.db"
    open_all(url)
    engine = open_database(url)
    with transaction(engine) as connection:
        connection.execute(text("UPDATE checkpoint_tracker_version SET version_num = '9001'"))
    engine.dispose()
    assert site.start("watch.out", "watch", "--until-idle").wait(PATIENCE_S) == 4
    assert "E-STORE-SCHEMA" in site.said("watch.out")
    assert "update checkpoint-tracker" in site.said("watch.out")
