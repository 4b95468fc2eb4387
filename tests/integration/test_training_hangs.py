"""Real trainings of two ranks hang or die on purpose, each beside an agent, which names the cause and the rank."""

import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.hung_jobs.agents import Agents, agents
from tests.hung_jobs.starter import HANGING, Job, jobs
from tests.requires import requires_package
from tracker.adapters.health.history_sql import SqlTrainingHistory
from tracker.domain.health.processes.pace import HangLimits

LIMITS = HangLimits(look_s=4.0, look_over_s=2.0, report_s=14.0, restart_s=5.0)
FOUND = {
    "sleep": [("waiting_for_rank", (1,))],
    "lock": [("waiting_for_rank", (1,))],
    "fifo": [("waiting_for_rank", (1,))],
    "stop": [("stopped", (1,))],
    "loader_stop": [("data_loader", (1,))],
    "collectives": [("mismatched_collectives", ())],
    "spin": [("spinning", (1,))],
    "loader": [("data_loader", (1,))],
    "killed": [("rank_died", (1,))],
    "zombie": [("rank_died", (1,))],
    "loader_killed": [("bus_error", (1,))],
    "healthy": [],
}
"""Final incident of each job: for a rank that died, the log of another rank is the first evidence."""
STOPPED_ON_PURPOSE = {("stop", "rank1"), ("loader_stop", "rank1-worker0")}
PATIENCE_S = 120.0


class Seen:
    """What was said of the jobs, and which processes were seen stopped."""

    def __init__(self, started: dict[str, Job], running: Agents) -> None:
        self.said: dict[str, list[tuple[str, tuple[int, ...]]]] = {case: [] for case in started}
        self.stopped: set[tuple[str, str]] = set()
        self._history = SqlTrainingHistory(running.engine)
        self._processes = [
            (case, name, process) for case, job in started.items() for name, process in job.processes().items()
        ]

    def look(self) -> None:
        """Look once at all processes, and at what is stored now."""
        for case, name, process in self._processes:
            with suppress(psutil.Error):
                if process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP):
                    self.stopped.add((case, name))
        for case, said in self.said.items():
            said[:] = [(one.name, one.ranks) for one in self._history.training_incidents(case)]


@pytest.mark.timeout(180)
def test_the_cause_and_the_rank_of_every_hang_are_named_and_no_process_is_stopped_for_it(tmp_path: Path) -> None:
    requires_package("py-spy")
    assert set(HANGING) < set(FOUND)
    folders = {case: tmp_path / case for case in FOUND}
    for folder in folders.values():
        folder.mkdir()
        (folder / "train.log").touch()  # an agent looks for new files every 10 s only
    with agents(tmp_path / "agents", folders, LIMITS) as running:
        running.wait()
        with jobs(tmp_path, tuple(FOUND), pause_s=0.6) as started:
            for job in started.values():
                job.wait_for_steps(5)
            seen, end_s = Seen(started, running), time.monotonic() + PATIENCE_S
            while seen.said != FOUND and time.monotonic() < end_s:
                seen.look()
                threading.Event().wait(0.02)
            assert seen.said == FOUND, "\n".join(running.logs())
            assert seen.stopped == STOPPED_ON_PURPOSE
            assert started["healthy"].steps() > 20
