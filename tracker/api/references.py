"""References to evaluated checkpoints and runs.

STEP, STEP:DIGEST, latest, best, best:BENCHMARK       of the run of tracker.toml
RUN@STEP, RUN@latest, ...                             of another run
models:/NAME@ALIAS, models:/NAME/VERSION              from MLflow's registry
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from eval_jobs.errors import ConfigError
from tracker.domain.overview.run import overview
from tracker.domain.records.types import Report
from tracker.domain.sweeps.selectors import OF_BENCHMARK, REGISTRY
from tracker.ports import History, JudgedRecordStore, RecordStore

if TYPE_CHECKING:
    from tracker.wiring.project import Project

BEST = "best"

_PLACE = re.compile(r"(?:(?P<run>.+)@)?(?P<place>latest|best|\d+(?::[\w-]*)?)")
_SHOWN = 20
"""Maximum steps listed in a hint."""
HOW_TO_NAME = "use STEP, RUN@STEP, latest, best, best:BENCHMARK or models:/NAME@ALIAS"

Outlines = Callable[[str], tuple[Report, ...]]


def is_reference(name: str) -> bool:
    """Return whether `name` can only be a reference to an evaluated checkpoint, and never a folder."""
    return any((name.startswith(REGISTRY), OF_BENCHMARK.fullmatch(name), _PLACE.fullmatch(name)))


def known_run(history: RecordStore, run: str) -> str:
    """Return the run of the history with this name, or with this last part of its name if only one has it.

    Raises:
        ConfigError: there is none.
    """
    return named_run(history.runs(), run)


def known_runs(history: RecordStore, runs: Sequence[str]) -> tuple[str, ...]:
    """Return the runs of the history with these names.

    Raises:
        ConfigError: one is unknown, or two are the same.
    """
    known = tuple(known_run(history, run) for run in runs)
    if len(set(known)) < len(known):
        raise ConfigError("a run cannot be compared with itself", hint="pass the names of different runs")
    return known


def named_checkpoint(project: Project, name: str) -> Report:
    """Return the newest report of an evaluated checkpoint; it may lack evidence.

    If a step was saved again with other weights, the newest weights are used, unless the name ends with a digest.

    Raises:
        ConfigError: the name is invalid, or no evaluated checkpoint has it.
        TrackingUnreachable: the name is in MLflow's registry, which is unreachable.
    """
    return named_checkpoints(project, (name,))[0]


def named_checkpoints(project: Project, names: Sequence[str]) -> tuple[Report, ...]:
    """Return `named_checkpoint` of each name; the reports of a run are read only once."""
    outlines = cache(project.history.outlines)
    found = []
    for name in names:
        if name.startswith(REGISTRY):
            found.append(_registered(project, name, outlines))
        else:
            found.append(_checkpoint(project.history, name, project.config.run.name, outlines))
    return tuple(found)


def checkpoints_in(history: History, names: Sequence[str], *, own: str) -> tuple[Report, ...]:
    """Return `named_checkpoint` of each name in a history without MLflow; `own`: run of STEP alone, empty: unknown.

    Raises:
        ConfigError: a name is invalid or in MLflow's registry, or no evaluated checkpoint has it.
    """
    outlines = cache(history.outlines)
    for name in names:
        if name.startswith(REGISTRY):
            raise ConfigError(f"cannot look up {name} in MLflow here", hint="use RUN@STEP")
    return tuple(_checkpoint(history, name, own, outlines) for name in names)


def choose_run(known: Sequence[str], named: str | None, *, own: str) -> str:
    """Return the named run, else the project's own, else the only one.

    Raises:
        ConfigError: there is none, the named one is unknown, or there are several to choose from.
    """
    if not known:
        raise ConfigError("no evaluated checkpoints yet", hint="evaluate checkpoints with `tracker watch`")
    if named is not None:
        return named_run(known, named)
    if own in known:
        return own
    if len(known) == 1:
        return known[0]
    raise ConfigError("missing RUN: the project has several runs", hint=f"pass one of them: {', '.join(known)}")


def _checkpoint(history: JudgedRecordStore, name: str, default_run: str, outlines: Outlines) -> Report:
    if of_benchmark := OF_BENCHMARK.fullmatch(name):
        run = _run_of(history, of_benchmark["run"], default_run)
        return _best(history, run, of_benchmark["benchmark"], outlines)
    match = _PLACE.fullmatch(name)
    if match is None:
        raise ConfigError(f"invalid checkpoint reference {name!r}", hint=HOW_TO_NAME)
    run, place = _run_of(history, match["run"], default_run), match["place"]
    if place == BEST:
        return _best(history, run, None, outlines)
    return _at(run, place, outlines(run))


def _run_of(history: RecordStore, named: str | None, own: str) -> str:
    """Return the named run, else the project's own: itself, or the only one in a sub-folder of its output folder."""
    if named:
        return known_run(history, named)
    if not own:
        raise ConfigError(
            "missing run of the checkpoint", hint=f"use RUN@STEP, or choose one run; {_hint(history.runs())}"
        )
    below = [run for run in history.runs() if run.startswith(f"{own}/")]
    if not below or own in history.runs():
        return known_run(history, own)
    if len(below) > 1:
        hint = f"name the run of a checkpoint, such as {below[0]}@latest; runs: {', '.join(below)}"
        raise ConfigError(f"{own} has several runs", hint=hint)
    return below[0]


def _at(run: str, place: str, reports: Sequence[Report]) -> Report:
    step, _, digest = place.partition(":")
    for report in _newest_first(reports):
        if (step == "latest" or int(step) == report.step) and report.checkpoint.digest.startswith(digest):
            return report
    known = _steps_text({report.step for report in reports})
    raise ConfigError(f"no evaluated checkpoint {place} in run {run}", hint=f"evaluated steps: {known}")


def _steps_text(steps: Iterable[int]) -> str:
    ordered = sorted(steps)
    known = ", ".join(map(str, ordered[-_SHOWN:])) or "none yet"
    if len(ordered) > _SHOWN:
        return f"\u2026, {known}"
    return known


def _best(history: JudgedRecordStore, run: str, benchmark: str | None, outlines: Outlines) -> Report:
    from tracker.app.steps.best_of_run import best_of_run, newest_scores  # here: the statistics are slow to import

    best = best_of_run(run, history, benchmark)
    if best is None:
        measured = ", ".join(newest_scores(run, history).benchmarks()) or "none yet"
        what = "all benchmarks of its suite" if benchmark is None else f"{benchmark} (evaluated in full)"
        raise ConfigError(
            f"no checkpoint of run {run} has a score for {what}", hint=f"benchmarks with scores: {measured}"
        )
    step, digest = best.checkpoint.step, best.checkpoint.digest
    same = [r for r in _newest_first(outlines(run)) if (r.step, r.checkpoint.digest) == (step, digest)]
    if not same:  # recorded a moment ago
        raise ConfigError(f"step {step} of run {run} has no verdict yet", hint="retry in a moment")
    same.sort(key=lambda report: report.plan_id != best.plan.id)
    return same[0]


def _registered(project: Project, name: str, outlines: Outlines) -> Report:
    if not project.config.tracking.enabled:
        hint = "use RUN@STEP, or set tracking.enabled = true"
        raise ConfigError(f"cannot look up {name}: tracking.enabled is false", hint=hint)
    found = project.mlflow.registered(name)
    # The same weights may be in several runs, such as the initial model of all of them.
    for run in sorted(project.history.runs(), key=lambda run: (run != found.run_id, run)):
        checkpoints = {record.plan.id: record.plan.checkpoint for record in project.history.records(run)}
        plans = {key for key, c in checkpoints.items() if (c.step, c.digest) == (found.step, found.digest)}
        same = [report for report in _newest_first(outlines(run)) if report.plan_id in plans]
        if same:
            return same[0]
    what = f"{name} is step {found.step} of a run outside this project's history"
    raise ConfigError(what, hint=_hint(project.history.runs()))


def _newest_first(reports: Sequence[Report]) -> list[Report]:
    left = {checkpoint.digest for checkpoint, _ in overview(reports).left}
    return sorted(reports, key=lambda r: (r.checkpoint.digest not in left, r.step, r.created_at), reverse=True)


def named_run(known: Sequence[str], name: str) -> str:
    """Return the one of `known` with this name, or with this last part of its name if only one has it.

    Raises:
        ConfigError: there is none.
    """
    if name in known:
        return name
    same = [run for run in known if run.endswith(f"/{name}")]
    if len(same) != 1:
        raise ConfigError(f"no run {name!r}", hint=_hint(known))
    return same[0]


def _hint(known: Sequence[str]) -> str:
    if not known:
        return "evaluate checkpoints with `tracker watch`"
    return f"known runs: {', '.join(known)}"
