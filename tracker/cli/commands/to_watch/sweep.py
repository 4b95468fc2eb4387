"""`tracker sweep run|list|show`: run a sweep, list all sweeps, show results."""

import difflib
from pathlib import Path

import click
from rich.console import Console

from eval_jobs.errors import ConfigError, ExitCode, TrackerError
from eval_jobs.host.clock import SystemClock
from eval_jobs.ports import Launcher
from eval_jobs.records.progress import progress_text
from eval_jobs.types import EvalRecord
from tracker.api.opening import open_project
from tracker.app.steps import sweeps
from tracker.cli import interrupts
from tracker.cli.evaluating import LOOK_S, check_ready, local_workers
from tracker.cli.json_output import json_option, print_json
from tracker.cli.options import config_option, workers_option
from tracker.cli.tables.progress_bars import LiveProgress, Titled
from tracker.cli.tables.render import print_line
from tracker.cli.tables.sweep import ListedSweep, board_lines, list_table, listed, turn_text
from tracker.domain.overview.ending import sweep_ending
from tracker.domain.sweeps.board import Board, board_of, missing_results
from tracker.domain.sweeps.estimate import estimate_of, estimate_text
from tracker.domain.sweeps.matrix import plans_of
from tracker.domain.sweeps.types import OPEN, Sweep, Turn, TurnState
from tracker.wiring.programs import check_endpoint
from tracker.wiring.project import Project


@click.group("sweep")
def command() -> None:
    """Run benchmark sweeps over checkpoints, endpoints and settings, on a schedule or on demand.

    A sweep produces tables of scores and latency, separate from the results of a run.
    """


@command.command("run")
@click.argument("name")
@config_option
@click.option("--dry-run", is_flag=True, help="Show the evaluations and their cost, without running them.")
@workers_option
@json_option(Board)
def run(*, name: str, config_path: Path, dry_run: bool, workers: int, as_json: bool) -> int:
    """Run the sweep NAME now and show its results.

    If `tracker watch` is running, its workers evaluate the sweep after pending checkpoints. After Ctrl-C, the
    same command or `tracker watch` continues.

    Exit code 0: everything was measured and delivered; 2: bad settings, or above max_evaluations; 3: a result is
    missing; 4: a result is not delivered.
    """
    project = open_project(config_path)
    project.make_state_dir()
    service, console, clock = project.sweep_service(), Console(stderr=True), SystemClock()
    sweep = _sweep(service, name)
    _say_what_comes(console, service, sweep)
    _say_who_is_away(console, project, sweep)
    if dry_run:
        return ExitCode.OK
    is_watched = project.lead().is_led()
    check_ready(project, has_engine=workers > 0 and not is_watched)
    turn = _open_turn(service, name) or sweeps.begin_by_hand(service, sweep, clock.now())
    if is_watched:
        print_line(console, "workers", "evaluated by `tracker watch`")
    else:
        print_line(console, "note", "Ctrl-C stops; run the same command again to continue")
    turn = _carried_out(turn, service, local_workers(project, 0 if is_watched else workers, config_path), console)
    unsent = project.tracking.flush()
    board = board_of(turn, service.store.results([plan.id for plan in turn.plans]))
    if as_json:
        print_json(board)
    elif turn.plans:
        _print(Console(), board)
    else:
        print_line(Console(), str(turn.state), turn.note or turn_text(turn, 0))
    return _ended(console, board, unsent)


@command.command("list")
@config_option
@json_option(tuple[ListedSweep, ...])
def list_sweeps(*, config_path: Path, as_json: bool) -> None:
    """List all sweeps with their next and last sweep run."""
    project, console, now = open_project(config_path), Console(), SystemClock().now()
    store, found = project.sweep_store, []
    for sweep in project.sweeps().values():
        last = next(iter(store.turns(sweep.name)), None)
        finished = 0 if last is None else len(store.answered([plan.id for plan in last.plans]))
        found.append(listed(sweep, last, finished, now))
    if as_json:
        print_json(found)
    elif not found:
        console.print('no [[schedule]] in tracker.toml (see "Run sweeps" in the documentation)', markup=False)
    else:
        console.print(list_table(found))


@command.command("show")
@click.argument("name")
@config_option
@json_option(Board)
def show(*, name: str, config_path: Path, as_json: bool) -> None:
    """Show the newest results of the sweep NAME: scores with 95 % CI, and latency by load."""
    project = open_project(config_path)
    turns = project.sweep_store.turns(name)
    turn = next((t for t in turns if t.plans), None)
    if turn is None:
        raise ConfigError(
            f"no results of sweep {name} yet", hint=f"run `tracker sweep run {name!r}`; see `tracker sweep list`"
        )
    board = board_of(turn, project.sweep_store.results([plan.id for plan in turn.plans]))
    if as_json:
        print_json(board)
        return
    _print(Console(), board)


def _sweep(service: sweeps.SweepService, name: str) -> Sweep:
    if name in service.sweeps:
        return service.sweeps[name]
    close = difflib.get_close_matches(name, service.sweeps, n=1)
    known = (
        f"did you mean {close[0]}?" if close else f"known: {', '.join(service.sweeps) or 'none (add a [[schedule]])'}"
    )
    raise ConfigError(f"no sweep named {name!r}", hint=known)


def _open_turn(service: sweeps.SweepService, name: str) -> Turn | None:
    return next((turn for turn in service.store.open_turns() if turn.sweep == name and turn.by_hand), None)


def _say_what_comes(console: Console, service: sweeps.SweepService, sweep: Sweep) -> None:
    choice = sweeps.select_checkpoints(service, sweep)
    sweeps.check_size(sweep, len(choice.checkpoints))
    plans = plans_of(sweep, choice.checkpoints, run=service.run, due_at=SystemClock().now())
    targets = dict.fromkeys(plan.sweep.target for plan in plans if plan.sweep is not None)
    print_line(console, "sweep", f"{sweep.name}: {', '.join(targets) or 'no targets'}")
    for missing in choice.missing:
        print_line(console, "missing", missing)
    if plans:
        asked = service.store.answered([plan.id for plan in plans])
        own = sweeps.own_answers(service, plans)
        print_line(console, "cost", estimate_text(estimate_of(plans, _records(service), asked, own)))


def _say_who_is_away(console: Console, project: Project, sweep: Sweep) -> None:
    """Print the endpoints that do not respond; a worker, perhaps on another machine, still tries each three times."""
    for other in sweep.endpoints:
        try:
            check_endpoint(other, project.config.run.name, SystemClock().now())
        except TrackerError as error:
            print_line(console, "offline", f"{other.name}: {error.message} (hint: {error.hint}); workers still try it")


def _records(service: sweeps.SweepService) -> list[EvalRecord]:
    """Return records to estimate durations from: those of the run, and of every sweep's newest finished run."""
    records = list(service.records.records(service.run))
    for name in service.sweeps:
        for turn in service.store.turns(name):
            if turn.state is TurnState.DONE and turn.plans:
                records += service.store.results([plan.id for plan in turn.plans]).values()
                break
    return records


def _carried_out(turn: Turn, service: sweeps.SweepService, local: Launcher, console: Console) -> Turn:
    """Wait until the sweep run has ended, and return it; any worker may evaluate its plans."""
    clock = SystemClock()
    try:
        with LiveProgress(console, "waiting for a worker", clock.monotonic_s) as live:
            while turn.state in OPEN:
                interrupts.check()
                local.check()
                for record in service.queue.finished():
                    if record.plan.sweep is not None:  # if a watcher runs, either process may take it first
                        sweeps.take_sweep_result(record, service)
                sweeps.carry_on(service, clock.now())
                turn = next(t for t in service.store.turns(turn.sweep) if t.due_at == turn.due_at)
                text, running = _progress(turn, service)
                live.show(text, running)
                clock.sleep(LOOK_S)
    finally:
        local.stop()
    return turn


def _progress(turn: Turn, service: sweeps.SweepService) -> tuple[str, list[Titled]]:
    """Return how many plans of a sweep run are evaluated, and those that run now, by target."""
    if turn.state is TurnState.DUE:
        return "waiting for another sweep run to finish", []
    ids = [plan.id for plan in turn.plans]
    own = [one for one in service.queue.state().running if one.plan.id in ids]
    running = [(one.plan.sweep.target, one.progress) for one in own if one.plan.sweep is not None]
    text = f"evaluations: {len(service.store.answered(ids))} of {len(ids)}"
    return " | ".join((text, *(f"{target}: {progress_text(now)}" for target, now in running))), running


def _ended(console: Console, board: Board, unsent: int) -> int:
    if board.state is TurnState.REFUSED:
        return ExitCode.USAGE
    note = board.note
    if not (note or board.rows or board.curves):
        note = "nothing evaluated"
    end = sweep_ending(missing=missing_results(board), unsent=unsent, note=note)
    if end.code:
        print_line(console, "done", end.line, style="red")
    return end.code


def _print(console: Console, board: Board) -> None:
    for line in board_lines(board):
        console.print(line)
