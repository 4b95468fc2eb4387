"""Finds the processes of a training, and counts those that the kernel killed for memory."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tracker.domain.health.processes.jobs import Job, Places, job_of
from tracker.domain.health.processes.pace import JobPhase
from tracker.domain.health.processes.seen import ProcessId

if TYPE_CHECKING:  # the ports of the whole program import the statistics, and an agent stays small
    from tracker.ports.health import Processes

log = logging.getLogger(__name__)

SCAN_S = 30.0
"""Time between two searches for new processes."""
FIRST_SCANS_S = 5.0
"""Time between searches while no process is known, and until the first step: ranks start one after the other."""
FIRST_SCANS = 60
"""Number of frequent searches without a process of the run; later searches are as rare as for a known training."""
OUTLIVED_S = 60.0
"""Wait after a kill for lack of memory: if all ranks are alive then, another process of the cgroup was killed."""


@dataclass(kw_only=True)
class JobSearch:
    """Finds the processes of the run."""

    processes: Processes
    places: Places
    job: Job = field(default_factory=Job)
    found_s: float = 0.0
    """When the job was found, in Unix seconds."""
    members: frozenset[ProcessId] = frozenset()
    """Its processes at that time."""
    left: frozenset[ProcessId] = frozenset()
    """Launchers and other processes of jobs, which are no ranks although they remain alone."""
    kills: int = 0
    """Processes that the kernel had killed for memory in their cgroups before."""
    kills_seen: int = 0
    killed_s: float = 0.0
    """When the last of `kills_seen` was seen, in Unix seconds."""
    searched_s: float | None = None
    misses: int = 0
    """Searches in a row that found no process of the run."""
    is_reported: bool = False
    """Whether it was logged that no process was found."""

    def refresh(self, now_s: float, phase: JobPhase, *, is_forced: bool = False) -> bool:
        """Search, unless the last search is recent; return whether another job was found."""
        if self._is_recent(now_s, phase) and not is_forced:
            return False
        self.searched_s = now_s
        processes = self.processes.all()
        found = job_of(processes, self.places)
        self.misses = 0 if found.ranks else self.misses + 1
        others = self.job.members - {one.id for one in self.job.ranks.values()}
        self.left = (self.left | others) & {one.id for one in processes}
        if self.left.issuperset(one.id for one in found.ranks.values()):
            return False  # none, or a program that had only started the ranks
        known = {one.id for one in self.job.ranks.values()}
        if known & {one.id for one in found.ranks.values()}:
            ranks = {**found.ranks, **self.job.ranks}  # one that is gone still belongs to the job
            self.job = replace(found, ranks=ranks)
            return False
        self.job, self.found_s, self.members = found, now_s, found.members
        self.kills = self.kills_seen = self.processes.memory_kills(self.members)
        return True

    def _is_recent(self, now_s: float, phase: JobPhase) -> bool:
        is_known = bool(self.job.ranks) and phase is not JobPhase.STARTING
        interval_s = SCAN_S if is_known or self.misses > FIRST_SCANS else FIRST_SCANS_S
        return self.searched_s is not None and 0 <= now_s - self.searched_s < interval_s

    def report_missing(self) -> None:
        """Log once that a training that logs steps was not found."""
        if not self.is_reported:
            self.is_reported = True
            log.info("hangs are not noticed: no process of the training was found; hint: set `health.process.match`")

    def outlive(self, now_s: float) -> None:
        """Forget kills that all ranks have survived for some time."""
        kills = self.processes.memory_kills(self.members)
        if kills != self.kills_seen:
            self.kills_seen, self.killed_s = kills, now_s
        elif now_s - self.killed_s >= OUTLIVED_S:
            self.kills = kills

    def new_kills(self) -> int:
        """Return how many processes were killed for memory that the ranks have not outlived."""
        return self.processes.memory_kills(self.members) - self.kills

    def forget(self) -> None:
        """Search for another job: this one has ended."""
        self.job, self.members, self.searched_s, self.misses = Job(), frozenset(), None, 0
