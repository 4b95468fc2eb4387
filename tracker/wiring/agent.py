"""The agent: a process that follows the logs of one training, so that a file server that hangs stops nothing else.

    python -m tracker.wiring.agent --work-dir /state/work      # started by `tracker watch`

Settings and the address of the database come from environment variables. It imports neither the configuration nor
the statistics: it runs beside a training for weeks and stays small.
"""

import argparse
import logging
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter

from eval_jobs.errors import ExitCode, StoreError, TrackerError
from eval_jobs.execute.child import database_from_environment, log_to, stop_with_parent
from eval_jobs.execute.interrupts import Interrupts, Stopped
from eval_jobs.execute.life import SignOfLife
from eval_jobs.execute.nudge import Nudged
from eval_jobs.host import proc
from eval_jobs.host.clock import SystemClock
from eval_jobs.host.memory import give_back
from eval_jobs.host.secrets import held_secrets, masked
from eval_jobs.host.unforeseen import Edge
from eval_jobs.ports import Clock
from eval_jobs.queue.database_sql import Database, open_database
from tracker.adapters.guarded_command import guarded_runs
from tracker.adapters.health.rule_guard import GuardedRules
from tracker.adapters.health.store_sql import SqlHealthStore
from tracker.adapters.processes.machine import SystemMachine
from tracker.adapters.processes.system import SystemProcesses
from tracker.adapters.trainer_files.log_folder import LogFolder
from tracker.adapters.trainer_files.read_ahead import ReadAhead
from tracker.adapters.trainer_files.search import LogPlaces
from tracker.app.health.follow import LogFollower, Reading, cursors_of
from tracker.app.health.job_watch import JobWatch, Surroundings
from tracker.app.health.machine_watch import MachineWatch
from tracker.app.health.settings import AgentSettings
from tracker.domain.health.guarded import exit_of
from tracker.domain.health.logs.masking import without_keys
from tracker.domain.health.logs.streams import training_folder
from tracker.domain.health.processes.jobs import Places
from tracker.domain.health.rules.code import CodeRules

log = logging.getLogger(__name__)

SETTINGS_VARIABLE = "TRACKER_AGENT_SETTINGS"
KIND = "agent"
READ_S = 1.8
"""Seconds between two readings: a line is judged within 2 s, and each costs as much whether there is one."""
SAVE_S = 5.0
"""Seconds between two savings of points."""
RETRY_S = 5.0
TRIM_S = 120.0

_SETTINGS = TypeAdapter(AgentSettings)


def settings_text(settings: AgentSettings) -> str:
    """Return the value of `SETTINGS_VARIABLE`."""
    return _SETTINGS.dump_json(settings).decode()


def follower_of(settings: AgentSettings, engine: Database, clock: Clock, *, in_thread: bool = False) -> LogFollower:
    """Return what follows the logs of a run, where earlier processes have stopped.

    `in_thread`: a file system that hangs does not stop the caller.

    Raises:
        StoreError: the database cannot be read.
        ConfigError: a rule of another package cannot be used.
    """
    store = SqlHealthStore(engine, settings.run, settings.host)
    known = store.read_so_far()
    places = LogPlaces(
        run=settings.run,
        output_dir=Path(settings.output_dir) if settings.output_dir else None,
        patterns=settings.patterns,
        skip=(Path(settings.guard_dir),) if settings.guard_dir else (),
    )
    folder = LogFolder(places=places, clock=clock, cursors=cursors_of(known), is_first=not known.runs)
    secrets = held_secrets(os.environ)
    return LogFollower(
        log=ReadAhead(folder=folder, clock=clock) if in_thread else folder,
        store=store,
        reading=Reading(
            rules=settings.rules,
            conditions=settings.conditions,
            formats=settings.formats,
            fits=GuardedRules(),
            code=code_rules(settings.plugins),
            mask=lambda text: masked(without_keys(text), secrets),
            save_every_s=SAVE_S,
        ),
        clock=clock,
        known=known,
    )


def job_watch(settings: AgentSettings, clock: Clock, machine: MachineWatch) -> JobWatch | None:
    """Return what watches the processes of the training; None: the settings turn it off."""
    if not settings.watches_processes:
        return None
    own = frozenset((os.getpid(), os.getppid()))
    places = Places(
        run=settings.run,
        folder=training_folder(settings.output_dir),
        pattern=settings.process_pattern,
        machine=socket.gethostname(),
        host=proc.this_machine() if proc.is_visible() else "",
        own=own,
    )
    folder = Path(settings.guard_dir)

    def exit_code(began_s: float, seen_s: float) -> int | None:
        return exit_of(guarded_runs(folder), proc.this_machine(), began_s * os.sysconf("SC_CLK_TCK"), seen_s)

    return JobWatch(
        processes=SystemProcesses(),
        places=places,
        limits=settings.hang,
        clock=clock,
        around=Surroundings(exit_code=exit_code, gpu_table=machine.gpu_table),
    )


def code_rules(plugins: Sequence[str]) -> CodeRules | None:
    """Return the rules of other packages; None: there are none, and what finds them is not imported.

    Raises:
        ConfigError: one is not installed, or cannot be imported.
    """
    if not plugins:
        return None
    from tracker.adapters.health.rule_plugins import RulePlugins

    return RulePlugins(plugins)


def main() -> int:
    """Follow the logs until the process that started this one ends; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tracker.wiring.agent", description=__doc__)
    parser.add_argument("--work-dir", required=True, type=Path, help="folder for the log of this process")
    parser.add_argument("--exit-with-parent", type=int, metavar="PID", help="exit when process PID exits")
    parser.add_argument("--nudged", action="store_true", help="stdin and stdout are pipes to the parent process")
    options = parser.parse_args()
    log_to(options.work_dir / f"{KIND}-{os.getpid()}.log")
    nudged = Nudged() if options.nudged else None
    interrupts = Interrupts()
    interrupts.install()
    if options.exit_with_parent is not None:
        stop_with_parent(options.exit_with_parent, interrupts)
    try:
        settings = _SETTINGS.validate_json(os.environ.pop(SETTINGS_VARIABLE, ""))
        _run(settings, options.work_dir, interrupts, nudged)
    except Stopped:
        log.info("stopped")
    except TrackerError as error:
        log.exception("the agent cannot continue")
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return ExitCode.OK


@dataclass(kw_only=True)
class _Agent:
    """Follows logs; while the database is unreachable, what was read waits."""

    settings: AgentSettings
    engine: Database
    clock: Clock
    machine: MachineWatch
    watch: JobWatch | None = None
    follower: LogFollower | None = None
    edge: Edge = field(default_factory=lambda: Edge(log, "cannot watch the processes", then="logs are still read"))
    error_code: str = ""
    """Of the last reading; empty: it succeeded."""

    def read(self) -> bool:
        """Read once; return whether there was anything new."""
        try:
            if self.follower is None:
                self.follower = follower_of(self.settings, self.engine, self.clock, in_thread=True)
                log.info("following the logs of %s", self.settings.run)
            if self.watch is not None and not self.error_code:
                self._look(self.watch, self.follower)
            has_news = self.follower.follow()
            if self.follower.is_replaced:
                log.info("another process has read the logs; continuing from there")
                self.close()
                self.follower = None
        except StoreError as error:
            if not error.retryable:
                raise
            if error.code != self.error_code:
                log.warning("%s; retrying", error)
            self.error_code = error.code
            return False
        self.error_code = ""
        return has_news

    def _look(self, watch: JobWatch, follower: LogFollower) -> None:
        """Look at the processes and the machine; an error there must not stop the reading of logs."""
        for look in (partial(watch.look, follower), partial(self._look_at_machine, follower, watch)):
            with self.edge.guarded():
                look()

    def _look_at_machine(self, follower: LogFollower, watch: JobWatch) -> None:
        self.machine.look(follower, watch.job, self.settings.run)

    def close(self) -> None:
        """Save what was read, and close all logs."""
        if self.follower is not None:
            try:
                self.follower.close()
            except StoreError as error:
                log.warning("%s; the next start reads the newest lines again", error)


def _run(settings: AgentSettings, work_dir: Path, interrupts: Interrupts, nudged: Nudged | None) -> None:
    clock = SystemClock()
    url, password = database_from_environment()
    engine = open_database(url, password=password)
    machine = MachineWatch(machine=SystemMachine())
    watch = job_watch(settings, clock, machine)
    agent = _Agent(settings=settings, engine=engine, clock=clock, watch=watch, machine=machine)
    with closing(agent), SignOfLife(work_dir, KIND, clock, run=settings.run) as sign:
        trimmed_s = clock.monotonic_s()
        while True:
            has_news = agent.read()
            if clock.monotonic_s() - trimmed_s >= TRIM_S:  # reading a long log leaves holes in the heap
                trimmed_s = clock.monotonic_s()
                give_back()
            sign.give("waiting for the database" if agent.error_code else "following logs")
            if has_news and nudged is not None:
                nudged.report()
            with interrupts.allowed():
                clock.sleep(RETRY_S if agent.error_code else READ_S)


if __name__ == "__main__":
    sys.exit(main())
