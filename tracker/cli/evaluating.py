"""Shared by commands that evaluate: evaluation in this process, and detection of a watcher."""

from dataclasses import replace

from rich.console import Console

from eval_jobs.execute.worker.main import make_tools
from eval_jobs.host.clock import SystemClock
from eval_jobs.records.progress import progress_text
from eval_jobs.types import EvalRecord
from tracker.app.commands.once import evaluate_once
from tracker.domain.records.types import Report
from tracker.wiring.checkpoints import pin_named
from tracker.wiring.project import Project


def evaluate_now(
    project: Project, checkpoint: str, console: Console, *, run_id: str | None = None
) -> tuple[tuple[EvalRecord, Report], ...]:
    """Pin a checkpoint, evaluate it with everything that the project measures, and return records with reports.

    Args:
        project: stores the results in its history.
        checkpoint: a folder, or s3://bucket/prefix.
        console: shows the progress.
        run_id: run that it is counted to; default: the run that its location belongs to.

    Raises:
        CheckpointError: it cannot be pinned.
        StoreError: the results cannot be stored.
    """
    project.make_state_dir()
    world = project.world()
    pinned = pin_named(project.config, checkpoint, run_id)
    if run_id is not None:  # a pin of this project may belong to another run
        pinned = replace(pinned, run_id=run_id)
    tools = make_tools(project.config.run.work_dir)
    try:
        with project.pins.in_use(pinned), console.status("starting") as status:
            return evaluate_once(pinned, world, tools=tools, progress=lambda now: status.update(progress_text(now)))
    finally:
        tools.evaluator.close()
        tools.engine.close()
        world.close()


def has_watcher(project: Project) -> bool:
    """Return whether another process watches the run, and so keeps workers for it."""
    lead = project.lead()
    try:
        return not lead.take(SystemClock().now())
    finally:
        lead.release()
