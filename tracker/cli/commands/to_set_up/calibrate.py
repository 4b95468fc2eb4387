"""`tracker calibrate [CHECKPOINT]`: evaluate one checkpoint twice to measure run-to-run noise."""

from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console

from eval_jobs.errors import ConfigError, ExitCode, Incomparable, StoreError
from eval_jobs.host.clock import SystemClock
from eval_jobs.ports import Launcher
from eval_jobs.queue_types import QueueState
from eval_jobs.records.progress import progress_text
from eval_jobs.records.run_scope import is_of
from eval_jobs.types import Checkpoint, EvalPlan
from tracker.api.opening import open_project
from tracker.api.references import is_reference, named_checkpoint
from tracker.app.commands.calibrate import CalibrationEstimate, calibration_estimate, next_calibration, run_calibration
from tracker.app.steps.calibrating import CalibrationContext
from tracker.cli import interrupts
from tracker.cli.evaluating import local_workers
from tracker.cli.json_output import json_option, print_json
from tracker.cli.options import config_option, workers_option
from tracker.cli.tables.calibration import calibration_table, repetitions
from tracker.cli.tables.progress_bars import LiveProgress
from tracker.cli.tables.render import print_line
from tracker.domain.best.retention import identity_of
from tracker.domain.checkpoints.buckets import SCHEME
from tracker.domain.records.calibration import Calibration, Fitness, Repetition
from tracker.domain.records.display import duration_text, names_text
from tracker.wiring.checkpoints import pin_named
from tracker.wiring.programs import serve_of
from tracker.wiring.project import Project


@dataclass(frozen=True, kw_only=True)
class CalibrationView:
    """Result of `tracker calibrate`."""

    calibration: Calibration
    benchmarks: tuple[Repetition, ...]


@click.command("calibrate")
@click.argument("checkpoint", required=False, default="latest")
@config_option
@json_option(CalibrationView)
@workers_option
def command(*, checkpoint: str, config_path: Path, as_json: bool, workers: int) -> int:
    """Measure run-to-run noise by evaluating CHECKPOINT twice with the whole suite.

    CHECKPOINT is a reference as in `tracker compare` (default: latest), a folder or s3://bucket/prefix. If
    `tracker watch` is running, its workers evaluate it. After Ctrl-C, the same command or
    `tracker watch` continues.

    Exit code 0: measured; 1: the noise of a benchmark exceeds policy.min_effect; 3: not enough scores; 4: failure.
    """
    project = open_project(config_path)
    project.make_state_dir()
    console = Console(stderr=as_json)
    chosen = _chosen(project, checkpoint)
    plan = next_calibration(project.history, chosen, project.suite(), serve_of(project.config))
    context = CalibrationContext(
        queue=project.queue,
        calibrations=project.history,
        policy=project.config.to_policy(),
        dispatcher=project.dispatcher,
    )
    is_watched = project.lead().is_led()
    _say_what_comes(console, plan, project, is_watched=is_watched)
    with project.pins.in_use(chosen):
        calibration = _carried_out(
            plan, context, local_workers(project, 0 if is_watched else workers, config_path), console
        )
    project.dispatcher.alerting.close()
    min_effect = context.policy.min_effect
    if as_json:
        view = CalibrationView(calibration=calibration, benchmarks=repetitions(calibration, min_effect))
        print_json(view)
    console.print(calibration_table(calibration, min_effect=min_effect))
    return _exit_code(calibration, min_effect)


def _chosen(project: Project, name: str) -> Checkpoint:
    if not is_reference(name) and _is_place(name):
        return pin_named(project.config, name)
    if not project.history.runs() and "@" not in name:
        raise ConfigError(
            "no results yet", hint="pass the folder of a checkpoint, or evaluate one with `tracker watch`"
        )
    report = named_checkpoint(project, name)
    own = project.config.run.name
    if not is_of(report.run_id, own):
        raise ConfigError(
            f"{report.run_id} is not the run of this tracker.toml ({own})",
            hint="use --config with the tracker.toml of that run, or pass the folder of the checkpoint",
        )
    record = project.history.bare_record(report.plan_id)
    if record is None:
        raise StoreError(f"results of step {report.step} not found", hint="restore the database from a backup")
    return _held(project, record.plan.checkpoint)


def _is_place(name: str) -> bool:
    return name.startswith(SCHEME) or "/" in name or Path(name).is_dir()


def _held(project: Project, wanted: Checkpoint) -> Checkpoint:
    # Matched by identity, not by path: the project may have been moved since.
    for pin in project.pins.held():
        if identity_of(pin.checkpoint) == identity_of(wanted):
            return pin.checkpoint
    return pin_named(project.config, wanted.uri)


def _say_what_comes(console: Console, plan: EvalPlan, project: Project, *, is_watched: bool) -> None:
    checkpoint, names = plan.checkpoint, names_text([b.name for b in plan.suite.benchmarks])
    print_line(console, "calibrate", f"step {checkpoint.step} of {checkpoint.run_id}: {names}, evaluated twice")
    records = project.history.records(checkpoint.run_id)
    print_line(console, "cost", _estimate_text(calibration_estimate(plan, records, project.history.record)))
    if is_watched:
        print_line(console, "workers", "evaluated by the workers of the running `tracker watch`")
    else:
        print_line(console, "note", "Ctrl-C stops; run the same command again to continue")


def _estimate_text(expected: CalibrationEstimate | None) -> str:
    if expected is None:
        return "two evaluations of the whole suite; duration unknown (no earlier evaluation)"
    total = duration_text(expected.load_s + expected.scoring_s)
    parts = f"loading {duration_text(expected.load_s)}, scoring {duration_text(expected.scoring_s)}"
    return f"{expected.answers:,} answers in about {total} ({parts}), estimated from step {expected.step}"


def _carried_out(plan: EvalPlan, context: CalibrationContext, local: Launcher, console: Console) -> Calibration:
    try:
        with LiveProgress(console, "waiting for a worker", SystemClock().monotonic_s) as live:
            title = f"step {plan.checkpoint.step}"

            def meanwhile(state: QueueState) -> None:
                interrupts.check()
                local.check()
                own = [(title, one.progress) for one in state.running if one.plan.id == plan.id]
                live.show(_progress(plan, state), own)

            return run_calibration(plan, context, clock=SystemClock(), meanwhile=meanwhile)
    except KeyboardInterrupt:
        print_line(
            console,
            "stopped",
            "completed answers are kept; run `tracker calibrate` again, or `tracker watch`, to continue",
        )
        raise
    finally:
        local.stop()


def _progress(plan: EvalPlan, state: QueueState) -> str:
    for running in state.running:
        if running.plan.id == plan.id:
            return progress_text(running.progress) or "starting"
    if not state.running:
        return "waiting for a worker"
    busy = names_text([f"step {running.plan.checkpoint.step}" for running in state.running])
    return f"waiting for a worker (busy with {busy})"


def _exit_code(calibration: Calibration, min_effect: float) -> int:
    codes = {failure.code for failure in calibration.failures}
    if codes - {Incomparable.code}:
        return ExitCode.BROKEN
    if any(one.fitness is Fitness.UNFIT for one in repetitions(calibration, min_effect)):
        return ExitCode.REGRESSION
    if codes:
        return ExitCode.UNKNOWN
    return ExitCode.OK
