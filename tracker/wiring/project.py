"""The composition root: configuration -> adapters -> the world that the use cases work with.

Parts whose libraries take long to import are loaded on first use: commands that only show results wait for neither
a store nor the statistics.
"""

from __future__ import annotations

import logging
import os
import socket
import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from glob import escape
from typing import TYPE_CHECKING

from eval_jobs.evaluate.data.files import check_benchmark, read_data_digest
from eval_jobs.execute.launch.local import LocalProgram, LocalWorkers
from eval_jobs.host.clock import SystemClock
from eval_jobs.host.paths import canonical
from eval_jobs.host.plugins import find_plugin
from eval_jobs.host.storage import write_error
from eval_jobs.ports import Launcher
from eval_jobs.queue.database_sql import Database, open_database
from eval_jobs.queue.sql_queue import SqlQueue
from eval_jobs.types import Suite
from tracker.adapters.checkpoints.pins.store import FolderOfPins
from tracker.adapters.curves import TrainerCurves
from tracker.adapters.database.lead_sql import SqlLead
from tracker.adapters.health.rule_plugins import RULES
from tracker.adapters.history.store_sql import SqlHistory, demand_samples
from tracker.adapters.history.sweeps_sql import SqlSweeps
from tracker.adapters.secrets import read_secret, take_out
from tracker.adapters.tracking.no_tracking import NoTracking
from tracker.app.health.settings import AgentSettings
from tracker.config import Config
from tracker.domain.readiness.checks import ODD_ROWS
from tracker.domain.records.display import ONCE
from tracker.ports import Alerting, Lead, Notifier, Pins, Tracking
from tracker.wiring.checkpoints import open_source
from tracker.wiring.mlflow import Mlflow
from tracker.wiring.programs import (
    benchmark_with_version,
    measurement_of,
    serve_of,
    sweeps_of,
    verdict_policy,
)

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from tracker.app.steps.alerting import AlertDispatcher
    from tracker.app.steps.collect import Keeping
    from tracker.app.steps.sweeps import SweepService
    from tracker.app.world import MeasurementPlan, World
    from tracker.domain.records.policy import Policy
    from tracker.domain.sweeps.types import Sweep


@dataclass(frozen=True)
class Project:
    """Everything that one tracker.toml describes, opened on demand."""

    config: Config

    def __post_init__(self) -> None:
        """Remove the secrets of channels from the inherited environment: their names do not mark them as secrets."""
        take_out(self.config.alerts.variables())

    @cached_property
    def database_password(self) -> str:
        """Password of the database; empty if none is configured.

        Raises:
            ConfigError: the configured variable or file has none.
        """
        store = self.config.store
        return read_secret(variable=store.password_env, file=store.password_file, setting="store.password")

    @cached_property
    def database(self) -> Database:
        """The database of queue, history and outbox."""
        self.make_state_dir()
        return open_database(self.config.database_url, password=self.database_password)

    @cached_property
    def mlflow(self) -> Mlflow:
        """MLflow itself; the run writes its results through `tracking`."""
        return Mlflow(self.config, lambda: self.history.runs())  # noqa: PLW0108 - it is opened when that is asked

    @cached_property
    def queue(self) -> SqlQueue:
        """The queue of plans."""
        return SqlQueue(self.database, run=self.config.run.name)

    @cached_property
    def history(self) -> SqlHistory:
        """All results and verdicts."""
        return SqlHistory(self.database, self.config.run.samples_dir)

    @cached_property
    def tracking(self) -> Tracking:
        """The outbox to MLflow."""
        if not self.config.tracking.enabled:
            return NoTracking()
        self.make_state_dir()
        from tracker.adapters.mlflow.store import MlflowStore
        from tracker.adapters.tracking.outbox_sql import OutboxTracking

        return OutboxTracking(self.database, MlflowStore(self.mlflow.settings), run=self.config.run.name)

    def sweeps(self) -> dict[str, Sweep]:
        """Return the sweeps of [[schedule]] by name; see `wiring.programs.sweeps_of`."""
        if self.config.schedule:
            return sweeps_of(self.config, self.suite(), serve_of(self.config))
        return {}

    @cached_property
    def sweep_store(self) -> SqlSweeps:
        """Sweep runs and their results."""
        return SqlSweeps(self.database, self.config.run.name)

    def sweep_service(self) -> SweepService:
        """Return the service that executes sweeps."""
        from tracker.app.steps.sweeps import SweepService

        return SweepService(
            run=self.config.run.name,
            sweeps=self.sweeps(),
            store=self.sweep_store,
            queue=self.queue,
            records=self.history,
            pins=self.pins,
            tracking=self.tracking,
            holder=f"{socket.gethostname()} {os.getpid()} {uuid.uuid4().hex}",
            registered=self.mlflow.registered,
        )

    def lead(self) -> Lead:
        """Return the right to watch the run, not yet taken."""
        return SqlLead(self.database, self.config.run.name, self.config.run.output_dir)

    @cached_property
    def alerting(self) -> Alerting:
        """The outbox of the channels; alerts that this process cannot send wait for one that can."""
        from tracker.adapters.alerts.outbox_sql import AlertOutbox

        channels: tuple[Notifier, ...] = ()
        if settings := self.config.alerts.to_channels():
            from tracker.adapters.alerts.opening import open_what_can_be

            channels = open_what_can_be(settings, SystemClock())
        return AlertOutbox(self.database, channels, run=self.config.run.name, link=self.config.alerts.link)

    @cached_property
    def dispatcher(self) -> AlertDispatcher:
        """Queues, logs and stores alerts."""
        from tracker.app.steps.alerting import AlertDispatcher

        return AlertDispatcher(
            alerts=self.history,
            records=self.history,
            alerting=self.alerting,
            samples=self.config.alerts.lost_samples,
            log_lines=self.config.alerts.log_lines,
            patience=self.config.alerts.to_patience(),
        )

    def suite(self) -> Suite:
        """Return the suite, its local data read and checked.

        Raises:
            BadData: a data file is missing or has a broken line.
            UnknownBenchmark: no benchmark of that name exists.
            ConfigError: there is no such evaluator.
        """
        digests = {b.resolved_name(): read_data_digest(b.data) for b in self.config.benchmark if b.data is not None}
        suite = self.config.to_suite(digests)
        command = self.config.suite.lm_eval
        suite = replace(suite, benchmarks=tuple(benchmark_with_version(b, command) for b in suite.benchmarks))
        for benchmark in suite.benchmarks:
            if benchmark.program is None:  # else its evaluator reports errors
                for note in check_benchmark(benchmark):
                    log.warning("benchmark %s: %s (hint: %s)", benchmark.name, note, ODD_ROWS, extra=ONCE)
        return suite

    @cached_property
    def policy(self) -> Policy:
        """Error rates and thresholds of verdicts."""
        return verdict_policy(self.config)

    def world(self, measurement: MeasurementPlan | None = None) -> World:
        """Open all parts that watching needs; by default what is measured is read from the settings and data files.

        Raises:
            ConfigError: the run was watched with another state folder.
        """
        self.make_state_dir()
        from tracker.app.world import QueueOrder, World

        watch = self.config.watch
        world = World(
            source=open_source(self.config, self.config.run.pins_dir),
            curves=TrainerCurves(),
            queue=self.queue,
            history=self.history,
            tracking=self.tracking,
            dispatcher=self.dispatcher,
            measurement=measurement or measurement_of(self.config, self.suite()),
            policy=self.policy,
            keeping=self.keeping(),
            sweeps=self.sweep_service(),
            order=QueueOrder(backlog=watch.backlog, max_waiting=watch.max_waiting, reask_wait_s=watch.reask_wait_s),
        )
        demand_samples(self.database, self.config.run.samples_dir, self.config.run.name)
        return world

    def keeping(self) -> Keeping:
        """Open the parts that deletion beyond the budget of [keep] needs."""
        from tracker.app.steps.collect import Keeping

        return Keeping(
            run=self.config.run.name,
            pins=self.pins,
            queue=self.queue,
            records=self.history,
            texts=self.history,
            gaps=self.history,
            policy=self.config.keep.to_keep(),
            baseline=self.config.to_policy().pinned,
        )

    @property
    def pins(self) -> Pins:
        """Our own pins of checkpoints."""
        return FolderOfPins(self.config.run.pins_dir)

    def pinned_steps(self) -> Mapping[str, frozenset[int]]:
        """Return the steps of all checkpoints that are pinned, by run."""
        steps: dict[str, set[int]] = {}
        for pin in self.pins.held():
            steps.setdefault(pin.checkpoint.run_id, set()).add(pin.checkpoint.step)
        return {run_id: frozenset(found) for run_id, found in steps.items()}

    def workers(self, count: int, *, on_news: Callable[[], None] = lambda: None) -> Launcher:
        """Return the launcher of workers on this machine; `on_news` is called, from a thread, at every record."""
        url, work_dir = self.config.database_url, self.config.run.work_dir
        return LocalWorkers(count, url, work_dir, password=self.database_password, on_news=on_news)

    def agent_settings(self) -> AgentSettings:
        """Return which logs are followed, and by which rules.

        Raises:
            ConfigError: a rule of another package is not installed.
        """
        for name in self.config.health.plugins:
            find_plugin(RULES, name)
        run, health = self.config.run, self.config.health
        rules = health.to_rules()
        return AgentSettings(
            run=run.name,
            output_dir="" if "://" in run.output_dir else canonical(run.output_dir),
            patterns=(*health.logs, f"{escape(str(run.guard_dir))}/*.log"),
            rules=rules.lines,
            conditions=rules.conditions,
            formats=health.to_formats(),
            plugins=health.plugins,
            guard_dir=str(run.guard_dir),
            watches_processes=health.process.watch,
            process_pattern=health.process.to_pattern(),
            hang=health.hang.to_limits(),
        )

    def read_logs(self) -> None:
        """Read what the training has logged so far, in this process."""
        from tracker.wiring.agent import follower_of

        follower = follower_of(self.agent_settings(), self.database, SystemClock())
        with closing(follower.log):
            while follower.follow():
                pass

    def agents(self, count: int, *, on_news: Callable[[], None] = lambda: None) -> Launcher:
        """Return the launcher of the process that follows the training's logs, or of none."""
        from tracker.wiring.agent import KIND, SETTINGS_VARIABLE, settings_text

        program = LocalProgram(
            kind=KIND,
            module="tracker.wiring.agent",
            variables={SETTINGS_VARIABLE: settings_text(self.agent_settings())},
            is_needed=False,
        )
        url, work_dir = self.config.database_url, self.config.run.work_dir
        return LocalWorkers(count, url, work_dir, password=self.database_password, program=program, on_news=on_news)

    def make_state_dir(self) -> None:
        """Create the state folder.

        Raises:
            DiskFull, StoreError: it cannot be created.
        """
        try:
            self.config.run.work_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            what = f"cannot create the state folder {self.config.run.state_dir}"
            raise write_error(error, what, hint="set run.state_dir to another folder") from error


def channels_of(config: Config) -> tuple[Notifier, ...]:
    """Return the notification channels.

    Raises:
        ConfigError: a secret is missing, a URL is invalid, or a library is not installed.
    """
    settings = config.alerts.to_channels()
    if not settings:
        return ()
    from tracker.adapters.alerts.opening import open_channels

    return open_channels(settings, SystemClock())
