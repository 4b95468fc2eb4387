"""The composition root: configuration -> adapters -> the world that the use cases work with.

Parts whose libraries take long to import are loaded when they are first asked for: who only looks at results waits
for neither a store nor the statistics.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

from eval_jobs.evaluate.data.files import check_benchmark, read_data_digest
from eval_jobs.execute.launch.local import LocalWorkers
from eval_jobs.host.clock import SystemClock
from eval_jobs.host.storage import write_error
from eval_jobs.queue.database_sql import Database, open_database
from eval_jobs.queue.sql_queue import SqlQueue
from eval_jobs.queue_types import Backlog
from eval_jobs.types import Checkpoint, ServeSpec, Suite
from tracker.adapters.checkpoints.pins.store import FolderOfPins
from tracker.adapters.curves import TrainerCurves
from tracker.adapters.database.lead_sql import SqlLead
from tracker.adapters.database.lock_sql import Lock, named_lock
from tracker.adapters.history.samples_place_sql import demand_samples
from tracker.adapters.history.store_sql import SqlHistory
from tracker.adapters.history.sweeps_sql import SqlSweeps
from tracker.adapters.secrets import read_secret, take_out
from tracker.adapters.tracking.no_tracking import NoTracking
from tracker.config import FIRST, Config
from tracker.domain.checkpoints.buckets import SCHEME
from tracker.ports import Alerting, Lead, Notifier, Pins, Tracking
from tracker.wiring.checkpoints import held_at, open_source, pin_at
from tracker.wiring.programs import serve_of, suite_with_versions
from tracker.wiring.sweeps import sweeps_of

if TYPE_CHECKING:
    from tracker.adapters.mlflow.registry import RegisteredCheckpoint
    from tracker.adapters.mlflow.runs import TrackingSettings
    from tracker.adapters.mlflow.samples import WrittenPage
    from tracker.app.steps.alerting import AlertDispatcher
    from tracker.app.steps.collect import Keeping
    from tracker.app.steps.sweeps import SweepService
    from tracker.app.world import Measurement, World
    from tracker.domain.compare.sample_pages import SamplePage
    from tracker.domain.sweeps.types import Sweep


@dataclass(frozen=True)
class Project:
    """Everything that one tracker.toml describes, opened on demand."""

    config: Config

    def __post_init__(self) -> None:
        """Take the secrets of channels out of what child processes inherit: their names do not tell that they are."""
        take_out(self.config.alerts.variables())

    @property
    def state_dir(self) -> Path:
        """Folder of everything that the tracker keeps."""
        return self.config.run.state_dir

    @property
    def pins_dir(self) -> Path:
        """Folder of our own holds on checkpoints."""
        return self.state_dir / "pins"

    @property
    def work_dir(self) -> Path:
        """Folder of the workers: logs, half-done evaluations, engine caches."""
        return self.config.run.work_dir

    @property
    def samples_dir(self) -> Path:
        """Folder of what was asked and answered."""
        return self.state_dir / "samples"

    @property
    def database_url(self) -> str:
        """URL of the database of queue, history and outbox, without its password."""
        return self.config.store.database or f"sqlite:///{self.state_dir / 'tracker.db'}"

    @cached_property
    def database_password(self) -> str:
        """Password of that database; empty where none is named.

        Raises:
            ConfigError: the place that is named has none.
        """
        store = self.config.store
        return read_secret(variable=store.password_env, file=store.password_file, setting="store.password")

    @cached_property
    def database(self) -> Database:
        """The database of queue, history and outbox."""
        self.make_state_dir()
        return open_database(self.database_url, password=self.database_password)

    @cached_property
    def mlflow_uri(self) -> str:
        """Where MLflow keeps the results; whoever has the address asks as the user that is set for it.

        Raises:
            ConfigError: the file that is named has no password.
        """
        tracking = self.config.tracking
        if tracking.username:
            password = read_secret(variable="", file=tracking.password_file, setting="tracking.password")
            from tracker.adapters.mlflow.environment import log_in

            log_in(tracking.username, password)
        return tracking.uri or f"sqlite:///{self.state_dir / 'mlflow.db'}"

    @cached_property
    def queue(self) -> SqlQueue:
        """The queue of plans."""
        return SqlQueue(self.database, run=self.config.run.name)

    @cached_property
    def history(self) -> SqlHistory:
        """All results and verdicts."""
        return SqlHistory(self.database, self.samples_dir)

    @cached_property
    def tracking(self) -> Tracking:
        """The outbox to MLflow."""
        if not self.config.tracking.enabled:
            return NoTracking()
        self.make_state_dir()
        from tracker.adapters.mlflow.store import MlflowStore
        from tracker.adapters.tracking.outbox_sql import OutboxTracking

        return OutboxTracking(self.database, MlflowStore(self._tracking_settings), run=self.config.run.name)

    def registered(self, reference: str) -> RegisteredCheckpoint:
        """Return the checkpoint that `models:/NAME@ALIAS` or `models:/NAME/VERSION` leads to in MLflow.

        Raises:
            ConfigError: there is no such version, or it was made from no checkpoint of a tracker.
            TrackingUnreachable: MLflow does not answer.
        """
        from tracker.adapters.mlflow.registry import registered_checkpoint

        return registered_checkpoint(self._tracking_settings, reference, self.history.runs())

    def write_samples(self, pages: Sequence[SamplePage]) -> Iterator[WrittenPage]:
        """Write samples of two checkpoints to MLflow, to be looked at side by side; yield each page when it is there.

        Raises:
            TrackingUnreachable, StoreError: MLflow does not answer, or refuses.
            ConfigError: the experiment was deleted.
        """
        self.make_state_dir()
        from tracker.adapters.mlflow.samples import write_pages

        return write_pages(self._tracking_settings, pages)

    def sweeps(self) -> dict[str, Sweep]:
        """Return the sweeps of [[schedule]] by name; see `wiring_sweeps.sweeps_of`."""
        return sweeps_of(self.config, self.suite(), serve_of(self.config)) if self.config.schedule else {}

    @cached_property
    def sweep_store(self) -> SqlSweeps:
        """The turns of sweeps and their results."""
        return SqlSweeps(self.database, self.config.run.name)

    def sweep_service(self) -> SweepService:
        """Open what sweeps are carried out with."""
        from tracker.app.steps.sweeps import SweepService

        return SweepService(
            run=self.config.run.name,
            sweeps=self.sweeps(),
            store=self.sweep_store,
            queue=self.queue,
            history=self.history,
            pins=self.pins,
            tracking=self.tracking,
            holder=f"{socket.gethostname()} {os.getpid()} {uuid.uuid4().hex}",
            registered=self.registered,
        )

    def lead(self) -> Lead:
        """Return the right to watch the run, not yet taken."""
        return SqlLead(self.database, self.config.run.name, self.config.run.output_dir)

    def import_lock(self) -> Lock:
        """Return the right to import into the run, not yet taken."""
        return named_lock(self.database, f"import {self.config.run.name}")

    @cached_property
    def channels(self) -> tuple[Notifier, ...]:
        """Channels to people.

        Raises:
            ConfigError: the address or the key of one is not where the settings say.
        """
        settings = self.config.alerts.to_channels()
        if not settings:
            return ()
        from tracker.adapters.alerts.opening import open_channels

        return open_channels(settings, SystemClock())

    @cached_property
    def alerting(self) -> Alerting:
        """The outbox to the channels; what cannot be sent from this process waits for one that can."""
        from tracker.adapters.alerts.outbox_sql import AlertOutbox

        channels: tuple[Notifier, ...] = ()
        if settings := self.config.alerts.to_channels():
            from tracker.adapters.alerts.closed import open_what_can_be

            channels = open_what_can_be(settings, SystemClock())
        return AlertOutbox(self.database, channels, run=self.config.run.name, link=self.config.alerts.link)

    @cached_property
    def dispatcher(self) -> AlertDispatcher:
        """Whoever tells people."""
        from tracker.app.steps.alerting import AlertDispatcher

        return AlertDispatcher(history=self.history, alerting=self.alerting, samples=self.config.alerts.lost_samples)

    def suite(self) -> Suite:
        """Return the suite, its local data read and checked.

        Raises:
            BadData: a data file is missing or has a broken line.
            UnknownBenchmark: no benchmark of that name exists.
            ConfigError: there is no such evaluator.
        """
        digests = {b.resolved_name(): read_data_digest(b.data) for b in self.config.benchmark if b.data is not None}
        suite = suite_with_versions(self.config.to_suite(digests), self.config.suite.lm_eval)
        for benchmark in suite.benchmarks:
            if benchmark.program is None:  # else its evaluator says what is wrong
                check_benchmark(benchmark)
        return suite

    def serve_spec(self) -> ServeSpec:
        """Return how checkpoints are served.

        Raises:
            ConfigError: there is no such engine.
        """
        return serve_of(self.config)

    def measurement(self) -> Measurement:
        """Return what is measured at every checkpoint; a latency reference that is a folder is pinned.

        Raises:
            CheckpointError: that folder is no complete checkpoint.
        """
        from tracker.app.world import Measurement

        return Measurement(
            suites=(self.suite(),),
            serve=self.serve_spec(),
            loads=self.config.probe.to_loads(),
            reference=self._reference(),
            screening=self.config.suite.screen.to_screening(),
        )

    def world(self) -> World:
        """Open everything that watching needs.

        Raises:
            ConfigError: the run was watched with another state folder.
        """
        self.make_state_dir()
        from tracker.app.world import QueueOrder, World

        world = World(
            source=open_source(self.config, self.pins_dir),
            curves=TrainerCurves(),
            queue=self.queue,
            history=self.history,
            tracking=self.tracking,
            dispatcher=self.dispatcher,
            patience=self.config.alerts.to_patience(),
            measurement=self.measurement(),
            policy=self.config.to_policy(),
            keeping=self.keeping(),
            sweeps=self.sweep_service(),
            order=QueueOrder(backlog=self.config.watch.backlog, max_waiting=self.config.watch.max_waiting),
        )
        demand_samples(self.database, self.samples_dir, self.config.run.name)
        return world

    def keeping(self) -> Keeping:
        """Open what is given up beyond the budget of [keep]."""
        from tracker.app.steps.collect import Keeping

        return Keeping(
            run=self.config.run.name,
            pins=self.pins,
            queue=self.queue,
            history=self.history,
            policy=self.config.keep.to_keep(),
            baseline=self.config.to_policy().pinned,
        )

    @property
    def pins(self) -> Pins:
        """Our own holds on checkpoints."""
        return FolderOfPins(self.pins_dir)

    def workers(self, count: int, *, on_news: Callable[[], None] = lambda: None) -> LocalWorkers:
        """Return workers on this machine, not yet started; `on_news` is called, from a thread, at every record."""
        password = self.database_password
        return LocalWorkers(count, self.database_url, self.work_dir, password=password, on_news=on_news)

    def make_state_dir(self) -> None:
        """Create the state folder.

        Raises:
            DiskFull, StoreError: it cannot be created.
        """
        try:
            self.work_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            what = f"the state folder {self.state_dir} cannot be created"
            raise write_error(error, what, hint="choose another place with run.state_dir") from error

    def pin(self, checkpoint: str, run_id: str | None = None) -> Checkpoint:
        """Pin one checkpoint that a person names: a folder, s3://bucket/prefix, or a pin of ours.

        Args:
            checkpoint: where it lies.
            run_id: run that it is to be counted to; default: `run_id_of` it.

        Raises:
            CheckpointError: it is no complete checkpoint.
            ConfigError, StoreError: it cannot be read, or the pin cannot be written.
        """
        held = held_at(checkpoint, self.pins_dir, self.pins)
        return held or pin_at(self.config, checkpoint, run_id or self.run_id_of(checkpoint), self.pins_dir)

    def run_id_of(self, checkpoint: str) -> str:
        """Return the run that a checkpoint belongs to, as watching names it."""
        place = PurePosixPath(checkpoint) if checkpoint.startswith(SCHEME) else Path(checkpoint).absolute()
        parent, output_dir = place.parent, PurePosixPath(self.config.run.output_dir)
        is_sub_folder = parent.parent == output_dir
        return f"{self.config.run.name}/{parent.name}" if is_sub_folder else self.config.run.name

    def polling(self) -> Project:
        """Return the same project with `watch.polling` on."""
        watch = self.config.watch.model_copy(update={"polling": True})
        return Project(self.config.model_copy(update={"watch": watch}))

    def in_order(self) -> Project:
        """Return the same project with nothing skipped, and the lowest step evaluated first."""
        watch = self.config.watch.model_copy(update={"backlog": Backlog.OLDEST})
        return Project(self.config.model_copy(update={"watch": watch}))

    # --- private

    @cached_property
    def _tracking_settings(self) -> TrackingSettings:
        from tracker.adapters.mlflow.runs import TrackingSettings

        return TrackingSettings(
            uri=self.mlflow_uri,
            experiment=self.config.tracking.experiment or self.config.run.name,
            run_name=self.config.run.name,
            run_id=self.config.tracking.run_id,
            output_dir=self.config.run.output_dir,
            has_aliases=self.config.tracking.aliases,
        )

    def _reference(self) -> Checkpoint | Literal["first"] | None:
        setting = self.config.probe.reference
        if not setting or not self.config.probe.enabled:
            return None
        if setting == FIRST:
            return "first"
        self.make_state_dir()
        # Apart from the pins of the run: what lies there is evaluated after a restart.
        pins_dir = self.state_dir / "reference"
        return pin_at(self.config, setting, self.config.run.name, pins_dir)
