"""One pass over what the machine says of a training: the kernel's messages, memory, open files and GPUs.

watch = MachineWatch(machine=machine)
watch.look(follower, job, run_id)      # about every two seconds
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from eval_jobs.records.gpu_health import GpuHealth
from tracker.app.health.job_watch import newest_run
from tracker.domain.health.gpus import MEMORY_ERRORS, gpu_findings, gpu_table
from tracker.domain.health.logs.streams import Stream
from tracker.domain.health.logs.text import RawLine
from tracker.domain.health.processes.jobs import Job
from tracker.domain.health.processes.leaks import Trend
from tracker.domain.health.processes.signs import ProcessSign, sign_of_gpu, sign_of_leak
from tracker.domain.health.run_state import StreamState
from tracker.domain.records.training import IncidentEnd, Severity

if TYPE_CHECKING:  # the ports of the whole program import the statistics, and an agent stays small
    from tracker.app.health.follow import LogFollower
    from tracker.domain.health.run_log import RunLog
    from tracker.ports.health import Machine

USAGE_S = 60.0
GPUS_S = 30.0
KERNEL = "kernel"
_LEAK, _GPU = "leak", "gpu"
"""Prefixes of the keys of conditions."""
_Signs = Mapping[str, ProcessSign | None]
"""By key; None: it cannot be known now whether the condition lasts."""


@dataclass(kw_only=True)
class MachineWatch:
    """Follows what a training uses on this machine."""

    machine: Machine
    _kernel: StreamState = field(default_factory=StreamState)
    _lines: int = 0
    _job: frozenset[int] = frozenset()
    """Processes of the job that is followed."""
    _trends: dict[str, Trend] = field(default_factory=dict)
    _gpus_read: tuple[GpuHealth, ...] = ()
    """At the last reading."""
    _seen_once: frozenset[str] = frozenset()
    """What was wrong with GPUs at the last reading: one alone may be a moment."""
    _ecc: dict[int, int] = field(default_factory=dict)
    """Memory errors of each GPU before this job."""
    _read_at: dict[float, datetime] = field(default_factory=dict)
    """Newest readings, by their interval."""

    def look(self, follower: LogFollower, job: Job, run_id: str) -> None:
        """Do one pass; what it shows joins what the logs show, and is stored with it."""
        run = newest_run(follower, run_id)
        if self.take(run, job, follower.clock.now()):
            follower.touch(run.state.run_id)

    def gpu_table(self) -> str:
        """Return the GPUs at the last reading, as text; empty: there is none."""
        return gpu_table(self._gpus_read)

    def take(self, run: RunLog, job: Job, now: datetime) -> bool:
        """Take what is new, and return whether the state of the run has changed."""
        has_changed = self._begin(run, job, now)
        if self._take_messages(run, now):
            has_changed = True
        if not job.ranks:
            return has_changed
        if self._is_due(USAGE_S, now) and self._take_conditions(run, _LEAK, self._usage(job, now), now):
            has_changed = True
        if self._is_due(GPUS_S, now):
            pids = frozenset(one.pid for one in job.members)
            if self._take_conditions(run, _GPU, self._gpus(pids, run.state.lasting), now):
                has_changed = True
        return has_changed

    def _begin(self, run: RunLog, job: Job, now: datetime) -> bool:
        """Follow the job; return whether conditions of one before it, or of one that has ended, are over."""
        pids, before = frozenset(one.pid for one in job.members), self._job
        self._job = pids or before
        is_other = bool(job.ranks) and not pids & before
        if is_other:
            self._trends, self._ecc = {}, {}
        if not job.ranks:
            is_over = bool(run.state.pace.ended)
        else:
            is_over = is_other and bool(before)
        if is_over:
            return self._end_conditions(run, now)
        return False

    def _end_conditions(self, run: RunLog, now: datetime) -> bool:
        """End what was measured of a job that has ended."""
        known = tuple(run.state.lasting)
        for key in known:
            run.trouble.end_condition(key, now, IncidentEnd.ENDED)
        return bool(known)

    def _take_messages(self, run: RunLog, now: datetime) -> int:
        """Take the kernel's messages as lines of a log; messages before the first job are dropped."""
        messages = self.machine.kernel_lines(self._job)
        if not self._job:
            return 0
        stream = Stream(name=KERNEL, read_at=now)
        for text in messages:
            self._lines += 1
            run.take(RawLine(number=self._lines, text=text), stream, self._kernel)
        return len(messages)

    def _usage(self, job: Job, now: datetime) -> _Signs:
        """Return the leaks, by what identifies each; None: not known, as in the first hours of this process."""
        found = self.machine.usage(job.members)
        numbers = (
            ("memory_leak", found.memory_bytes, found.memory_limit_bytes),
            ("descriptor_leak", found.descriptors, found.descriptor_limit),
            ("shared_memory_leak", found.shared_bytes, found.shared_limit_bytes),
        )
        signs = {name: self._leak(name, name, value, limit, now) for name, value, limit in numbers}
        for gpu in self._gpus_read:
            if gpu.memory is not None:
                used, name = gpu.memory, f"gpu_memory_leak {gpu.index}"
                signs[name] = self._leak("gpu_memory_leak", name, used.used_bytes, used.total_bytes, now)
        return self._leaks_of(signs)

    def _leaks_of(self, signs: Mapping[str, ProcessSign | None]) -> _Signs:
        """Return the signs by what identifies a condition; a number without one is healthy if its trend is known."""
        found: dict[str, ProcessSign | None] = {}
        for name, sign in signs.items():
            trend = self._trends.get(name)
            if sign is not None:
                found[f"{_LEAK} {name} {sign.trouble.severity}"] = sign
            elif trend is None or not trend.is_known:
                found |= dict.fromkeys(f"{_LEAK} {name} {severity}" for severity in Severity)
        return found

    def _leak(self, name: str, key: str, value: int | None, limit: int | None, now: datetime) -> ProcessSign | None:
        """Add a reading to a trend, and return whether it grows to its limit."""
        if value is None or not limit:
            return None
        trend = self._trends.setdefault(key, Trend())
        trend.take(now.timestamp(), value)
        return sign_of_leak(name, trend, value, limit)

    def _gpus(self, pids: frozenset[int], known: Collection[str]) -> _Signs:
        """Return what is wrong with GPUs twice in a row, or was before, by what identifies each; None: not known."""
        signs: dict[str, ProcessSign | None] = {}
        self._gpus_read = self.machine.gpus(pids)
        if not self._gpus_read:
            return dict.fromkeys(known)
        for gpu in self._gpus_read:
            # An earlier process of the agent reported errors: what the GPU had before the job is no longer known.
            is_reported = f"{_GPU} {MEMORY_ERRORS} {gpu.index}" in known
            errors = self._ecc.setdefault(gpu.index, 0 if is_reported else gpu.uncorrected_ecc_errors or 0)
            for finding in gpu_findings(gpu, known_errors=errors):
                signs[f"{_GPU} {finding.name} {finding.gpu}"] = sign_of_gpu(finding)
        lasting, self._seen_once = signs.keys() & {*self._seen_once, *known}, frozenset(signs)
        return {key: sign for key, sign in signs.items() if key in lasting}

    def _take_conditions(self, run: RunLog, prefix: str, signs: _Signs, now: datetime) -> bool:
        """Begin and end conditions; return whether any changed. An unknown condition stays as it is."""
        known = {key for key in run.state.lasting if key.startswith(prefix)}
        begun = {key: sign for key, sign in signs.items() if sign is not None and key not in known}
        for key in known - signs.keys():
            run.trouble.end_condition(key, now)
        for key, sign in begun.items():
            run.trouble.begin_condition(key, sign, now)
        return bool(begun or known - signs.keys())

    def _is_due(self, interval_s: float, now: datetime) -> bool:
        before = self._read_at.get(interval_s)
        if before is not None and 0 <= (now - before).total_seconds() < interval_s:
            return False
        self._read_at[interval_s] = now
        return True
