"""`tracker backfill [FOLDER]`: evaluate all checkpoints in a folder."""

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path, PurePath

import click
from rich.console import Console

from eval_jobs.errors import ConfigError, StoreError, TrackerError
from eval_jobs.host.clock import SystemClock
from eval_jobs.host.paths import canonical
from eval_jobs.ports import Launcher
from eval_jobs.queue_types import Backlog, QueueState
from eval_jobs.types import Checkpoint, EvalRecord
from tracker.adapters.checkpoints.files.listing import CheckpointLocation, facts_of_folder, places_in
from tracker.api.opening import open_project
from tracker.app.commands.backfill import FilledPlace, InTurn, fill_beside, is_measured, notify_of_lasting, quiet
from tracker.app.daemon import StopRule, watch
from tracker.app.leading import LeadLost, demand_lead
from tracker.app.world import Tick, WatchState, World
from tracker.cli import interrupts
from tracker.cli.evaluating import check_ready, ending_of, local_workers
from tracker.cli.options import asked_as, checked_run_name, config_option, workers_option
from tracker.cli.tables.watch_display import WatchDisplay
from tracker.domain.checkpoints.backfill import FillOrder, StepFilter, chosen_steps, evaluation_order, time_left_s
from tracker.domain.checkpoints.names import step_of
from tracker.domain.records.display import count_text, duration_text, names_text
from tracker.domain.records.types import Report
from tracker.ports import Lead
from tracker.wiring.checkpoints import pin_named
from tracker.wiring.project import Project

_STEPS = re.compile(r"([0-9]*):([0-9]*)")
_NS = 1_000_000_000
_ORDERS = {FillOrder.OLDEST: "oldest first", FillOrder.NEWEST: "newest first", FillOrder.BISECT: "bisection order"}


@dataclass(frozen=True, kw_only=True)
class _Asked:
    folder: Path | None
    run_name: str | None
    order: str
    every: int
    steps: str
    workers: int
    config_path: Path
    is_ours: bool = True
    """Whether this process leads the run; else its watcher computes the verdicts."""


@click.command("backfill")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--run", "run_name", help="Name of the run. Default: run.name, or the name of FOLDER.")
@click.option(
    "--order",
    type=click.Choice([str(order) for order in FillOrder]),
    default=str(FillOrder.OLDEST),
    show_default=True,
    help="Order by step; bisect: first and last, then the middle of each remaining interval.",
)
@click.option("--every", type=click.IntRange(min=1), default=1, show_default=True, help="Only every Nth checkpoint.")
@click.option("--steps", default=":", show_default=True, metavar="A:B", help="Steps A to B, inclusive; both optional.")
@workers_option
@config_option
@asked_as(_Asked)
def command(asked: _Asked) -> int:
    """Evaluate all checkpoints in FOLDER (default: run.output_dir).

    Training does not need to be running. If `tracker watch` is running, its workers evaluate. If interrupted, run it
    again to continue; no checkpoint is evaluated twice.

    Exit codes are those of `tracker watch --until-idle`.
    """
    opened = open_project(asked.config_path)
    project = _project_of(opened, asked.folder, asked.run_name)
    places = _places(project, asked)
    lead, is_watched = project.lead(), opened.lead().is_led()
    asked = replace(asked, is_ours=_leads(lead, project))
    if is_watched or not asked.is_ours:
        asked = replace(asked, workers=0)
    display = WatchDisplay(Console(), project.config, time.monotonic)
    try:
        check_ready(project, has_engine=asked.workers > 0)
        with display:
            if is_watched:
                display.event("workers", "evaluated by the workers of the running `tracker watch`")
            _fill(project, places, asked, lead, display)
    except LeadLost as lost:
        what = f"another watcher has taken over run {project.config.run.name}"
        raise StoreError(what, hint="run the same command again when that watcher has stopped") from lost
    finally:
        lead.release()
    end = ending_of(project, {(place.run_id, place.step) for place in places}, unsent=display.unsent)
    display.farewell(end)
    return end.code


def _leads(lead: Lead, project: Project) -> bool:
    """Return whether this process leads the run; else another one watches it in the same folder."""
    if lead.take(SystemClock().now()):
        return True
    leader, run = lead.leader(), project.config.run
    if leader is not None and leader.output_dir != canonical(run.output_dir):
        raise ConfigError(leader.sentence(run.name), hint="choose another name with --run")
    return False


def _project_of(project: Project, folder: Path | None, run_name: str | None) -> Project:
    run = project.config.run
    if folder is not None and canonical(str(folder)) != canonical(run.output_dir):
        run = run.model_copy(update={"output_dir": str(folder.absolute()), "name": folder.absolute().name})
    if run_name is not None:
        run = run.model_copy(update={"name": checked_run_name(run_name)})
    if run.is_bucket:
        raise ConfigError(
            f"cannot backfill a bucket: {run.output_dir}",
            hint="use `tracker watch --until-idle` to evaluate all checkpoints of a bucket",
        )
    if not Path(run.output_dir).is_dir():
        raise ConfigError(f"folder {run.output_dir} not found", hint="pass the folder that contains the checkpoints")
    watch_section = project.config.watch.model_copy(update={"backlog": Backlog.ALL})  # nothing is skipped
    return Project(project.config.model_copy(update={"run": run, "watch": watch_section}))


def _choice(steps: str, every: int) -> StepFilter:
    match = _STEPS.fullmatch(steps)
    if match is None:
        raise ConfigError(f"invalid range --steps {steps}", hint="expected A:B, A: or :B, such as --steps 1000:5000")
    first, last = (int(part) if part else None for part in match.groups())
    return StepFilter(every=every, first=first, last=last)


def _places(project: Project, asked: _Asked) -> tuple[CheckpointLocation, ...]:
    """Return the selected checkpoints in evaluation order, run by run if the folder contains several."""
    choice = _choice(asked.steps, asked.every)
    run, pattern = project.config.run, project.config.watch.pattern
    folder = Path(run.output_dir)
    found = places_in(folder, run_name=run.name, pattern=pattern, skip=project.config.run.state_dir)
    ordered: list[CheckpointLocation] = []
    for run_id in dict.fromkeys(place.run_id for place in found):
        by_step = {place.step: place for place in found if place.run_id == run_id}
        steps = chosen_steps(by_step, choice)
        ordered += [by_step[step] for step in evaluation_order(steps, FillOrder(asked.order))]
    if not ordered:
        entries = sorted(entry.name for entry in folder.iterdir())
        held = names_text(entries) if entries else "nothing"
        what = " with these steps" if found else ""
        raise ConfigError(
            f"no checkpoint{what} in {folder}", hint=f"check watch.pattern and --steps; the folder contains {held}"
        )
    return tuple(ordered)


def _fill(
    project: Project, places: Sequence[CheckpointLocation], asked: _Asked, lead: Lead, display: WatchDisplay
) -> None:
    project.make_state_dir()
    world = project.world()
    if asked.is_ours:
        project.read_logs()
    world.source.close()  # all places are known already, and new ones are not wanted
    to_do = tuple(_to_do(project, world, places))
    source = InTurn(to_do, world.queue)
    progress = _Progress(places, asked, source)
    display.event("backfill", progress.beginning(project.config.run.output_dir, len(places) - len(to_do)))
    local = local_workers(project, asked.workers, asked.config_path, on_news=source.wake)
    world = replace(world, source=source, wake_workers=local.nudge)
    past = quiet(world)
    demand = partial(demand_lead, lead) if asked.is_ours else partial(_demand_watcher, lead, project.config.run.name)
    state = WatchState(first=_first_of_runs(world, project, places), demand_lead=demand)

    def show(passed: Tick, state: QueueState) -> None:
        display.show(passed, state)
        if text := progress.text(world, passed.reports):
            display.event("progress", text)

    try:
        watching = partial(watch, past, stop=StopRule(training_ended=lambda: True, quiet_s=0.0))
        fill = watching if asked.is_ours else partial(fill_beside, replace(world, order=past.order), source=source)
        fill(state=state, clock=SystemClock(), keep_workers=lambda: _keep(local), show=show)
        notify_of_lasting(world, sorted({place.run_id for place in places}))
    finally:
        local.stop()
        world.close()


def _demand_watcher(lead: Lead, run: str, now: datetime) -> None:
    if lead.take(now):
        raise TrackerError(f"the watcher of run {run} stopped", hint="run the same command again to continue")


def _keep(workers: Launcher) -> None:
    interrupts.check()
    workers.check()


def _to_do(project: Project, world: World, places: Sequence[CheckpointLocation]) -> Iterator[FilledPlace]:
    """Yield the places not yet measured with the current settings, as far as known without reading them."""
    known = _known(project, places)
    records = {run_id: world.history.records(run_id) for run_id in {place.run_id for place in places}}
    for place in places:
        held = known.get(place.uri)
        if held is not None and is_measured(held, records[place.run_id], world.measurement):
            continue
        yield FilledPlace(
            run_id=place.run_id, step=place.step, uri=place.uri, pinned=partial(_pinned, project, place, held)
        )


def _known(project: Project, places: Sequence[CheckpointLocation]) -> dict[str, Checkpoint]:
    """Return the known checkpoints of the folders that have not changed since, by URI."""
    run_ids = {place.run_id for place in places}
    by_folder: dict[str, Checkpoint] = {}
    for run_id in run_ids:
        by_folder |= {r.plan.checkpoint.source_uri: r.plan.checkpoint for r in project.history.records(run_id)}
    for pin in project.pins.held():
        if pin.checkpoint.run_id in run_ids:
            by_folder[pin.checkpoint.source_uri] = pin.checkpoint
    here = [place for place in places if place.uri in by_folder]
    return {place.uri: by_folder[place.uri] for place in here if not _changed(place, by_folder[place.uri])}


def _changed(place: CheckpointLocation, known: Checkpoint) -> bool:
    """Return whether the folder contains a file newer than its known checkpoint, or cannot be read."""
    facts = facts_of_folder(place.path)
    return facts is None or facts.newest_ns() // _NS > int(known.ready_at.timestamp())


def _pinned(project: Project, place: CheckpointLocation, known: Checkpoint | None) -> Checkpoint:
    if known is not None and known.uri in [pin.checkpoint.uri for pin in project.pins.held()]:
        return known
    is_named = step_of(PurePath(place.uri).name) is not None  # else the name was learned from those beside it
    return pin_named(project.config, place.uri, place.run_id, step=None if is_named else place.step)


def _first_of_runs(world: World, project: Project, places: Sequence[CheckpointLocation]) -> dict[str, Checkpoint]:
    """Return the lowest step of each run if it is the latency reference, regardless of the evaluation order."""
    first: dict[str, Checkpoint] = {}
    if world.measurement.reference != "first":
        return first
    for run_id in {place.run_id for place in places}:
        lowest = min((place for place in places if place.run_id == run_id), key=lambda place: place.step)
        first[run_id] = _pinned(project, lowest, _known(project, [lowest]).get(lowest.uri))
    return first


class _Progress:
    def __init__(self, places: Sequence[CheckpointLocation], asked: _Asked, source: InTurn) -> None:
        self._count = len(places)
        self._asked = asked
        self._source = source
        self._runs = {place.run_id for place in places}
        self._judged: set[tuple[str, int]] = set()
        """(run, step) with a verdict by this process; one evaluated earlier may get its verdict before its turn."""
        self._left = len(source.due(()))

    def beginning(self, folder: str, done: int) -> str:
        known = f", {done} already evaluated" if done else ""
        order = _ORDERS[FillOrder(self._asked.order)]
        return f"{count_text(self._count, 'checkpoint')} in {folder}{known}; {order}"

    def text(self, world: World, reports: Sequence[Report]) -> str:
        """Return what is done, and how long the rest takes; empty: no more is done than at the last call."""
        self._judged |= {(report.run_id, report.step) for report in reports}
        left = len(self._source.due(self._judged))
        if left == self._left:
            return ""
        self._left = left
        records: list[EvalRecord] = []
        for run_id in self._runs:
            records += world.history.records(run_id)
        suites = world.measurement.suites
        left_s = time_left_s(records, suites=suites, checkpoints=left, workers=self._asked.workers)
        done = f"{max(0, self._count - left)} of {self._count} done"
        if not left or left_s is None:
            return done
        return f"{done}, about {duration_text(left_s)} left"
