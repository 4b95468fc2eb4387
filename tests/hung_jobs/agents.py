"""Real agents beside the jobs, as `tracker watch` starts them: each is no ancestor and no child of a job."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine

from eval_jobs.queue.address import QUEUE_URL_VARIABLE
from eval_jobs.queue.database_sql import open_database
from eval_jobs.queue.migrate_sql import bring_up_to_date
from tests.tables import HISTORIES
from tracker.app.health.settings import AgentSettings
from tracker.config.health import load_rules
from tracker.domain.health.processes.pace import HangLimits
from tracker.wiring.agent import SETTINGS_VARIABLE, settings_text

_PARENT = '"$@" --exit-with-parent $$ & wait'
"""The agent takes its parent for the tracker: what that one started is no training."""


@dataclass(frozen=True, kw_only=True)
class Agents:
    """Running agents, and the database that all of them write to."""

    engine: Engine
    work_dirs: Mapping[str, Path]
    """By the name of the run; each holds a log."""

    def logs(self) -> list[str]:
        """Return what each has logged."""
        return ["".join(path.read_text("utf-8") for path in one.glob("*.log")) for one in self.work_dirs.values()]

    def wait(self, timeout_s: float = 60.0) -> None:
        """Return once all of them follow."""
        deadline = time.monotonic() + timeout_s
        while not all("following the logs" in text for text in self.logs()):
            if time.monotonic() > deadline:
                raise TimeoutError("\n".join(self.logs()))
            time.sleep(0.05)


@contextmanager
def agents(root: Path, folders: Mapping[str, Path], limits: HangLimits) -> Iterator[Agents]:
    """Follow trainings while the block lasts: `folders` are their output folders by the name of the run."""
    root.mkdir()
    url = f"sqlite:///{root}/agents.db"
    engine = open_database(url)
    for history in HISTORIES:
        bring_up_to_date(engine, history)
    with ExitStack() as stack:
        stack.callback(engine.dispose)
        for run, folder in folders.items():
            settings = AgentSettings(
                run=run, output_dir=str(folder), patterns=(), rules=load_rules().lines, hang=limits
            )
            stack.enter_context(_agent(root / run, url, settings))
        yield Agents(engine=engine, work_dirs={run: root / run for run in folders})


@contextmanager
def _agent(work_dir: Path, url: str, settings: AgentSettings) -> Iterator[None]:
    work_dir.mkdir()
    command = [sys.executable, "-P", "-m", "tracker.wiring.agent", "--work-dir", str(work_dir)]
    variables = {QUEUE_URL_VARIABLE: url, SETTINGS_VARIABLE: settings_text(settings)}
    with subprocess.Popen(
        ["sh", "-c", _PARENT, "sh", *command],
        stdin=subprocess.DEVNULL,
        env=os.environ | variables,
        start_new_session=True,
    ) as parent:
        try:
            yield
        finally:
            os.killpg(parent.pid, signal.SIGKILL)
