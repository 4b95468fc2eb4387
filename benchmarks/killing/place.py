"""One round's folder and the processes that we start in it: trainer, watcher, servers; each again when it died."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.killing import postgres
from benchmarks.killing.engine import write_interpreter
from benchmarks.killing.people import everybody
from benchmarks.killing.trainer import read_number, script_of

REPOSITORY = Path(__file__).parent.parent.parent
TRACKER = Path(sys.executable).parent / "tracker"
SAMPLES = 30
BENCHMARKS = ("sums", "more")

CONSTANTS: Mapping[str, Mapping[str, float]] = {
    "eval_jobs.queue.rules": {"LEASE_S": 5.0, "BEAT_S": 0.5, "FIRST_RETRY_DELAY_S": 0.3},
    "eval_jobs.execute.worker.main": {"IDLE_S": 0.1, "STORE_RETRY_S": 0.5},
    "eval_jobs.execute.child": {"PARENT_CHECK_S": 0.2},
    "eval_jobs.execute.launch.local": {"QUICK_DEATH_S": 0.2},
    "eval_jobs.serve.process.lifecycle": {"STOP_GRACE_S": 3.0, "GROUP_GRACE_S": 0.5},
    "eval_jobs.probe.client.main": {"PARENT_CHECK_S": 0.2},
    "tracker.app.daemon": {"TICK_S": 0.3},
    "tracker.app.leading": {"STAND_BY_S": 0.3},
    "tracker.adapters.tracking.outbox_sql": {"FIRST_WAIT_S": 0.5, "LONGEST_WAIT_S": 4.0},
}
"""What becomes shorter, so that hundreds of kills fit into minutes; see `inside`."""

CONFIG = """
[run]
name = "chaos"
output_dir = "out"
state_dir = "state"
[watch]
settle_s = 0.4
rescan_s = 1.0
[serve]
python = "{python}"
args = ["--chat-template", "none"]
{serve}
[suite]
max_tokens = 16
concurrency = 4
request_timeout_s = 20
[[benchmark]]
benchmark = "exact"
data = "sums.jsonl"
[[benchmark]]
benchmark = "exact"
data = "more.jsonl"
[probe]
requests = 4
concurrency = 2
input_tokens = 16
output_tokens = 8
warmup_requests = 1
[tracking]
uri = "{uri}"
[store]
database = "{database}"
"""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a round is made of."""

    cluster: Path | None = None
    """A PostgreSQL cluster to copy; None: SQLite."""
    has_mlflow_server: bool = False
    """Else MLflow's store is a SQLite file."""
    has_standby: bool = False
    """A second watcher."""
    has_second_worker: bool = False
    """`tracker worker` beside the one that the watcher starts."""
    real_engine: bool = False
    """vLLM instead of the stand-in."""


@dataclass(kw_only=True)
class Place:
    """A folder, and what runs there."""

    home: Path
    setting: Setting = field(default_factory=Setting)
    mlflow_port: int = 0
    database_port: int = 0
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    starts: Counter[str] = field(default_factory=Counter)
    """How often each was started."""

    def prepare(self) -> None:
        """Write configuration and data."""
        for name in ("tmp", "bombs", "state"):
            (self.home / name).mkdir(parents=True)
        (self.home / "constants.json").write_text(json.dumps(CONSTANTS))
        for name, offset in zip(BENCHMARKS, (0, 1000), strict=True):
            rows = [{"question": f"{offset + n}+{n}=", "answer": str(offset + 2 * n)} for n in range(SAMPLES)]
            (self.home / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        uri = database = ""
        if self.setting.has_mlflow_server:
            self.mlflow_port = postgres.free_port()
            uri = f"http://127.0.0.1:{self.mlflow_port}"
            # MLflow refuses for ever a database in which its server was killed while it created the tables.
            make = f"from tracker.adapters.mlflow.client import connect; connect('sqlite:///{self.state}/mlflow.db')"
            subprocess.run([sys.executable, "-c", make], cwd=REPOSITORY, check=True)
        if self.setting.cluster is not None:
            self.database_port = postgres.free_port()
            database = postgres.url_of(self.database_port)
            postgres.copy_cluster(self.setting.cluster, self.home / "cluster")
        python = "" if self.setting.real_engine else str(write_interpreter(self.home))
        serve = "max_model_len = 256" if self.setting.real_engine else ""
        text = CONFIG.format(python=python, serve=serve, uri=uri, database=database)
        (self.home / "tracker.toml").write_text(text)

    @property
    def state(self) -> Path:
        """The tracker's state folder."""
        return self.home / "state"

    @property
    def saved(self) -> int:
        """How many saves the trainer has done."""
        return read_number(self.home / "saved")

    @property
    def has_trained(self) -> bool:
        """Whether the trainer's script is through."""
        return self.saved >= len(script_of(real=self.setting.real_engine))

    def keep_running(self) -> None:
        """Start what is missing."""
        if not self.has_trained:
            flags = ["--real-model"] if self.setting.real_engine else []
            command = [sys.executable, "-m", "benchmarks.killing.trainer", str(self.home), *flags]
            self._keep("trainer", command, cwd=REPOSITORY)
        self.keep_running_services()
        self.keep_watching()
        if self.setting.has_standby:
            self._keep_tracker("standby", "watch")
        if self.setting.has_second_worker:
            self._keep_tracker("worker", "worker")

    def keep_running_services(self) -> None:
        """Start the servers that are missing."""
        if self.setting.cluster is not None:
            self._keep("database", postgres.server_command(self.home / "cluster", self.database_port))
        if self.setting.has_mlflow_server:
            self._keep("mlflow", self._mlflow_command(), MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false")

    def keep_watching(self, *options: str) -> subprocess.Popen[bytes]:
        """Start the watcher if there is none."""
        return self._keep_tracker("watcher", "watch", *options)

    def stop(self, name: str) -> None:
        """End what was started under this name."""
        process = self.running.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()

    def stop_all(self) -> None:
        """End whatever still runs, at once."""
        for name in tuple(self.running):
            self.stop(name)
        for person in everybody(self.home):
            with suppress(ProcessLookupError):
                os.kill(person.pid, signal.SIGKILL)

    def stop_services(self) -> None:
        """End the servers in good order."""
        for name in ("mlflow", "database"):
            process = self.running.pop(name, None)
            if process is not None:
                process.send_signal(signal.SIGINT if name == "database" else signal.SIGTERM)
                process.wait()
        for person in everybody(self.home):
            if person.role == "mlflow":  # a worker whose server we killed: nobody else ends it
                with suppress(ProcessLookupError):
                    os.kill(person.pid, signal.SIGKILL)

    # --- private

    def _mlflow_command(self) -> Sequence[str]:
        store, files = f"sqlite:///{self.state}/mlflow.db", (self.state / "mlartifacts").as_uri()
        where = ["--host", "127.0.0.1", "--port", str(self.mlflow_port), "--workers", "1"]
        keeps = ["--backend-store-uri", store, "--artifacts-destination", files]
        return [sys.executable, "-m", "mlflow", "server", *where, *keeps]

    def _keep_tracker(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        path = os.pathsep.join((str(Path(__file__).parent / "site"), str(REPOSITORY)))
        return self._keep(name, [str(TRACKER), "--debug", *words], PYTHONPATH=path)

    def _keep(
        self, name: str, command: Sequence[str], *, cwd: Path | None = None, **environment: str
    ) -> subprocess.Popen[bytes]:
        process = self.running.get(name)
        if process is not None and process.poll() is None:
            return process
        inherited = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "CHAOS_DIR")}
        with (self.home / f"{name}.log").open("ab") as output:
            process = subprocess.Popen(
                command,
                cwd=cwd or self.home,
                env=inherited | {"CHAOS_DIR": str(self.home), "TMPDIR": str(self.home / "tmp")} | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.running[name] = process
        self.starts[name] += 1
        return process
