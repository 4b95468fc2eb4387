"""Checks whether a plan may begin now, by its setting `serve.only_when`.

The engine that a worker keeps between two plans is idle while the worker waits, so the GPU load at that time belongs to
other processes. For the same reason, readings from before and during a plan are discarded.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from eval_jobs.errors import ConfigError
from eval_jobs.execute.worker.hours import Load, average_pct, hours_of
from eval_jobs.host.gpus import busiest_gpu_pct
from eval_jobs.ports import Clock
from eval_jobs.types import EvalPlan, OnlyWhen

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 60.0
"""How long the condition of a plan applies to its run: the next plan may have other settings, or none."""
READ_EVERY_S = 1.0
"""A reading with `nvidia-smi` takes half a second of CPU time."""
GAP_S = 3.0
"""Maximum gap between two readings; after a longer one the average restarts."""
KEPT_LOADS = 600


@dataclass(frozen=True, kw_only=True)
class _Paused:
    only_when: OnlyWhen
    looked_at_s: float
    why: str


class ExecutionWindow:
    """Tracks which runs have to wait, and the recent utilization of the GPUs."""

    def __init__(self, clock: Clock, read_busy_pct: Callable[[], float] = busiest_gpu_pct) -> None:
        """Start without readings.

        Args:
            clock: its time of day is used for the hours, its monotonic time for everything else.
            read_busy_pct: returns the GPU utilization in percent; raises ConfigError if it is not available.
        """
        self._clock = clock
        self._read_busy_pct = read_busy_pct
        self._runs: dict[str, _Paused] = {}
        self._reported: set[str] = set()
        self._loads: tuple[Load, ...] = ()

    def reason(self, plan: EvalPlan) -> str:
        """Return why this plan has to wait now, "" if it may begin."""
        run_id, only_when = plan.checkpoint.run_id, plan.serve.only_when
        if self._may_begin(only_when):
            self._runs.pop(run_id, None)
            self._reported.discard(run_id)
            self._loads = ()
            return ""
        why = self._why(only_when)
        if run_id not in self._reported:
            self._reported.add(run_id)
            log.info("run %s: %s", run_id, why)
        self._runs[run_id] = _Paused(only_when=only_when, looked_at_s=self._clock.monotonic_s(), why=why)
        return why

    def paused_runs(self) -> tuple[str, ...]:
        """Return the runs whose plans should not be claimed now."""
        now_s = self._clock.monotonic_s()
        self._runs = {run: p for run, p in self._runs.items() if now_s - p.looked_at_s < LOOK_AGAIN_S}
        return tuple(run for run, paused in self._runs.items() if not self._may_begin(paused.only_when))

    @property
    def shown(self) -> str:
        """Why the worker waits, in one line; "" if no run is paused."""
        return next((f"{run}: {paused.why}" for run, paused in self._runs.items()), "")

    def _may_begin(self, only_when: OnlyWhen) -> bool:
        """Return whether a plan may begin. Called twice a second, so it does not build the text of the reason."""
        try:
            hours = hours_of(only_when)
            return (hours is None or hours.has(self._clock.now())) and self._is_idle(only_when)
        except ConfigError:
            return False

    def _is_idle(self, only_when: OnlyWhen) -> bool:
        if only_when.gpu_below_pct is None:
            return True
        now_s = self._clock.monotonic_s()
        self._read(now_s)
        average = average_pct(self._loads, now_s=now_s, over_s=only_when.gpu_over_s)
        if average is None:
            return False
        return average < only_when.gpu_below_pct

    def _read(self, now_s: float) -> None:
        since_s = now_s - self._loads[-1].at_s if self._loads else GAP_S + 1
        if since_s < READ_EVERY_S:
            return
        kept = () if since_s > GAP_S else self._loads[-KEPT_LOADS:]
        self._loads = (*kept, Load(at_s=now_s, busy_pct=self._read_busy_pct()))

    def _why(self, only_when: OnlyWhen) -> str:
        try:
            return self._hours(only_when) or self._gpu(only_when)
        except ConfigError as error:
            return f"waiting: {error.message} (hint: {error.hint})"

    def _hours(self, only_when: OnlyWhen) -> str:
        hours, now = hours_of(only_when), self._clock.now()
        if hours is None or hours.has(now):
            return ""
        opens = hours.next_opening(now)
        when = f"until {opens.astimezone(hours.zone):%H:%M} {only_when.time_zone}" if opens else "for the allowed hours"
        return f"waiting {when} (serve.only_when.hours = {only_when.hours})"

    def _gpu(self, only_when: OnlyWhen) -> str:
        self._read(self._clock.monotonic_s())  # raises if the GPUs cannot be read
        average = average_pct(self._loads, now_s=self._clock.monotonic_s(), over_s=only_when.gpu_over_s)
        if average is None:
            return f"measuring GPU utilization for {only_when.gpu_over_s:g} s (serve.only_when.gpu_below_pct)"
        busy = f"GPU utilization is {average:.0f} %"
        return f"waiting: {busy} (serve.only_when.gpu_below_pct = {only_when.gpu_below_pct:g})"
