"""Writes the page that shows several runs side by side."""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from dashboards.page.html import render_runs
from dashboards.page.run import report_file_name, write_page
from dashboards.views.runs import build_runs_view
from eval_jobs.errors import ConfigError
from eval_jobs.host.clock import SystemClock
from tracker.adapters.curves import TrainerCurves
from tracker.api.opening import open_project
from tracker.api.references import known_runs
from tracker.app.steps.comparing import run_to_compare
from tracker.domain.compare.runs import compare_runs

MAX_RUNS = 8
"""There is one colour and marker for each."""


def write_runs_report(config_path: Path, names: Sequence[str], output: Path | None) -> Path:
    """Write the report of at least two runs, each compared with the first, and return its absolute path.

    Raises:
        ConfigError: the configuration is wrong, a run is unknown or named twice, or there are too many.
        DiskFull, StoreError: the report could not be written, or samples no longer exist.
    """
    if len(names) > MAX_RUNS:
        raise ConfigError(f"{len(names)} runs in one report", hint=f"pass at most {MAX_RUNS} runs")
    project = open_project(config_path)
    min_coverage = project.config.to_policy().min_coverage
    runs = [run_to_compare(run, project.history, TrainerCurves()) for run in known_runs(project.history, names)]
    found = [compare_runs(runs[0], run, min_coverage=min_coverage) for run in runs[1:]]
    folder = project.config.run.state_dir / "reports"
    path = (output or folder / report_file_name(" ".join(names))).absolute()
    view = build_runs_view(found, SystemClock().now())
    write_page(render_runs(view, version=version("checkpoint-tracker")), path)
    return path
