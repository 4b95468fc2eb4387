"""Real worker processes on a real queue, evaluating a scripted endpoint: killed, stopped, orphaned, restarted."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from eval_jobs.errors import TrackerError
from eval_jobs.evaluate.data.files import read_data_digest
from eval_jobs.execute.launch import local
from eval_jobs.execute.launch.local import LocalWorkers
from eval_jobs.identity import make_plan
from eval_jobs.queue.database_sql import open_database
from eval_jobs.queue.sql_queue import SqlQueue
from eval_jobs.records.progress import progress_text
from eval_jobs.types import (
    Benchmark,
    EngineKind,
    EvalPlan,
    EvalResult,
    Generation,
    ProbeLoad,
    ProbeResult,
    SampleStatus,
    ServeSpec,
    Suite,
)
from tests.fakes.openai_server import Fault, OpenAIServer, Reply, Request
from tests.records import checkpoint_of

SAMPLES = 12
ANSWERED_BEFORE_THE_KILL = 5
LONG_LEASE_S = 600.0
SHORT_LEASE_S = 3.0
PATIENCE_S = 120.0
NOW = datetime(2026, 1, 1, tzinfo=UTC)


QUICKLY_BUSY = """
import sys
from eval_jobs.execute.worker import main as worker
from eval_jobs.queue import database_sql
database_sql.SharedConnection.wait_s, worker.STORE_RETRY_S = 0.1, 0.1
sys.exit(worker.main(sys.argv[1:]))
"""
"""A worker that does not wait half a minute for a lock before it says so."""


class Site:
    """A queue, a folder for workers, and an endpoint that answers everything right."""

    def __init__(self, folder: Path, server: OpenAIServer) -> None:
        self.server = server
        self.url = f"sqlite:///{folder}/tracker.db"
        self.work_dir = folder / "work"
        self.work_dir.mkdir()
        self.engine = open_database(self.url)
        self.queue = SqlQueue(self.engine)
        self.plan = plan_of(folder, server)
        self.queue.add(self.plan, now=NOW)
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "eval_jobs.execute.worker.main", "--queue", self.url]
        worker = subprocess.Popen([*command, "--work-dir", str(self.work_dir), *options], start_new_session=True)
        self.started.append(worker)
        return worker

    def until(self, condition: Callable[[], object], what: str) -> None:
        waited = threading.Event()
        for _ in range(int(PATIENCE_S / 0.05)):
            if condition():
                return
            waited.wait(0.05)
        logs = "\n".join(path.read_text() for path in self.work_dir.glob("*.log"))
        pytest.fail(f"waited in vain until {what}; {self.queue.state()}\n{logs}")

    def is_in_the_middle(self) -> bool:
        """Say whether the question behind those that are answered was asked, and they are written down."""
        files = self.work_dir.glob("runs/*/*/predictions/*/*.jsonl")
        written = sum(path.read_bytes().count(b"\n") for path in files)
        return min(len(self.server.requests) - 1, written) >= ANSWERED_BEFORE_THE_KILL

    def note(self) -> str:
        return "".join(progress_text(running.progress) for running in self.queue.state().running)

    def close(self) -> None:
        for worker in self.started:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
        self.engine.dispose()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with OpenAIServer(right_answer) as server:
        made = Site(tmp_path, server)
        yield made
        made.close()


def right_answer(request: Request) -> Reply:
    if request.body.get("stream"):
        return Reply(tokens=("a", "b", "c"), finish_reason="length", prompt_tokens=8)
    a, b = request.prompt.strip("=").split("+")
    return Reply(text=str(int(a) + int(b)))


def plan_of(folder: Path, server: OpenAIServer) -> EvalPlan:
    data = folder / "sums.jsonl"
    rows = [{"question": f"{n}+{n + 1}=", "answer": str(2 * n + 1)} for n in range(SAMPLES)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    benchmark = Benchmark(name="sums", adapter="exact", data=str(data), data_digest=read_data_digest(data))
    suite = Suite(name="s", benchmarks=(benchmark,), generation=Generation(max_tokens=8), concurrency=1)
    checkpoint = replace(checkpoint_of("run", 100), uri=str(folder), source_uri=str(folder), ready_at=NOW)
    serve = ServeSpec(engine=EngineKind.REMOTE, base_url=server.base_url, model="fake")
    load = ProbeLoad(requests=4, concurrency=2, input_tokens=8, output_tokens=3, warmup_requests=1)
    return make_plan(checkpoint, suite, serve, (load,))


def check_that_everything_was_measured_once(site: Site) -> None:
    (record,) = site.queue.finished()
    (outcome,), (probe,) = record.outcomes, record.probes
    assert isinstance(outcome, EvalResult)
    assert [sample.status for sample in outcome.samples] == [SampleStatus.SCORED] * SAMPLES
    assert [sample.score for sample in outcome.samples] == [1.0] * SAMPLES
    assert isinstance(probe, ProbeResult)
    assert (probe.completed, probe.failed) == (4, 0)
    asked = Counter(r.prompt for r in site.server.requests if not r.body.get("stream"))
    answered_once = [prompt for prompt, times in asked.items() if times == 1]
    assert len(asked) == SAMPLES
    assert len(answered_once) >= SAMPLES - 1, "what was answered before the kill was asked again"
    assert "unexpected" not in "".join(path.read_text() for path in site.work_dir.glob("worker-*.log"))


def check_for_ever(workers: LocalWorkers) -> None:
    while True:
        workers.check()
        threading.Event().wait(0.05)


def is_running(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def test_a_plan_survives_a_killed_worker_and_a_stopped_one(site: Site) -> None:
    """Killed with -9 in the middle: the next worker takes over at once, whatever the lease. Stopped: given back."""
    hang = threading.Event()

    def answer(request: Request) -> Reply:
        if request.number >= ANSWERED_BEFORE_THE_KILL and not hang.is_set():
            return Reply(fault=Fault.HANG)
        return right_answer(request)

    site.server.answer = answer
    first = site.start("--lease-s", str(LONG_LEASE_S))
    site.until(site.is_in_the_middle, "the first worker is in the middle")
    children = [child.pid for child in psutil.Process(first.pid).children(recursive=True)]
    assert children
    first.kill()
    first.wait()
    site.until(lambda: not any(map(is_running, children)), "the killed worker's evaluator is gone too")
    assert site.queue.finished() == ()

    second = site.start("--lease-s", str(LONG_LEASE_S))
    site.until(lambda: f":{second.pid}" in str(site.queue.state().running), "the second worker has the plan")
    second.terminate()
    assert second.wait(PATIENCE_S) == 0
    assert [one.plan_id for one in site.queue.state().waiting] == [site.plan.id]

    hang.set()
    third = site.start("--lease-s", str(LONG_LEASE_S))
    site.until(site.queue.finished, "the third worker has finished")
    third.terminate()
    assert third.wait(PATIENCE_S) == 0

    check_that_everything_was_measured_once(site)


def test_a_worker_suspended_past_its_lease_does_not_delay_other_workers(site: Site) -> None:
    """It holds the lock on the plan's folder; its successor ends it, and nothing is measured twice."""
    hang = threading.Event()

    def answer(request: Request) -> Reply:
        if request.number >= ANSWERED_BEFORE_THE_KILL and not hang.is_set():
            return Reply(fault=Fault.HANG)
        return right_answer(request)

    site.server.answer = answer
    sleeper = site.start("--lease-s", str(SHORT_LEASE_S))
    site.until(site.is_in_the_middle, "the first worker is in the middle")
    sleeper.send_signal(signal.SIGSTOP)
    hang.set()
    second = site.start("--lease-s", str(LONG_LEASE_S))
    site.until(site.queue.finished, "the second worker has finished")
    assert sleeper.wait(PATIENCE_S) == -signal.SIGKILL
    second.terminate()
    assert second.wait(PATIENCE_S) == 0
    check_that_everything_was_measured_once(site)
    assert "E-PLAN-POISONED" not in str(site.queue.finished())


def test_a_worker_waits_for_a_database_that_is_not_there_yet(tmp_path: Path, site: Site) -> None:
    """Another program holds the database locked; the worker neither ends nor gives up."""
    with contextlib.closing(sqlite3.connect(tmp_path / "locked.db", isolation_level=None)) as other:
        other.execute("CREATE TABLE busy (a)")
        other.execute("BEGIN EXCLUSIVE")
        command = [sys.executable, "-c", QUICKLY_BUSY, "--queue", f"sqlite:///{tmp_path}/locked.db"]
        worker = subprocess.Popen([*command, "--work-dir", str(site.work_dir)], start_new_session=True)
        site.started.append(worker)
        log = site.work_dir / f"worker-{worker.pid}.log"
        site.until(
            lambda: log.exists() and "cannot open the queue, retrying" in log.read_text(), "it says that it waits"
        )
        assert is_running(worker.pid)
        other.execute("ROLLBACK")
    site.until(lambda: "is ready" in log.read_text(), "the worker is ready")
    worker.terminate()
    assert worker.wait(PATIENCE_S) == 0


def test_a_module_in_the_users_folder_is_not_taken_for_a_known_one(tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('the wrong queue')\n", encoding="utf-8")
    workers = LocalWorkers(1, f"sqlite:///{tmp_path}/tracker.db", tmp_path / "work")
    with contextlib.chdir(tmp_path):
        workers.check()
    log = tmp_path / "work" / f"worker-{workers._workers[0].process.pid}.log"
    try:
        for _ in range(int(PATIENCE_S / 0.05)):
            if log.is_file() or not is_running(workers._workers[0].process.pid):
                break
            threading.Event().wait(0.05)
        assert log.is_file(), (tmp_path / "work" / "worker-start.log").read_text()
    finally:
        workers.stop()


def test_a_worker_ends_with_the_process_that_started_it(site: Site) -> None:
    site.server.answer = lambda _: Reply(fault=Fault.HANG)
    program = (
        "import sys, threading; from pathlib import Path; from eval_jobs.execute.launch.local import LocalWorkers\n"
        f"workers = LocalWorkers(1, {site.url!r}, Path({str(site.work_dir)!r})); workers.check()\n"
        "print(workers._workers[0].process.pid, flush=True); threading.Event().wait()"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True)
    site.started.append(parent)
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
    site.until(lambda: site.queue.state().running, "the worker has the plan")
    parent.kill()
    site.until(lambda: not is_running(pid), "the worker is gone")
    assert [one.plan_id for one in site.queue.state().waiting] == [site.plan.id]


def test_a_worker_whose_starter_is_gone_before_it_can_look_ends_too(site: Site) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    site.server.answer = lambda _: Reply(fault=Fault.HANG)
    worker = site.start("--exit-with-parent", str(gone.pid))
    assert worker.wait(PATIENCE_S) == 0
    assert [one.plan_id for one in site.queue.state().waiting] == [site.plan.id]


def test_local_workers_notify_the_watcher_of_a_record(site: Site) -> None:
    finished: list[int] = []
    told = threading.Event()

    def hear() -> None:
        finished.append(len(site.queue.finished()))
        told.set()

    workers = LocalWorkers(1, site.url, site.work_dir, on_news=hear)
    workers.check()
    try:
        workers.nudge()
        assert told.wait(PATIENCE_S)
    finally:
        workers.stop()
        workers.nudge()
    assert finished == [1]


def test_workers_that_keep_failing_at_startup_stop_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "QUICK_DEATH_S", 3600.0)
    workers = LocalWorkers(1, "sqlite:////no/such/folder/tracker.db", tmp_path / "work")
    workers.check()
    try:
        with pytest.raises(TrackerError, match=r"5 times.*exit code 4.*no/such/folder") as caught:
            check_for_ever(workers)
        assert "worker-" in caught.value.hint
    finally:
        workers.stop()


def test_the_password_of_the_queue_is_not_on_the_command_line(tmp_path: Path) -> None:
    workers = LocalWorkers(1, "postgresql+psycopg://me:secret@127.0.0.1:9/tracker", tmp_path / "work")
    workers.check()
    try:
        pid = workers._workers[0].process.pid
        assert "secret" not in " ".join(psutil.Process(pid).cmdline())
    finally:
        workers.stop()


def test_a_worker_without_a_queue_reports_the_missing_setting(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "TRACKER_DATABASE"}
    command = [sys.executable, "-m", "eval_jobs.execute.worker.main", "--work-dir", str(tmp_path)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "TRACKER_DATABASE" in done.stderr
