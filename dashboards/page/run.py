"""Writes the page of a run, of several runs or of a checkpoint: selects it, reads its data, renders it."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from dashboards.data.checkpoint import CheckpointData
from dashboards.data.run import Conclusions, RunData, Training, newest_records, newest_repetitions
from dashboards.page.checkpoint import Sources, collect_checkpoint
from dashboards.page.html import render_checkpoint, render_page, render_runs
from dashboards.views.checkpoint import build_checkpoint_view
from dashboards.views.ledger import LOST_SAMPLES
from dashboards.views.measured import plans_with_counts
from dashboards.views.run import build_view
from dashboards.views.runs import build_runs_view
from dashboards.views.samples.pairs import texts_wanted
from eval_jobs.errors import ConfigError
from eval_jobs.host.clock import SystemClock
from eval_jobs.host.storage import written
from eval_jobs.types import Checkpoint, EvalRecord
from tracker.adapters.checkpoints.folder.runs import demand_outside_checkpoints
from tracker.api.opening import open_project
from tracker.api.references import choose_run, is_reference, known_runs, named_checkpoint
from tracker.app.steps.comparing import noise_of_run, run_to_compare
from tracker.app.steps.curves import curves_of
from tracker.domain.best.choice import champions_of
from tracker.domain.compare.runs import compare_runs
from tracker.domain.forgetting.ledger import run_ledger
from tracker.domain.forgetting.texts import with_texts
from tracker.domain.overview.costs import run_costs
from tracker.domain.overview.run import open_gaps, overview
from tracker.domain.records.branches import branches_of
from tracker.domain.records.losses import Measure
from tracker.domain.records.tracking import Champion
from tracker.domain.records.types import Report
from tracker.domain.sweeps.board import Board, board_of
from tracker.domain.verdicts.rewind import scores_of_newest
from tracker.ports import Sweeps
from tracker.wiring.project import Project

MAX_RUNS = 8
"""In one report: there is one colour and marker for each."""


def write_report(config_path: Path, *, named: str | None, output: Path | None, with_checkpoints: bool = False) -> Path:
    """Write the report of a run, by default the project's own, or of one checkpoint, and return its absolute path.

    Args:
        config_path: configuration of the project.
        named: a run or a checkpoint reference (`tracker.api.references`); a name that is both means the run.
        output: file to write; None: a file in the state folder.
        with_checkpoints: also write the page of every checkpoint of the run to the same folder, with links both ways.

    Raises:
        ConfigError: the configuration is wrong, or no such run or checkpoint was evaluated.
        TrackingUnreachable: the name is in MLflow's registry, which is unreachable.
        DiskFull, StoreError: the report could not be written, or samples no longer exist.
    """
    project = _project_to_write(config_path, output)
    known = tuple(sorted({*project.history.runs(), *project.history.followed_runs()}))
    if named is None or named in known or not is_reference(named):
        run_id = choose_run(known, named, own=project.config.run.name)
        return _write_run(project, run_id, output, with_checkpoints=with_checkpoints)
    if with_checkpoints:
        hint = "pass a run, or remove --checkpoints"
        raise ConfigError(f"--checkpoints requires a run, but {named} is a checkpoint", hint=hint)
    return _write_checkpoint(project, named_checkpoint(project, named), output)


def write_runs_report(config_path: Path, names: Sequence[str], output: Path | None) -> Path:
    """Write the report of at least two runs, each compared with the first, and return its absolute path.

    Raises:
        ConfigError: the configuration is wrong, a run is unknown or named twice, or there are too many.
        DiskFull, StoreError: the report could not be written, or samples no longer exist.
    """
    if len(names) > MAX_RUNS:
        raise ConfigError(f"{len(names)} runs in one report", hint=f"pass at most {MAX_RUNS} runs")
    project = _project_to_write(config_path, output)
    min_coverage = project.config.to_policy().min_coverage
    runs = [run_to_compare(run, project.history) for run in known_runs(project.history, names)]
    found = [compare_runs(runs[0], run, min_coverage=min_coverage) for run in runs[1:]]
    folder = project.config.run.state_dir / "reports"
    path = (output or folder / report_file_name(" ".join(names))).absolute()
    view = build_runs_view(found, SystemClock().now())
    write_page(render_runs(view, version=version("checkpoint-tracker")), path)
    return path


def read_run(run_id: str, sources: Sources, *, now: datetime) -> RunData:
    """Read the data of one run; samples only for the records that examples and counts need."""
    known = sources.history.records(run_id)
    records = newest_records(known)
    scored = sources.history.scores(run_id, (Measure.SCORE,))
    scores = scores_of_newest(scored, branches_of(r.plan.checkpoint for r in known))
    incidents = sources.history.incidents(run_id)
    champions = champions_of(scores, incidents, min_coverage=sources.policy.min_coverage)
    ledger = run_ledger(scores, sources.policy, incidents, details=LOST_SAMPLES)
    data = RunData(
        run_id=run_id,
        records=records,
        scores=scores,
        conclusions=_conclusions(run_id, sources, champions),
        training=_training(run_id, records, sources),
        costs=run_costs(run_id, known),
        ledger=with_texts(ledger, sources.history.record),
        repetitions=newest_repetitions(records, sources.history.calibrations(), min_effect=sources.policy.min_effect),
        unfinished=sources.queue.state().unfinished.get(run_id, 0),
        made_at=now,
    )
    wanted = {**texts_wanted(data, overview(data.conclusions.reports)), **dict.fromkeys(plans_with_counts(data))}
    found = {plan_id: sources.history.record(plan_id, names) for plan_id, names in wanted.items()}
    return replace(data, texts={plan_id: record for plan_id, record in found.items() if record is not None})


def _training(run_id: str, records: Sequence[EvalRecord], sources: Sources) -> Training:
    return Training(
        curves=curves_of(run_id, sources.history),
        phases=sources.policy.phases,
        incidents=sources.history.training_incidents(run_id),
        checkpoints=sources.saved_steps(run_id, records),
        progress=next((one for one in sources.history.progress(run_id) if one.run_id == run_id), None),
    )


def newest_boards(sweeps: Sweeps, names: Sequence[str]) -> tuple[Board, ...]:
    """Return the results of each sweep's newest run that has plans; sweeps without one are omitted."""
    boards = []
    for name in names:
        for turn in [turn for turn in sweeps.turns(name) if turn.plans][:1]:
            boards.append(board_of(turn, sweeps.results([plan.id for plan in turn.plans])))
    return tuple(boards)


def report_file_name(run_id: str) -> str:
    """Return the file name of a run's page; a changed name gets a hash, so that no two runs share one."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", run_id).lstrip(".-")[:100]
    if safe and safe == run_id:
        return f"{safe}.html"
    digest = hashlib.sha256(run_id.encode(errors="surrogatepass")).hexdigest()
    return f"{safe or 'run'}-{digest[:12]}.html"


def checkpoint_file_name(checkpoint: Checkpoint) -> str:
    """Return the file name of a checkpoint's page; other weights saved at the same step have another one."""
    return f"{report_file_name(checkpoint.run_id).removesuffix('.html')}@{checkpoint.step}-{checkpoint.digest[:8]}.html"


def pages_beside(folder: Path, records: Iterable[EvalRecord]) -> Mapping[int, str]:
    """Return the file names of the checkpoint pages that exist in a folder, by step."""
    found = {}
    for checkpoint in (record.plan.checkpoint for record in records):
        name = checkpoint_file_name(checkpoint)
        if (folder / name).is_file():
            found[checkpoint.step] = name
    return found


def write_page(html: str, path: Path) -> None:
    """Write the page as `written` does.

    Raises:
        DiskFull, StoreError: the page could not be written.
    """
    with written(path, hint="choose another file with --output", makes_folder=True) as file:
        file.write(html.encode())


def _project_to_write(config_path: Path, output: Path | None) -> Project:
    project = open_project(config_path)
    demand_outside_checkpoints([output], project.config.run.output_dir, project.config.watch.pattern)
    return project


def _sources(project: Project) -> Sources:
    return Sources(
        history=project.history,
        queue=project.queue,
        policy=project.policy,
        pinned=project.pinned_steps(),
    )


def _conclusions(run_id: str, sources: Sources, champions: tuple[Champion, ...]) -> Conclusions:
    history = sources.history
    reports = history.reports(run_id)
    return Conclusions(
        reports=reports,
        gaps=open_gaps(reports, history.gaps(run_id)),
        incidents=history.incidents(run_id),
        acceptances=history.acceptances(run_id),
        alerts=history.open_alerts(run_id),
        champions=champions,
        log=history.events(run_id, last=200),
        changes=history.series_changes(run_id),
    )


def _write_run(project: Project, run_id: str, output: Path | None, *, with_checkpoints: bool) -> Path:
    data = read_run(run_id, _sources(project), now=SystemClock().now())
    if run_id == project.config.run.name:
        data = replace(data, boards=newest_boards(project.sweep_store, [one.name for one in project.config.schedule]))
    path = (output or project.config.run.state_dir / "reports" / report_file_name(run_id)).absolute()
    if with_checkpoints:
        _write_checkpoints(project, data, path)
    view = build_view(data, pages_beside(path.parent, data.records))
    write_page(render_page(view, version=version("checkpoint-tracker")), path)
    return path


def _write_checkpoint(project: Project, report: Report, output: Path | None) -> Path:
    data = collect_checkpoint(report, _sources(project), now=SystemClock().now())
    checkpoint = data.record.plan.checkpoint
    path = (output or project.config.run.state_dir / "reports" / checkpoint_file_name(checkpoint)).absolute()
    run_page = report_file_name(checkpoint.run_id)
    if (path.parent / run_page).is_file():
        data = replace(data, run_page=run_page)
    _write_page_of(data, path)
    return path


def _write_checkpoints(project: Project, data: RunData, run_page: Path) -> None:
    """Write the page of every checkpoint that has a row in the page of the run, to the same folder."""
    sources = _sources(project)
    judged = {r.plan_id: r for r in sorted(data.conclusions.reports, key=lambda r: r.created_at)}
    of_step = {r.plan.checkpoint.step: judged[r.plan.id] for r in data.records if r.plan.id in judged}
    noise = noise_of_run(data.run_id, sources.history, sources.policy)
    for report in of_step.values():
        one = collect_checkpoint(report, sources, now=data.made_at, noise=noise)
        one = replace(one, run_page=run_page.name)
        _write_page_of(one, run_page.with_name(checkpoint_file_name(one.record.plan.checkpoint)))


def _write_page_of(data: CheckpointData, path: Path) -> None:
    write_page(render_checkpoint(build_checkpoint_view(data), version=version("checkpoint-tracker")), path)
