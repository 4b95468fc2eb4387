"""Watches the processes of a training as the agent does, in this process, and counts what it does."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from eval_jobs.host.clock import SystemClock
from eval_jobs.queue.database_sql import open_database
from eval_jobs.queue.migrate_sql import bring_up_to_date
from tests.tables import HISTORIES
from tracker.adapters.processes.system import SystemProcesses
from tracker.app.health.follow import LogFollower
from tracker.app.health.job_watch import JobWatch
from tracker.app.health.settings import AgentSettings
from tracker.config.health import load_rules
from tracker.domain.health.processes.jobs import Places
from tracker.domain.health.processes.pace import HangLimits
from tracker.domain.health.processes.seen import ProcessId, Sample
from tracker.wiring.agent import READ_S, follower_of


class CountedProcesses(SystemProcesses):
    """The processes of this machine."""

    samplings = 0

    def samples(self, ids: Iterable[ProcessId]) -> Mapping[ProcessId, Sample]:
        """Return what processes do now."""
        self.samplings += 1
        return super().samples(ids)


@dataclass(kw_only=True)
class Watcher:
    """One watch with its follower of logs."""

    follower: LogFollower
    job_watch: JobWatch
    processes: CountedProcesses
    run: str
    longest_s: float = 0.0
    """Longest time without progress that it saw."""
    cpu_share: float = 0.0
    """Of one core, with the programs that read stacks."""
    _told: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, folder: Path) -> Watcher:
        """Return one with the default limits, which also watches children of this process: the training is one."""
        engine = open_database(f"sqlite:///{folder.with_name(folder.name + '.db')}")
        for history in HISTORIES:
            bring_up_to_date(engine, history)
        clock, processes = SystemClock(), CountedProcesses()
        settings = AgentSettings(run=folder.name, output_dir=str(folder), patterns=(), rules=load_rules().lines)
        places = Places(run=folder.name, folder=str(folder))
        return cls(
            follower=follower_of(settings, engine, clock, in_thread=True),
            job_watch=JobWatch(processes=processes, places=places, limits=HangLimits(), clock=clock),
            processes=processes,
            run=folder.name,
        )

    @property
    def stacks(self) -> int:
        """How often all stacks were read."""
        return self.processes.samplings

    def watch(self, seconds: float) -> Iterator[str]:
        """Watch, as often as the agent does; yield each incident when it is reported."""
        begun_s, used_s = time.monotonic(), used_cpu_s()
        while time.monotonic() - begun_s < seconds:
            run = self.follower.run_of(self.run)
            self.longest_s = max(self.longest_s, run.state.pace.quiet_s(time.time()))
            self.job_watch.look(self.follower)
            self.follower.follow()
            for incident in run.incidents():
                if incident.id not in self._told:
                    self._told.add(incident.id)
                    at = f"after {time.monotonic() - begun_s:.0f} s at step {run.steps.last}"
                    what = f"{incident.name} {incident.ranks}: {incident.cause.text}\n{incident.capture}"
                    yield f"reported {at}, {run.state.pace}:\n{what}"
            threading.Event().wait(READ_S)
        self.cpu_share = (used_cpu_s() - used_s) / (time.monotonic() - begun_s)

    def close(self) -> None:
        """Close the logs."""
        self.follower.close()


def used_cpu_s() -> float:
    """Return the CPU time of this process and of its children that ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(os.times()[:2]) + children.ru_utime + children.ru_stime
