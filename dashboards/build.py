"""From a project to a file: chooses the run, reads what its report needs, writes the page.

path = write_report(config_path, run=None, output=None)
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from dashboards.ledger import LOST_SAMPLES
from dashboards.lost import plans_with_texts
from dashboards.measured import plans_with_counts
from dashboards.page import render_page
from dashboards.run_data import RunData, newest_records, newest_repetitions
from dashboards.view import build_view
from eval_jobs.errors import DiskFull, StoreError
from eval_jobs.execute.clock import SystemClock
from eval_jobs.ports import Queue
from tracker.adapters.curves import TrainerCurves
from tracker.cli.options import choose_run, open_project
from tracker.domain.branches import branches_of
from tracker.domain.costs import run_costs
from tracker.domain.forgetting.ledger import run_ledger
from tracker.domain.forgetting.texts import with_texts
from tracker.domain.overview import open_gaps, overview
from tracker.domain.rewind import scores_of_newest
from tracker.domain.sweeps.board import Board, board_of
from tracker.domain.types import Policy
from tracker.ports import CurveReader, History, Sweeps


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where a report's facts come from."""

    history: History
    queue: Queue
    curves: CurveReader
    policy: Policy


def write_report(config_path: Path, *, run: str | None, output: Path | None) -> Path:
    """Write the report of `run`, by default the project's own, and return its absolute path.

    Raises:
        ConfigError: the configuration is wrong, or no such run was evaluated.
        DiskFull, StoreError: the report could not be written.
    """
    project = open_project(config_path)
    run_id = choose_run(project.history.runs(), run, own=project.config.run.name)
    sources = Sources(
        history=project.history,
        queue=project.queue,
        curves=TrainerCurves(),
        policy=project.config.to_policy(),
    )
    data = collect(run_id, sources, now=SystemClock().now())
    if run_id == project.config.run.name:
        data = replace(data, boards=newest_boards(project.sweep_store, [one.name for one in project.config.schedule]))
    path = (output or project.state_dir / "reports" / file_name(run_id)).absolute()
    write_page(render_page(build_view(data), version=version("checkpoint-tracker")), path)
    return path


def collect(run_id: str, sources: Sources, *, now: datetime) -> RunData:
    """Read everything about one run; texts of samples only where examples show them."""
    known, reports = sources.history.records(run_id), sources.history.reports(run_id)
    records = newest_records(known)
    scores = scores_of_newest(sources.history.scores(run_id), branches_of(r.plan.checkpoint for r in known))
    data = RunData(
        run_id=run_id,
        records=records,
        scores=scores,
        reports=reports,
        episodes=sources.history.episodes(run_id),
        acceptances=sources.history.acceptances(run_id),
        gaps=open_gaps(reports, sources.history.gaps(run_id)),
        # The newest checkpoint's file holds the whole curve up to it.
        curves=sources.curves.read(records[-1].plan.checkpoint) if records else (),
        phases=sources.policy.phases,
        costs=run_costs(run_id, known),
        ledger=with_texts(run_ledger(scores, sources.policy, details=LOST_SAMPLES), sources.history.record),
        repetitions=newest_repetitions(records, sources.history.calibrations(), min_effect=sources.policy.min_effect),
        unfinished=sources.queue.state().unfinished.get(run_id, 0),
        made_at=now,
    )
    wanted = dict.fromkeys((*plans_with_texts(data, overview(data.reports)), *plans_with_counts(data)))
    found = {plan_id: sources.history.record(plan_id) for plan_id in wanted}
    return replace(data, texts={plan_id: record for plan_id, record in found.items() if record is not None})


def newest_boards(sweeps: Sweeps, names: Sequence[str]) -> tuple[Board, ...]:
    """Return what came of the newest turn of each of these sweeps; one that never asked anything is left out."""
    newest = [next((turn for turn in sweeps.turns(name) if turn.plans), None) for name in names]
    return tuple(board_of(t, sweeps.results([plan.id for plan in t.plans])) for t in newest if t is not None)


def file_name(run_id: str) -> str:
    """Return a file name for a run; a name that had to be changed carries a hash, so that no two runs share one."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", run_id).lstrip(".-")[:100]
    if safe and safe == run_id:
        return f"{safe}.html"
    digest = hashlib.sha256(run_id.encode(errors="surrogatepass")).hexdigest()
    return f"{safe or 'run'}-{digest[:12]}.html"


def write_page(html: str, path: Path) -> None:
    """Write the page; a reader never sees half of it.

    Raises:
        DiskFull, StoreError: it could not be written.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(html, encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        kind = DiskFull if error.errno == errno.ENOSPC else StoreError
        raise kind(
            f"the report {path} cannot be written: {error.strerror}", hint="choose another place with --output"
        ) from error
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
