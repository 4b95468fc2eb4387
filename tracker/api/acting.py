"""What a project is asked to do: evaluate a checkpoint, and accept a level. Opens it for writing, by its settings."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from eval_jobs.errors import ConfigError, NoSignOfLife
from eval_jobs.execute.worker.main import make_tools
from eval_jobs.host.clock import SystemClock
from eval_jobs.host.paths import canonical
from eval_jobs.ports import ShowProgress
from eval_jobs.types import Checkpoint, EvalPlan
from tracker.api.reading import ChosenRuns
from tracker.api.references import HOW_TO_NAME, named_checkpoint
from tracker.api.steps import known_names_hint
from tracker.api.tables import read_verdicts
from tracker.app.commands.accept import accept
from tracker.app.commands.once import EvaluatedOnce, evaluate_once
from tracker.app.plans import plans_for
from tracker.app.world import MeasurementPlan
from tracker.domain.checkpoints.buckets import SCHEME
from tracker.domain.checkpoints.names import step_of
from tracker.domain.gate.text import NAME_CHARS
from tracker.domain.records.display import shortened
from tracker.domain.records.imported import first_checkpoint
from tracker.domain.records.losses import Acceptance
from tracker.ports import ReportStore
from tracker.wiring.checkpoints import pin_named
from tracker.wiring.programs import measurement_of
from tracker.wiring.project import Project

if TYPE_CHECKING:
    from pandas import DataFrame

NO_WORKER_TIMEOUT_S = 60.0
"""Longest time to wait for an evaluation while no watcher is running and no worker evaluates it."""
_LOOK_S = 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """The evaluation of a checkpoint."""

    run: str
    step: int
    _plans: tuple[EvalPlan, ...]
    _runs: ChosenRuns
    _project: Project
    _no_worker_timeout_s: float = NO_WORKER_TIMEOUT_S

    @property
    def state(self) -> str:
        """waiting, running, finished (without verdicts yet), or judged."""
        if self._is_judged():
            return "judged"
        mine = {plan.id for plan in self._plans}
        state = self._project.queue.state()
        if any(one.plan.id in mine for one in state.running):
            return "running"
        done = self._project.queue.done(mine)
        return "finished" if done == mine else "waiting"

    def wait(self, timeout_s: float | None = None) -> DataFrame:
        """Return the verdicts when they are there.

        Args:
            timeout_s: longest time to wait; None: as long as a watcher is running.

        Raises:
            NoSignOfLife: they are not there in time, or no watcher and no worker works on it for 60 s.
        """
        clock = SystemClock()
        began = alive = clock.monotonic_s()
        lead, history, mine = self._project.lead(), self._runs.history, {plan.id for plan in self._plans}
        position = history.position()
        is_judged = self._is_judged()
        while not is_judged:
            now = clock.monotonic_s()
            if timeout_s is not None and now - began >= timeout_s:
                what = f"no verdicts on step {self.step} of {self.run} within {timeout_s:g} s ({self.state})"
                raise NoSignOfLife(what, hint="wait longer, or look at the terminal of `tracker watch`")
            if self.state == "running" or lead.is_led():
                alive = now
            elif now - alive >= self._no_worker_timeout_s:
                what = f"step {self.step} of {self.run} is {self.state}, and no watcher is running"
                raise NoSignOfLife(what, hint="start `tracker watch`, or pass here=True to evaluate in this process")
            clock.sleep(_LOOK_S)
            position, changes = history.changes(position)
            if any(change.key in mine for change in changes):
                is_judged = self._is_judged()
        from tracker.api.formats.frames import frame_of  # here: commands that evaluate wait for no pandas

        frame = frame_of(*read_verdicts(self._runs, steps=[self.step]))
        return frame[frame["plan_id"].isin([plan.id for plan in self._plans])].reset_index(drop=True)

    def _is_judged(self) -> bool:
        judged = set()
        for one in self._runs.tables.evaluations((self.run,)):
            if one.judged_at is not None:
                judged.add(one.plan_id)
        return judged.issuperset(plan.id for plan in self._plans)


def evaluation_of(runs: ChosenRuns, checkpoint: str | os.PathLike[str], *, here: bool) -> Evaluation:
    """Queue the evaluation of a checkpoint, or evaluate it in this process.

    Raises:
        CheckpointError: it cannot be pinned.
        ConfigError: the project was opened without its settings, or they are wrong.
        StoreError: the results cannot be stored.
    """
    project = writable(runs)
    if not isinstance(checkpoint, str | os.PathLike):
        raise ConfigError(
            f"{checkpoint!r} is no location", hint="pass the folder of a checkpoint, or s3://bucket/prefix"
        )
    place = os.fspath(checkpoint)
    if here:
        done = evaluate_here(project, pinned_at(project, place), lambda _: None)
        plans = tuple(record.plan for record, _ in done.results)
    else:
        plans = _queued(project, pinned_at(project, place))
    at = plans[0].checkpoint
    own = replace(runs, names=(at.run_id,))
    return Evaluation(run=at.run_id, step=at.step, _plans=plans, _runs=own, _project=project)


def pinned_at(project: Project, place: str, run_id: str | None = None, *, step: int | None = None) -> Checkpoint:
    """Pin a checkpoint of a project, a folder or s3://bucket/prefix, as part of a run; raises as `pin_named`."""
    project.make_state_dir()
    pinned = pin_named(project.config, place, run_id, step=step)
    if run_id is not None:  # a pin of this project may belong to another run
        pinned = replace(pinned, run_id=run_id)
    return pinned


def evaluate_here(
    project: Project, pinned: Checkpoint, progress: ShowProgress, *, reuse: bool = False
) -> EvaluatedOnce:
    """Evaluate a pinned checkpoint in this process with everything that the project measures.

    With `reuse`, known results of the same weights with the same settings are used.
    """
    world = project.world()
    project.read_logs()
    tools = make_tools(project.config.run.work_dir)
    try:
        with project.pins.in_use(pinned):
            return evaluate_once(pinned, world, tools=tools, progress=progress, reuse=reuse)
    finally:
        tools.evaluator.close()
        tools.engine.close()
        world.close()


def run_of_gated(project: Project, name: str, *, is_apart: bool = False) -> str | None:
    """Return the run to which a gate counts the evaluation of a folder or bucket prefix; None: that of its location.

    With `is_apart` the result is stored outside that run, because it is measured differently.

    Raises:
        ConfigError: there is no such folder.
    """
    if not (name.startswith(SCHEME) or _is_folder(name)):
        what = f"{shortened(name, NAME_CHARS)!r} is neither a checkpoint reference nor a folder"
        raise ConfigError(what, hint=f"{HOW_TO_NAME}; or a folder, or {SCHEME}bucket/prefix")
    if _is_of_run(project, name) and not is_apart:
        return None
    return f"gate/{PurePosixPath(name if name.startswith(SCHEME) else Path(name).absolute()).name}"


def accepted_level(project: Project, checkpoint: str, benchmark: str, reason: str) -> Acceptance:
    """Accept the score of a benchmark at a checkpoint as its new baseline.

    Raises:
        ConfigError: there is no such checkpoint or benchmark, or the reason is empty.
    """
    report = named_checkpoint(project, checkpoint)
    if not reason.strip():
        raise ConfigError("the reason is empty", hint="explain in a few words why this level is acceptable")
    _check_benchmark(project.history, report.run_id, report.step, benchmark)
    acceptance = Acceptance(
        run_id=report.run_id,
        step=report.step,
        from_step=report.step,
        benchmark=benchmark,
        reason=reason,
        accepted_at=SystemClock().now(),
    )
    config = project.config
    # Nothing is evaluated, so no data file is read.
    screening = config.suite.screen.to_screening()
    world = project.world(MeasurementPlan(suites=(), serve=config.serve.to_spec(), loads=(), screening=screening))
    try:
        accept(world, acceptance)
        world.tracking.flush()
    finally:
        world.close()
    return acceptance


def writable(runs: ChosenRuns) -> Project:
    """Return the project of the settings, to write to it.

    Raises:
        ConfigError: it was opened by a state folder or a database, which have no settings.
    """
    config = runs.opened.config
    if config is None:
        what = "the settings are unknown: the project was opened by its state folder or database"
        raise ConfigError(what, hint="pass tracker.toml to tracker.open")
    runs.runs()  # refuses a fork
    return Project(config)


def _queued(project: Project, pinned: Checkpoint) -> tuple[EvalPlan, ...]:
    config = project.config
    first = first_checkpoint(pinned, project.history.records(pinned.run_id))
    plans = plans_for(pinned, measurement_of(config, project.suite()), first=first)
    for plan in plans:
        project.queue.add(plan, now=SystemClock().now(), backlog=config.watch.backlog, keep=True)
    return plans


def _is_folder(name: str) -> bool:
    try:
        return Path(name).is_dir()
    except OSError:  # name too long, or no permission for a parent folder
        return False


def _is_of_run(project: Project, name: str) -> bool:
    """Return whether it is a pin or a checkpoint as `tracker watch` finds it: only these belong in a run's history."""
    output_dir = project.config.run.output_dir
    if name.startswith(SCHEME):
        place, watched = PurePosixPath(name), PurePosixPath(output_dir)
    else:
        if Path(canonical(name)).is_relative_to(canonical(str(project.config.run.pins_dir))):
            return True
        if Path(name).is_symlink():
            return False
        place, watched = PurePosixPath(canonical(name)), PurePosixPath(canonical(output_dir))
    return watched in place.parents[:2] and step_of(place.name, project.config.watch.pattern) is not None


def _check_benchmark(history: ReportStore, run_id: str, step: int, benchmark: str) -> None:
    known = [v.benchmark for r in history.outlines(run_id) if r.step == step for v in r.verdicts]
    if benchmark not in known:
        hint = known_names_hint("benchmarks", known, benchmark)
        raise ConfigError(f"no benchmark {benchmark!r} at step {step}", hint=hint)
