"""`tracker bisect RUN BENCHMARK`: find the step at which a benchmark was lost by evaluating few checkpoints."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from eval_jobs.errors import CheckpointSkipped, ExitCode, TrackerError
from eval_jobs.host.clock import SystemClock
from eval_jobs.ports import Clock
from eval_jobs.types import Checkpoint
from tracker.api.opening import open_project
from tracker.api.references import known_run
from tracker.app.commands.bisect import Lost, Places, SearchStep, bisect
from tracker.app.tick import review_finished
from tracker.app.world import WatchState, World
from tracker.cli import interrupts
from tracker.cli.evaluating import LOOK_S, local_workers
from tracker.cli.json_output import json_option, print_json
from tracker.cli.options import COUNT, asked_as, config_option, workers_option
from tracker.cli.tables.progress_bars import LiveProgress
from tracker.domain.compare.bisection import Search, most_evaluations
from tracker.domain.compare.lost_between import Ends, LostBetween, remarks_on, sentence_of
from tracker.domain.records.display import one_line, p_value_text, signed_text
from tracker.ports import Lead
from tracker.wiring.checkpoints import pin_named
from tracker.wiring.project import Project


@dataclass(frozen=True, kw_only=True)
class _Asked:
    run: str
    benchmark: str
    config_path: Path
    as_json: bool
    good: int | None
    bad: int | None
    workers: int


@click.command("bisect")
@click.argument("run")
@click.argument("benchmark")
@config_option
@json_option(LostBetween)
@click.option("--good", type=COUNT, help="A step before the loss. Default: the step with the best score.")
@click.option("--bad", type=COUNT, help="A step after the loss. Default: the step of its detection, else the newest.")
@workers_option
@asked_as(_Asked)
def command(asked: _Asked) -> int:
    """Find the step at which the score of BENCHMARK in RUN dropped, with as few evaluations as possible.

    Existing results are reused. A checkpoint can be evaluated if it is pinned or still in the output folder. If
    `tracker watch` is running, its workers evaluate it. After Ctrl-C, the same command continues.

    Exit code 1: the step is found; 3: it cannot be found, or there is no loss; 4: failure.
    """
    project = open_project(asked.config_path)
    project.make_state_dir()
    console = Console(stderr=asked.as_json)
    lost = Lost(
        run_id=known_run(project.history, asked.run),
        benchmark=asked.benchmark,
        ends=Ends(good=asked.good, bad=asked.bad),
    )
    found = _searched(project, lost, asked, console)
    if asked.as_json:
        print_json(asdict(found) | {"sentence": sentence_of(found)})
    for line in _lines(found):
        console.print(Text(one_line(line)), soft_wrap=True)
    if found.is_sure:
        return ExitCode.REGRESSION
    return ExitCode.UNKNOWN


def _searched(project: Project, lost: Lost, asked: _Asked, console: Console) -> LostBetween:
    clock, lead = SystemClock(), project.lead()
    is_ours = lead.take(clock.now())  # otherwise a watcher computes the verdicts, with its own workers
    local = local_workers(project, asked.workers if is_ours else 0, asked.config_path)
    world = replace(project.world(), wake_workers=local.nudge)
    try:
        with LiveProgress(console, "searching", clock.monotonic_s) as live:
            text = ""

            def begin(search: Search, step: int) -> None:
                nonlocal text
                text = _progress(search, step)

            def meanwhile() -> None:
                interrupts.check()
                local.check()
                running = world.queue.state().running
                live.show(text, [(f"step {one.plan.checkpoint.step}", one.progress) for one in running])

            waiting = partial(_wait, world, meanwhile, clock, beside=None if is_ours else lead)
            turn = SearchStep(clock=clock, evaluated=waiting, show=begin)
            places = {**places_of(project, lost.run_id), **(_unseen(world, clock, project) if is_ours else {})}
            return bisect(world, lost, places, turn)
    finally:
        local.stop()
        world.source.close()
        world.tracking.close()
        lead.release()


def places_of(project: Project, run_id: str) -> Places:
    """Return every checkpoint of a run that can be evaluated: pinned, or still in the trainer's folder."""
    history = project.history
    left = {gap.step: gap.source_uri for gap in history.gaps(run_id) if gap.code == CheckpointSkipped.code}
    left |= {r.plan.checkpoint.step: r.plan.checkpoint.source_uri for r in history.records(run_id)}
    places: dict[int, Callable[[], Checkpoint]] = {
        step: partial(pin_named, project.config, uri) for step, uri in left.items() if Path(uri).is_dir()
    }
    for pin in project.pins.held():
        if pin.checkpoint.run_id == run_id:
            places[pin.checkpoint.step] = partial(_itself, pin.checkpoint)
    return places


def _unseen(world: World, clock: Clock, project: Project) -> Places:
    """Pin checkpoints in the output folder that are not evaluated yet; the next watcher finds them pinned."""
    until_s = clock.monotonic_s() + project.config.watch.settle_s + LOOK_S
    found: dict[int, Callable[[], Checkpoint]] = {}
    while clock.monotonic_s() < until_s or world.source.is_behind():
        found |= {c.step: partial(_itself, c) for c in world.source.ready(clock.now())}
        interrupts.check()
        world.source.wait(LOOK_S)
    return found


def _itself(checkpoint: Checkpoint) -> Checkpoint:
    return checkpoint


def _wait(
    world: World, meanwhile: Callable[[], None], clock: Clock, checkpoint: Checkpoint, *, beside: Lead | None
) -> None:
    """Wait for a verdict; `beside`: lead of the watcher that computes it, None: this process computes it."""
    run_id, step, state = checkpoint.run_id, checkpoint.step, WatchState()
    while True:
        if beside is None:
            review_finished(world, state, clock.now())
            if any(r.plan.checkpoint.step == step for r in world.queue.finished()):  # the log contains the reason
                raise TrackerError(f"no verdict for step {step}", hint="see the log above; completed results are kept")
        if step not in world.queue.open_steps(run_id, sweeps=False):
            return
        if beside is not None and beside.take(clock.now()):
            what = f"the watcher stopped before step {step} was evaluated"
            raise TrackerError(what, hint="run the same command again to continue")
        meanwhile()
        clock.sleep(LOOK_S)


def _progress(search: Search, step: int) -> str:
    border = search.border()
    left = sum(border.good < s < border.bad for s in search.steps)
    between = f"lost between step {border.good} and step {border.bad} (checkpoints in between: {left})"
    return f"{between}: evaluating step {step} (at most {most_evaluations(left)} more)"


def _lines(found: LostBetween) -> tuple[str, ...]:
    interval = f"(95 % CI {signed_text(found.ci_low)} to {signed_text(found.ci_high)})"
    size = f"{signed_text(found.delta)} {interval}, one-sided {p_value_text(found.p_worse)}"
    counted = f"{len(found.lost)} of {found.n_common} samples lost, {found.gained} gained"
    shown = f"see `tracker compare {found.run_id}@{found.good} {found.run_id}@{found.bad}`"
    return (sentence_of(found), f"{size}; {counted}: {shown}", *remarks_on(found))
