"""`tracker watch`: evaluate every checkpoint of a run as it appears."""

import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import click
import psutil
from rich.console import Console
from rich.logging import RichHandler

from eval_jobs.errors import ConfigError
from eval_jobs.execute.life import SignOfLife
from eval_jobs.host.clock import SystemClock
from eval_jobs.host.gpus import busiest_gpu_pct
from eval_jobs.host.memory import give_back
from eval_jobs.host.paths import canonical
from eval_jobs.ports import Launcher
from eval_jobs.queue_types import QueueState
from eval_jobs.types import Checkpoint
from tracker.adapters.curves import TrainerCurves
from tracker.adapters.free_memory import keep_no_pool
from tracker.adapters.trainer_files.documents import command_documents
from tracker.api.opening import open_project
from tracker.api.settings_file import SettingsFile
from tracker.app.daemon import StopRule, watch
from tracker.app.health.job_watch import REPORTED_S
from tracker.app.leading import LeadLost, WatchLog, demand_lead, stand_by
from tracker.app.readiness import ReadyGate
from tracker.app.world import Tick, WatchState, World
from tracker.cli import interrupts
from tracker.cli.evaluating import check_ready, ending_of, findings_of, totals_in
from tracker.cli.log_text import log_with
from tracker.cli.options import config_option, workers_option
from tracker.cli.tables.watch_display import WatchDisplay
from tracker.config import Config
from tracker.config.changes import setting_changes
from tracker.domain.checkpoints.backfill import time_left_s
from tracker.domain.checkpoints.buckets import PASSED_S
from tracker.domain.checkpoints.watching import Leader
from tracker.domain.overview.ending import RunStep, known_text
from tracker.domain.readiness.finding import Finding
from tracker.domain.tracking.trainer_facts import Document
from tracker.ports import Lead
from tracker.wiring.project import Project, channels_of


@click.command("watch")
@config_option
@click.option(
    "--until-exit-of", "pid", type=click.IntRange(min=1), help="Exit when process PID has ended and all is evaluated."
)
@click.option("--until-idle", is_flag=True, help="Evaluate all existing checkpoints, lowest step first, then exit.")
@workers_option
@click.option("--yes", is_flag=True, help="Ask again after a change of settings without waiting.")
@click.option(
    "--agent", "agent_mode", type=click.Choice(["on", "off"]), default="on", help="Follow the trainer's logs."
)
def command(*, config_path: Path, pid: int | None, until_idle: bool, workers: int, yes: bool, agent_mode: str) -> int:
    """Evaluate every checkpoint of a run as it appears.

    Finds each complete checkpoint, pins it before the trainer deletes it, serves it, scores it, writes the
    results to MLflow and reports what changed. Runs until Ctrl-C; the next start continues. A second watcher of
    the same run is a standby: it takes over when the first one stops.

    Exit code 0: every checkpoint is evaluated, everything is delivered; 2: bad settings; 3: a checkpoint is not
    evaluated, or there is none; 4: a benchmark has no result, or a result or alert is not delivered.
    """
    keep_no_pool()

    def reopen() -> Project:
        # With --until-idle all existing checkpoints are wanted, and no newer ones will appear.
        return open_project(config_path, asks_at_once=yes, is_in_order=until_idle)

    console = Console()
    if console.is_terminal:  # log lines go above the live line, not into it
        log_with(RichHandler(console=console, show_time=False, show_path=False), "%(message)s")
    project = reopen()
    _check_settings(project, workers)
    training_ended = _training_ended(pid, until_idle=until_idle)
    display = WatchDisplay(console, project.config, time.monotonic)
    shown = check_ready(project, has_engine=workers > 0, must_be_ready=until_idle)
    session = _Session(
        project=project,
        settings=SettingsFile(config_path, project, reopen),
        workers=workers,
        training_ended=training_ended,
        curves=TrainerCurves(_command_of(pid)),
        must_be_ready=until_idle,
        sign=SignOfLife(project.config.run.work_dir, "watch", SystemClock(), run=project.config.run.name),
        launcher=project.workers(workers, on_news=lambda: session.wake()),  # noqa: PLW0108 - it is replaced
        agent_of=lambda present: present.agents(int(agent_mode == "on"), on_news=lambda: session.wake()),  # noqa: PLW0108
    )
    lead = project.lead()
    try:
        with display, session.sign:
            while not _lead_and_watch(session, lead, display, shown):
                shown = ()
        end = ending_of(session.project, session.seen, unsent=display.unsent)
        display.farewell(end)
        return end.code
    finally:
        session.launcher.stop()
        session.agent.stop()
        session.log.end(sys.exception())
        lead.release()


def _check_settings(project: Project, workers: int) -> None:
    """Report what is wrong now, not when this process takes over from another."""
    project.suite()
    channels_of(project.config)  # a missing secret
    if workers and project.config.serve.only_when.gpu_below_pct is not None:
        busiest_gpu_pct()  # raises if GPU use cannot be read, instead of leaving the workers waiting


@dataclass(kw_only=True)
class _Session:
    """Arguments of the command line, the heartbeat, and what changes while watching."""

    project: Project
    """With the present settings."""
    settings: SettingsFile
    workers: int
    training_ended: Callable[[], bool]
    curves: TrainerCurves
    must_be_ready: bool
    """Whether to end if evaluations would fail."""
    sign: SignOfLife
    launcher: Launcher
    """Of the workers of this process; they outlive a change of the settings."""
    agent_of: Callable[[Project], Launcher]
    """Returns the launcher of the process that follows the trainer's logs."""
    agent: Launcher = field(init=False)
    seen: set[RunStep] = field(default_factory=set)
    """Checkpoints that were found, judged or skipped."""
    wake: Callable[[], None] = lambda: None
    """Ends the pause between two passes."""

    def __post_init__(self) -> None:
        self.agent = self.agent_of(self.project)

    @cached_property
    def log(self) -> WatchLog:
        return WatchLog(self.project.history, self.project.config.run.name, SystemClock())

    def is_superseded(self) -> bool:
        """Return whether the settings have changed; then `project` and the agent have the new ones."""
        changed = self.settings.changed()
        if changed is None:
            return False
        if changed.agent_settings() != self.project.agent_settings():
            self.agent.stop()
            self.agent = self.agent_of(changed)
        old, new = (one.config.model_dump(mode="json", exclude_none=True) for one in (self.project, changed))
        self.log.settings_changed(setting_changes(old, new))
        self.project = changed
        return True


def _lead_and_watch(session: _Session, lead: Lead, display: WatchDisplay, shown: Collection[Finding]) -> bool:
    """Lead, if need be after a standby, and watch; return False if the lead was lost or the settings have changed.

    `shown`: errors that are logged already.
    """
    clock, run = SystemClock(), session.project.config.run

    def show_leader(leader: Leader | None) -> None:
        interrupts.check()
        session.sign.give("standby")
        display.stands_by(leader)

    stand_by(lead, run.name, output_dir=canonical(run.output_dir), clock=clock, show=show_leader)
    project, workers = session.project, session.launcher
    world = replace(project.world(), wake_workers=workers.nudge, curves=session.curves)
    if not session.must_be_ready:  # else the training has ended
        world.tracking.follow()
    display.welcome(project.config, world.measurement)
    if session.workers == 0:
        display.has_no_worker(session.settings.path)
    display.evaluation_s = _evaluation_s(world, run.name)
    gate = _gate(session, project, shown)
    state = WatchState(is_held=gate.is_held, demand_lead=partial(demand_lead, lead), opening=session.log.opening())
    session.wake = partial(_wake, state, world)
    try:
        watch(
            world,
            state,
            clock=clock,
            keep_workers=lambda: _keep(session, gate),
            stop=StopRule(
                training_ended=session.training_ended,
                quiet_s=_quiet_s(project.config, is_live=not session.must_be_ready),
                is_superseded=session.is_superseded,
            ),
            show=partial(_show, display, session, world),
        )
    except LeadLost:
        workers.stop()
        session.agent.stop()  # the leader has one
        session.log.leads = False
        return False
    finally:
        session.seen |= state.seen
        world.close()
    return session.project is project


def _wake(state: WatchState, world: World) -> None:
    state.is_woken = True
    world.source.wake()


def _gate(session: _Session, project: Project, shown: Collection[Finding]) -> ReadyGate:
    def findings(newest: Checkpoint) -> tuple[Finding, ...]:
        return findings_of(project, newest.uri, has_engine=session.workers > 0)

    return ReadyGate(findings, SystemClock(), must_be_ready=session.must_be_ready, shown=shown)


def _evaluation_s(world: World, run_id: str) -> float | None:
    return time_left_s(world.history.records(run_id), suites=world.measurement.suites, checkpoints=1, workers=1)


def _show(display: WatchDisplay, session: _Session, world: World, passed: Tick, state: QueueState) -> None:
    if passed.reports:
        display.evaluation_s = _evaluation_s(world, passed.reports[-1].run_id)
    display.show(passed, state)
    if passed.reports:
        give_back()
    elif passed.checkpoints and not (state.waiting or state.running):
        found = {(checkpoint.run_id, checkpoint.step) for checkpoint in passed.checkpoints}
        if (totals := totals_in(session.project, found)).evaluated:  # else they wait until evaluations can begin
            display.event("idle", known_text(totals, is_last=session.must_be_ready))


def _training_ended(pid: int | None, *, until_idle: bool) -> Callable[[], bool]:
    if until_idle:
        return lambda: True
    if pid is None:
        return lambda: False
    try:
        trainer = psutil.Process(pid)
    except psutil.NoSuchProcess as error:
        raise ConfigError(
            f"--until-exit-of {pid}: no such process", hint="use --until-idle to evaluate existing checkpoints"
        ) from error
    return lambda: _is_gone(trainer)


def _command_of(pid: int | None) -> Mapping[str, Document]:
    """Return the settings on the command line of the trainer; {} if it is unknown or belongs to another user."""
    if pid is None:
        return {}
    try:
        trainer = psutil.Process(pid)
        return command_documents(trainer.cmdline(), Path(trainer.cwd()))
    except psutil.Error:
        return {}


def _keep(session: _Session, gate: ReadyGate) -> None:
    """Run once per pass. The first pass precedes the first workers, so that plans have the current settings."""
    interrupts.check()
    session.sign.give("watching")
    session.agent.check()
    if gate.errors:
        session.launcher.stop()
    else:
        session.launcher.check()


def _is_gone(trainer: psutil.Process) -> bool:
    """Return whether the process has ended; psutil compares start times, so that a reused pid is another process."""
    try:
        return not trainer.is_running() or trainer.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it ended between the two calls
        return True


def _quiet_s(config: Config, *, is_live: bool) -> float:
    """Return the time in seconds in which the last checkpoint settles and is found, by file events or polling.

    `is_live`: whether the training was followed until now, so that the agent still reports how it ended.
    """
    least_s = REPORTED_S if is_live else 0.0
    if config.run.is_bucket:  # an uploader may lag behind the end of training
        return max(least_s, PASSED_S + 2 * config.watch.settle_s + config.watch.rescan_s)
    return max(least_s, 2 * config.watch.settle_s + (config.watch.rescan_s if config.watch.polling else 2.0))
