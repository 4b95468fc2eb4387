"""Output of `tracker watch`: one line per event, and in a terminal a live line with the current state."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.text import Text

from eval_jobs.queue_types import QueueState
from eval_jobs.records.progress import progress_text
from eval_jobs.types import Checkpoint, EngineKind, EvalPlan
from tracker.app.world import MeasurementPlan, Tick
from tracker.cli.tables.calibration import repetitions
from tracker.cli.tables.progress_bars import LiveProgress
from tracker.cli.tables.render import print_line, report_lines, unfit_lines
from tracker.cli.tables.sweep import turn_change_text
from tracker.config import Config
from tracker.domain.calibration.repetition_text import repetitions_text
from tracker.domain.checkpoints.names import unit_of
from tracker.domain.checkpoints.watching import Leader
from tracker.domain.log.events import event_text
from tracker.domain.overview.ending import Ending
from tracker.domain.overview.run import skipped_text
from tracker.domain.records.calibration import Calibration
from tracker.domain.records.display import ONCE, count_text, duration_text, names_text, one_line, pending_text
from tracker.domain.records.types import Report

log = logging.getLogger(__name__)

_MAX_WAITING = 5
"""Maximum pending steps named in the live line."""


class WatchDisplay:
    """Prints events as they occur; redirected output gets the same lines without the live one."""

    def __init__(self, console: Console, config: Config, monotonic_s: Callable[[], float]) -> None:
        self._console = console
        self._config = config
        self._leader: Leader | None = None
        self.unsent = 0
        """Results that wait for MLflow, as of the last pass."""
        self.evaluation_s: float | None = None
        """Usual time of one evaluation with the present settings; None: unknown, and no time left is shown."""
        self._known: set[Checkpoint] = set()
        self._is_paused = False
        self._progress = LiveProgress(console, "scanning for checkpoints", monotonic_s)

    def __enter__(self) -> Self:
        self._progress.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.__exit__(*error)

    def stands_by(self, leader: Leader | None) -> None:
        """Print once which process leads, and that this process is its standby."""
        run = self._config.run.name
        self._progress.show(f"standby for run {run}", is_busy=False)
        if leader is not None and leader != self._leader:
            self.event("standby", f"{leader.sentence(run)}; this process takes over when it stops")
            self._leader = leader

    def has_no_worker(self, config_path: Path) -> None:
        """Print how to start a worker, because this process starts none."""
        folder = self._config.run.state_dir
        self.event("workers", f"none here; run `tracker worker --config {config_path}` on a machine that has {folder}")

    def welcome(self, config: Config, measurement: MeasurementPlan) -> None:
        """Print what is watched and how it is measured; from now on with these settings."""
        self._config = config
        names = ", ".join(b.name for suite in measurement.suites for b in suite.benchmarks)
        pattern = f" for {config.watch.pattern}" if config.watch.pattern else ""
        self.event("watching", f"{config.run.output_dir}{pattern}")
        self.event("scoring", f"{names} with {measurement.serve.engine_name}")
        if measurement.serve.trust_remote_code and measurement.serve.engine is not EngineKind.REMOTE:
            log.warning("executing Python code from checkpoints (serve.trust_remote_code)", extra=ONCE)
        if config.watch.allow_pickle:
            log.warning("unpickling weights, which can execute code (watch.allow_pickle)", extra=ONCE)
        self.event("state", f"{config.run.state_dir} (Ctrl-C stops; the next start continues)")

    def event(self, word: str, text: str, style: str = "dim") -> None:
        """Print one event."""
        print_line(self._console, word, text, style)

    def show(self, passed: Tick, state: QueueState) -> None:
        """Print what is new in this pass and update the live line."""
        self._found(passed)
        for run_id in dict.fromkeys(gap.run_id for gap in passed.skipped):
            gaps = [gap for gap in passed.skipped if gap.run_id == run_id]
            self.event("skipped", f"{self._of_run(run_id)}{skipped_text(gaps)}", style="yellow")
        for report in passed.reports:
            self._judged(report, state)
        for change in passed.changes:
            at = self._at(change.run_id, change.step or 0)
            self.event("changed", f"{at}  {event_text(change)}", style="")
        for calibration in passed.calibrations:
            self._calibrated(calibration)
        for turn in passed.turns:
            self.event("sweep", f"{turn.sweep}  {turn_change_text(turn)}")
        self.unsent = passed.unsent
        self._pauses(_why_waiting(state), is_busy=bool(state.running))
        running = [(self._of_plan(one.plan), one.progress) for one in state.running]
        self._progress.show(self._status(passed, state), running, is_busy=bool(running))

    def farewell(self, end: Ending) -> None:
        """Print what was done, and what to do if something is left."""
        self.event("done", end.line, style="red" if end.code else "dim")

    def _pauses(self, why: str, *, is_busy: bool) -> None:
        """Print once that workers wait although plans are pending; the live line always shows it."""
        if why and not self._is_paused and not is_busy:
            self.event("paused", why)
        # When a worker checks again, it holds the plan for a moment: that is not the end of the pause.
        self._is_paused = bool(why) or (self._is_paused and not is_busy)

    def _calibrated(self, calibration: Calibration) -> None:
        """Print the result of `tracker calibrate`, whose plans this watcher's workers evaluate."""
        found = repetitions(calibration, self._config.policy.min_effect)
        failed = [failure.benchmark for failure in calibration.failures]
        notes = (repetitions_text(found), f"no result: {names_text(failed)}" if failed else "")
        self.event("noise", f"{self._of_plan(calibration.plan)}  {'; '.join(text for text in notes if text)}")
        for line in unfit_lines(found):
            self._console.print(Text.assemble(" " * 10, line), soft_wrap=True)

    def _at(self, run_id: str, step: int) -> str:
        return f"{self._of_run(run_id)}step {step}"

    def _of_plan(self, plan: EvalPlan) -> str:
        return self._at(plan.checkpoint.run_id, plan.checkpoint.step)

    def _of_run(self, run_id: str) -> str:
        return "" if run_id == self._config.run.name else f"{one_line(run_id)} "

    def _judged(self, report: Report, state: QueueState) -> None:
        """Print the verdicts on a checkpoint, and the earlier ones that may still change them."""
        # A terminal wraps; a file keeps one line for each verdict.
        lines = report_lines(report, self._at(report.run_id, report.step))
        self._console.print(*lines, sep="\n", soft_wrap=not self._console.is_terminal)
        open_steps = {one.step for one in state.waiting if one.run_id == report.run_id}
        running = [one.plan.checkpoint for one in state.running]
        open_steps.update(one.step for one in running if one.run_id == report.run_id)
        if earlier := sorted(step for step in open_steps if step < report.step):
            self.event("", f"provisional: {pending_text(earlier)}")

    def _found(self, passed: Tick) -> None:
        for checkpoint in passed.checkpoints:
            if checkpoint in self._known:
                continue
            self._known.add(checkpoint)
            unit = unit_of(checkpoint.source_uri, checkpoint.step)
            at = f"{self._of_run(checkpoint.run_id)}{unit} {checkpoint.step}"
            self.event("found", f"{at}  {checkpoint.source_uri}")
            if checkpoint in passed.branches:
                at = self._at(checkpoint.run_id, checkpoint.step)
                self.event("restart", f"training began again before {at}: a new branch", style="yellow")
        for gap in passed.gaps:
            self.event("gap", f"{self._at(gap.run_id, gap.step)}  {gap.message} (hint: {gap.hint})", style="red")

    def _status(self, passed: Tick, state: QueueState) -> str:
        parts = []
        for running in state.running:
            parts.append(f"{self._of_plan(running.plan)}: {progress_text(running.progress) or 'starting'}")
        if state.waiting:
            parts.append(self._waiting(state))
        parts += self._time_left(state)
        if passed.unsent:
            parts.append(f"{count_text(passed.unsent, 'result')} pending for MLflow")
        if passed.rejected:
            parts.append(f"{count_text(passed.rejected, 'result')} rejected by MLflow (see `tracker alerts list`)")
        if passed.set_aside:
            parts.append(f"{passed.set_aside} set aside after an error (see the log)")
        if passed.pending_alerts:
            parts.append(f"{count_text(passed.pending_alerts, 'alert')} pending")
        return " | ".join(parts) or "scanning for checkpoints"

    def _waiting(self, state: QueueState) -> str:
        first = state.waiting[:_MAX_WAITING]
        names = [str(one.step) if not self._of_run(one.run_id) else self._at(one.run_id, one.step) for one in first]
        text = f"pending steps: {', '.join(names)}"
        if more := state.counts["waiting"] - len(first):
            text += f" and {more} more"
        if why := _why_waiting(state):
            return f"{text}; {why}"
        return text

    def _time_left(self, state: QueueState) -> tuple[str, ...]:
        """Return about how long the pending evaluations take; (): unknown, as for sweeps and calibrations."""
        if self.evaluation_s is None or not state.running or not _is_of_runs(state):
            return ()
        left = float(state.counts["waiting"] + len(state.running))
        for one in state.running:
            if one.progress is not None and one.progress.total:
                left -= (one.progress.answered or 0) / one.progress.total
        return (f"about {duration_text(self.evaluation_s * left / len(state.running))} left",)


def _is_of_runs(state: QueueState) -> bool:
    for one in state.running:
        if one.plan.sweep is not None or one.plan.calibration:
            return False
    return not any(one.is_sweep for one in state.waiting)


def _why_waiting(state: QueueState) -> str:
    return next((one.note for one in state.waiting if one.note), "")
