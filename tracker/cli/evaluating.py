"""Shared by commands that evaluate: evaluation in this process, workers, detection of a watcher, and the ending."""

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from eval_jobs.host.clock import SystemClock
from eval_jobs.ports import Launcher, QueueStatus
from eval_jobs.queue.sql_queue import SqlQueue
from eval_jobs.records.progress import progress_text
from tracker.api.acting import evaluate_here, pinned_at
from tracker.app.commands.once import EvaluatedOnce
from tracker.cli.tables.progress_bars import LiveProgress
from tracker.domain.overview.ending import Ending, RunStep, Totals, ending, totals_of
from tracker.domain.readiness.finding import Finding, Level, demand_ready, errors_in
from tracker.domain.readiness.surroundings import CHECKPOINTS
from tracker.domain.records.display import ONCE
from tracker.domain.records.types import Gap, Report
from tracker.wiring.doctor import examine
from tracker.wiring.project import Project

log = logging.getLogger(__name__)

LOOK_S = 0.5
"""Seconds between two polls of the queue."""
IDLE_S = 4.0
"""A worker on another machine polls the queue more often than this, in seconds."""


def findings_of(project: Project, checkpoint: str, *, has_engine: bool) -> tuple[Finding, ...]:
    """Return the findings about evaluations of a checkpoint; whether it is complete is left to pinning."""
    found = examine(project, checkpoint, has_engine=has_engine)
    return tuple(one for one in found if one.subject != CHECKPOINTS)


def check_ready(
    project: Project, checkpoint: str | None = None, *, has_engine: bool = True, must_be_ready: bool = True
) -> tuple[Finding, ...]:
    """Log findings about the evaluation of a checkpoint, by default of the newest one of the run; return the errors.

    Raises:
        ConfigError: every evaluation, or every answer of a benchmark, would fail, and `must_be_ready` is set.
    """
    if checkpoint is None:
        findings = examine(project, has_engine=has_engine)
    else:
        findings = findings_of(project, checkpoint, has_engine=has_engine)
    for one in findings:
        if one.level is Level.WARNING:
            log.warning("%s", one, extra=ONCE)
    errors = errors_in(findings)
    if must_be_ready:
        demand_ready(findings)
    for one in errors:
        log.warning("%s", one)
    return errors


def evaluate_now(
    project: Project,
    checkpoint: str,
    console: Console,
    *,
    run_id: str | None = None,
    step: int | None = None,
    reuse: bool = False,
) -> EvaluatedOnce:
    """Pin a checkpoint, evaluate it with everything that the project measures, and return records with reports.

    Args:
        project: its settings.
        checkpoint: a folder, or s3://bucket/prefix.
        console: for progress.
        run_id: run that it is counted to; default: that of its location.
        step: training step; default: from its name or files.
        reuse: whether to use known results of the same weights with the same settings.

    Raises:
        CheckpointError: it cannot be pinned.
        ConfigError: it cannot be evaluated with these settings.
        StoreError: the results cannot be stored.
    """
    check_ready(project, checkpoint)
    pinned = pinned_at(project, checkpoint, run_id, step=step)
    with LiveProgress(console, "starting", SystemClock().monotonic_s) as live:
        name = f"step {pinned.step}"
        return evaluate_here(project, pinned, lambda now: live.show(progress_text(now), [(name, now)]), reuse=reuse)


def ending_of(project: Project, found: Collection[RunStep], *, unsent: int) -> Ending:
    """Return how a command ends that was to judge the checkpoints in `found`; `unsent` results wait for MLflow."""
    states = [one for one in project.alerting.channels() if one.is_configured and not one.is_silenced]
    pending = sum(one.waiting for one in states)
    rejected = len(project.tracking.set_aside())
    return ending(replace(totals_in(project, found), unsent=unsent, rejected=rejected, pending_alerts=pending))


def totals_in(project: Project, found: Collection[RunStep]) -> Totals:
    """Return what the history says about the checkpoints in `found`."""
    reports: list[Report] = []
    gaps: list[Gap] = []
    for run_id in sorted({run_id for run_id, _ in found}):
        reports += project.history.outlines(run_id)
        gaps += project.history.gaps(run_id)
    return totals_of(found, reports, gaps)


def local_workers(
    project: Project, count: int, config_path: Path, *, on_news: Callable[[], None] = lambda: None
) -> Launcher:
    """Return the launcher of `count` workers; without workers here, one that warns if there are none elsewhere."""
    if count:
        return project.workers(count, on_news=on_news)
    hint = f"start `tracker worker --config {config_path}` on a machine that has {project.config.run.state_dir}"
    return WorkersElsewhere(SqlQueue(project.database), hint)  # of every run, as workers see it


class WorkersElsewhere:
    """A launcher that starts no worker. It logs once that no worker evaluates what waits, and what to start."""

    def __init__(self, queue: QueueStatus, hint: str, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._queue = queue
        self._hint = hint
        self._monotonic_s = monotonic_s
        self._idle_since_s: float | None = None
        self._is_logged = False

    def check(self) -> None:
        """Log once that no worker is running, after `IDLE_S` in which plans waited and none was evaluated."""
        if self._is_logged:
            return
        state = self._queue.state()
        if state.running or all(one.note for one in state.waiting):
            self._idle_since_s = None
        elif self._idle_since_s is None:
            self._idle_since_s = self._monotonic_s()
        elif self._monotonic_s() - self._idle_since_s >= IDLE_S:
            log.warning("no worker is running: %s", self._hint)
            self._is_logged = True

    def nudge(self) -> None:
        """Do nothing: no worker can be reached."""

    def stop(self) -> None:
        """Do nothing: no worker was started."""
