"""The rows of each table, for some runs: what DataFrames and exported files are made from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from eval_jobs.errors import ConfigError
from tracker.api.reading import ChosenRuns, no_benchmark
from tracker.api.steps import OfStep, Steps, known_names_hint, of_steps
from tracker.domain.tables.catalog import TABLES
from tracker.domain.tables.columns import Rows, TableDefinition
from tracker.domain.tables.measured import scores_table, verdicts_table
from tracker.domain.tables.selection import StoredEvaluation, numbers_left_behind

if TYPE_CHECKING:
    from tracker.api.samples import Errors, SampleReader
    from tracker.domain.forgetting.types import RunLedger
    from tracker.domain.records.types import Gap

Step = TypeVar("Step", bound=OfStep)
Table = tuple[TableDefinition, Rows]


def read_runs(runs: ChosenRuns, *, headlines: bool = True, best: bool = True) -> Table:
    """Return the table `runs`; `headlines` reads the verdicts of each, `best` its samples if their folder is known."""
    from tracker.domain.tables.recorded import RunParts, runs_table

    evaluations = runs.tables.evaluations(runs.names)
    gaps = runs.gaps(evaluations)
    parts = RunParts(
        evaluations=evaluations,
        gaps=gaps,
        incidents=runs.of_runs(runs.history.incidents),
        alerts=runs.of_runs(runs.history.open_alerts),
        plans=runs.tables.open_plans(),
        output_dirs=runs.tables.output_dirs(),
        headlines=_headlines(runs, gaps) if headlines else {},
        best_steps=_best_steps(runs) if best else {},
    )
    return TABLES["runs"], runs_table(runs.runs(), parts)


def read_scores(runs: ChosenRuns, benchmark: str | None = None, steps: Steps = None, *, subsets: bool = False) -> Table:
    """Return the table `scores`; `subsets`: also of each subset, which reads the samples."""
    table = scores_table(runs.results(benchmark, steps))
    if subsets:
        from tracker.domain.tables.subset_scores import with_subsets

        table = with_subsets(table, runs.newest_scores())
    return TABLES["scores"], table


def sample_source(
    runs: ChosenRuns, benchmark: str | None = None, steps: Steps = None, errors: Errors = "raise"
) -> tuple[Rows, SampleReader]:
    """Return the table `scores`, and what reads the samples behind it."""
    reader = sample_reader(runs, errors)
    return read_scores(runs, benchmark, steps)[1], reader


def sample_reader(runs: ChosenRuns, errors: Errors = "raise") -> SampleReader:
    """Return what reads samples.

    Raises:
        ConfigError: their folder is unknown.
    """
    from tracker.adapters.samples.packed_parquet import SampleFiles
    from tracker.api.samples import SampleReader

    return SampleReader(lambda: runs.tables, SampleFiles(runs.samples_dir()), errors)


def read_verdicts(runs: ChosenRuns, benchmark: str | None = None, steps: Steps = None) -> Table:
    """Return the table `verdicts`."""
    return TABLES["verdicts"], verdicts_table(runs.verdicts(benchmark, steps))


def read_checkpoints(runs: ChosenRuns, steps: Steps = None, *, left_behind: bool = True) -> Table:
    """Return the table `checkpoints`; `left_behind`: also those that training left behind."""
    from tracker.adapters.history.tables_sql import urgent_words
    from tracker.domain.tables.recorded import checkpoints_table

    rows = runs.tables.verdicts(runs.names, ("evaluation", "word"))
    evaluations, words = rows.evaluations, urgent_words(rows)
    left, gaps = numbers_left_behind(evaluations), runs.gaps(evaluations)
    kept = list(evaluations)
    if not left_behind:
        kept = [e for e in evaluations if e.number not in left]
    places: list[StoredEvaluation | Gap] = [*kept, *gaps]
    asked = {(one.run_id, one.step) for one in of_steps(places, steps)}
    return TABLES["checkpoints"], checkpoints_table(_at(asked, kept), words, left, _at(asked, gaps))


def read_losses(runs: ChosenRuns, *, still_open: bool = False) -> Table:
    """Return the table `losses`; `still_open`: only those that have not ended."""
    from tracker.domain.scores.series_changes import series_numbers
    from tracker.domain.tables.recorded import losses_table

    incidents = runs.of_runs(runs.history.incidents)
    if still_open:
        incidents = [one for one in incidents if one.closed_step is None]
    series = {run: series_numbers(runs.history.series_changes(run)) for run in runs.runs()}
    return TABLES["losses"], losses_table(incidents, runs.of_runs(runs.history.acceptances), series)


def read_forgetting(runs: ChosenRuns, *, subsets: bool = True) -> Table:
    """Return the table `forgetting`; `subsets`: also of each subset."""
    from tracker.domain.tables.recorded import forgetting_table

    return TABLES["forgetting"], forgetting_table(list(ledgers_of(runs)), subsets=subsets)


def ledgers_of(runs: ChosenRuns) -> Iterator[RunLedger]:
    """Yield what each run forgot, without the samples."""
    from tracker.domain.forgetting.ledger import run_ledger

    for scores in runs.newest_scores():
        yield run_ledger(scores, runs.opened.policy, runs.history.incidents(scores.run_id), details=0)


def read_events(runs: ChosenRuns, benchmark: str | None = None) -> Table:
    """Return the table `events`, of one benchmark or all."""
    from tracker.domain.tables.events import events_table

    found = list(runs.newest_scores())
    known = {name for scores in found for name in scores.benchmarks()}
    if benchmark is not None and benchmark not in known:
        raise no_benchmark(benchmark, known)
    names = sorted(known) if benchmark is None else [benchmark]
    return TABLES["events"], events_table(found, names, runs.opened.policy.min_coverage)


def read_latency(runs: ChosenRuns, steps: Steps = None) -> Table:
    """Return the table `latency`."""
    from tracker.domain.tables.recorded import latency_table

    return TABLES["latency"], latency_table(runs.records(steps), runs.of_runs(runs.history.reports))


def read_requests(runs: ChosenRuns, steps: Steps = None) -> Table:
    """Return the table `requests`."""
    from tracker.domain.tables.recorded import requests_table

    return TABLES["requests"], requests_table(runs.records(steps))


def read_curves(runs: ChosenRuns, keys: Sequence[str] | None = None) -> Table:
    """Return the table `curves`, of some keys or all.

    Raises:
        ConfigError: there is no such key.
    """
    from tracker.domain.tables.recorded import curves_table

    points = runs.curve_points()
    if keys is not None:
        known = {key for _, _, key, _ in points}
        for key in keys:
            if key not in known:
                raise ConfigError(f"no curve {key!r}", hint=known_names_hint("curves", known, key))
        points = [point for point in points if point[2] in keys]
    return TABLES["curves"], curves_table(points)


def read_points(runs: ChosenRuns) -> Table:
    """Return the table `points`."""
    from tracker.domain.tables.recorded import points_table

    return TABLES["points"], points_table(runs.read_points())


def read_incidents(runs: ChosenRuns) -> Table:
    """Return the table `incidents`."""
    from tracker.domain.tables.recorded import training_incidents_table

    found = {one.id: one for one in runs.of_runs(runs.history.training_incidents)}
    return TABLES["incidents"], training_incidents_table(found.values())


def read_progress(runs: ChosenRuns) -> Table:
    """Return the table `progress`."""
    from tracker.domain.tables.recorded import progress_table

    found = {one.run_id: one for one in runs.of_runs(runs.history.progress)}
    return TABLES["progress"], progress_table(found.values())


def read_alerts(runs: ChosenRuns) -> Table:
    """Return the table `alerts`."""
    from tracker.domain.tables.recorded import alerts_table

    return TABLES["alerts"], alerts_table(runs.of_runs(runs.history.alerts))


def read_log(runs: ChosenRuns) -> Table:
    """Return the table `log`."""
    from tracker.domain.tables.recorded import run_log_table

    return TABLES["log"], run_log_table({one.number: one for one in runs.of_runs(runs.history.events)}.values())


def read_costs(runs: ChosenRuns, steps: Steps = None) -> Table:
    """Return the table `costs`."""
    from tracker.domain.tables.recorded import costs_table

    return TABLES["costs"], costs_table(runs.records(steps, all_branches=True))


def read_sweeps(runs: ChosenRuns, name: str | None = None) -> Table:
    """Return the table `sweeps` with its columns for the axes; None: of all sweeps."""
    from tracker.domain.tables.sweeps import sweeps_table

    return sweeps_table(runs.boards(name))


WHOLE_TABLES: Mapping[str, Callable[[ChosenRuns], Table]] = {
    "runs": read_runs,
    "checkpoints": read_checkpoints,
    "scores": read_scores,
    "verdicts": read_verdicts,
    "losses": read_losses,
    "forgetting": read_forgetting,
    "events": read_events,
    "latency": read_latency,
    "requests": read_requests,
    "costs": read_costs,
    "sweeps": read_sweeps,
    "alerts": read_alerts,
    "curves": read_curves,
    "points": read_points,
    "incidents": read_incidents,
    "progress": read_progress,
    "log": read_log,
}
"""What reads each table with all its rows. `samples` is not among them: it may be larger than the memory."""


def _headlines(runs: ChosenRuns, gaps: Iterable[Gap]) -> Mapping[str, str]:
    from tracker.domain.overview.run import overview
    from tracker.domain.overview.standings import headline

    by_run: dict[str, list[Gap]] = {run: [] for run in runs.runs()}
    for gap in gaps:
        by_run[gap.run_id].append(gap)
    return {run: headline(overview(runs.history.outlines(run), own)) for run, own in by_run.items()}


def _best_steps(runs: ChosenRuns) -> Mapping[str, int]:
    from tracker.app.steps.best_of_run import best_of_run

    samples, found = runs.opened.place.samples_dir, dict[str, int]()
    for run in runs.runs() if samples is not None and samples.is_dir() else ():
        best = best_of_run(run, runs.history)
        if best is not None:
            found[run] = best.checkpoint.step
    return found


def _at(places: Collection[tuple[str, int]], parts: Iterable[Step]) -> list[Step]:
    """Return what belongs to these runs and steps."""
    found = []
    for one in parts:
        if (one.run_id, one.step) in places:
            found.append(one)
    return found
