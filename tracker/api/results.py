"""The results of a project as tables: what `import tracker` gives.

    project = tracker.open("tracker.toml")
    project["my-run"].scores("gsm8k")

Reading changes nothing, and works beside a watcher that writes.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeVar

from eval_jobs.errors import ConfigError
from tracker.api.place import found_place, opened_place
from tracker.api.reading import ChosenRuns, no_benchmark
from tracker.api.steps import OfStep, Steps, chosen_steps, known_names_hint
from tracker.domain.tables.catalog import TABLES
from tracker.domain.tables.columns import Rows
from tracker.domain.tables.measured import scores_table, verdicts_table
from tracker.domain.tables.selection import Evaluation
from tracker.domain.tables.selection import left_behind as left_of

if TYPE_CHECKING:
    from pandas import DataFrame

    from tracker.api.samples import Samples
    from tracker.domain.records.types import Gap


Part = TypeVar("Part")
Step = TypeVar("Step", bound=OfStep)


def open(
    place: str | os.PathLike[str] = "tracker.toml",
    *,
    samples: str | os.PathLike[str] | None = None,
    password_file: str | os.PathLike[str] | None = None,
) -> Project:
    """Open the results of a project.

    Args:
        place: a tracker.toml, its state folder, or the URL of its database.
        samples: folder of the samples, if it is not in the state folder.
        password_file: file with the database password in its first line; default: as in [store], or the variable
            TRACKER_DATABASE_PASSWORD.

    Raises:
        ConfigError: there are no results, or the password is missing.
        StoreError: the database cannot be read, or has tables of another version.
    """
    opened = opened_place(found_place(place, samples=samples, password_file=password_file))
    return Project(place=os.fspath(place), _runs=ChosenRuns(opened=opened))


def schema(table: str) -> DataFrame:
    """Return the columns of a table: table, column, dtype, unit, meaning.

    Raises:
        ConfigError: there is no such table.
    """
    from tracker.api.frames import schema_of

    if table not in TABLES:
        raise ConfigError(f"no table {table!r}", hint=known_names_hint("tables", TABLES, table))
    return schema_of([TABLES[table]])


@dataclass(frozen=True, kw_only=True, repr=False)
class Project:
    """The results of one project, or of some of its runs."""

    place: str
    """Where the results are."""
    _runs: ChosenRuns

    def __repr__(self) -> str:
        """Return where the results are, and of which runs."""
        return f"Project({self.place}: {', '.join(self._runs.names or ('all runs',))})"

    def __getitem__(self, runs: str | Sequence[str]) -> Project:
        """Return the project with some runs: by name, by pattern (`sft-*`), or several of both.

        Raises:
            ConfigError: there is no such run.
        """
        return replace(self, _runs=self._runs.narrowed(runs))

    def runs(self) -> DataFrame:
        """Return the runs with their number of checkpoints, gaps, open losses and firing alerts."""
        from tracker.domain.tables.recorded import RunParts, runs_table

        runs, history = self._runs, self._runs.history
        evaluations = runs.tables.evaluations(runs.names)
        parts = RunParts(
            evaluations=evaluations,
            gaps=runs.gaps(evaluations),
            incidents=runs.of_runs(history.incidents),
            alerts=runs.of_runs(history.open_alerts),
        )
        return _frame("runs", runs_table(runs.runs(), parts))

    def scores(self, benchmark: str | None = None, *, steps: Steps = None) -> DataFrame:
        """Return the score of each benchmark at each step; a failed one has the code of its error.

        Raises:
            ConfigError: there is no such benchmark or step.
        """
        return _frame("scores", scores_table(self._runs.results(benchmark, steps)))

    def verdicts(self, benchmark: str | None = None, *, steps: Steps = None) -> DataFrame:
        """Return the verdicts and findings, each with what decided it.

        Raises:
            ConfigError: there is no such benchmark or step.
        """
        return _frame("verdicts", verdicts_table(self._runs.verdicts(benchmark, steps)))

    def samples(
        self,
        benchmark: str | None = None,
        *,
        steps: Steps = None,
        status: str | None = None,
        texts: bool = False,
        errors: Literal["raise", "skip"] = "raise",
    ) -> Samples:
        """Return the samples behind the scores; nothing is read yet.

        Args:
            benchmark: one of them; None: all.
            steps: which ones.
            status: scored, truncated, unscored, or error; None: all.
            texts: also prompt, target, answer and detail.
            errors: whether samples that cannot be read raise, or are left out.

        Raises:
            ConfigError: there is no such benchmark, step or status, or the folder of the samples is unknown.
        """
        from tracker.adapters.samples.packed_parquet import SampleFiles
        from tracker.api.samples import SampleReader, samples_of

        folder = self._runs.samples_dir()
        scores = scores_table(self._runs.results(benchmark, steps))
        reader = SampleReader(lambda: self._runs.tables, SampleFiles(folder), errors)
        return samples_of(scores, reader, status=status, texts=texts)

    def checkpoints(self, *, steps: Steps = None, left_behind: bool = False) -> DataFrame:
        """Return the evaluated checkpoints and the gaps.

        Args:
            steps: which ones; gaps of other steps are left out.
            left_behind: also those that training left behind when it went back.

        Raises:
            ConfigError: there is no such step.
        """
        from tracker.adapters.history.tables_sql import urgent_words
        from tracker.domain.tables.recorded import checkpoints_table

        rows = self._runs.tables.verdicts(self._runs.names, ("evaluation", "word"))
        evaluations, words = rows.evaluations, urgent_words(rows)
        left, gaps = left_of(evaluations), self._runs.gaps(evaluations)
        kept = list(evaluations)
        if not left_behind:
            kept = [e for e in evaluations if e.number not in left]
        places: list[Evaluation | Gap] = [*kept, *gaps]
        asked = {(one.run_id, one.step) for one in chosen_steps(places, steps)}
        table = checkpoints_table(_at(asked, kept), words, left, _at(asked, gaps))
        return _frame("checkpoints", table)

    def losses(self, *, still_open: bool = False) -> DataFrame:
        """Return the losses, from their alarm to their end; `still_open`: only those that have not ended."""
        from tracker.domain.tables.recorded import losses_table

        incidents = self._runs.of_runs(self._runs.history.incidents)
        if still_open:
            incidents = [one for one in incidents if one.closed_step is None]
        return _frame("losses", losses_table(incidents, self._runs.of_runs(self._runs.history.acceptances)))

    def forgetting(self, *, subsets: bool = False) -> DataFrame:
        """Return what each run forgot, with the thresholds of its tracker.toml, or the defaults if there is none.

        Args:
            subsets: also of each subset.

        Raises:
            ConfigError: the tracker.toml is wrong.
            StoreError: samples are missing or damaged.
        """
        from tracker.domain.forgetting.ledger import run_ledger
        from tracker.domain.tables.recorded import forgetting_table

        policy = self._runs.opened.policy
        ledgers = [run_ledger(scores, policy, details=0) for scores in self._runs.newest_scores()]
        return _frame("forgetting", forgetting_table(ledgers, subsets=subsets))

    def forgetting_matrix(self, by: Literal["step", "phase"] = "step") -> DataFrame:
        """Return the forgetting of one run as a matrix.

        Args:
            by: "step": a row for each benchmark, a column for each step, and the change from the best score so far;
                "phase": a row for each phase, a column for each benchmark, and the score at the end of the phase.

        Raises:
            ConfigError: there are several runs, or `by` is something else.
            StoreError: samples are missing or damaged.
        """
        from pandas import DataFrame

        from tracker.domain.forgetting.ledger import run_ledger
        from tracker.domain.tables.matrices import changes_from_best, levels_after_phases

        runs = self._runs.runs()
        if len(runs) != 1:
            what = f"a matrix is of one run, and there are {len(runs)}"
            raise ConfigError(what, hint="choose one: project[RUN].forgetting_matrix()")
        if by not in ("step", "phase"):
            raise ConfigError(f"by={by!r} is unknown", hint='pass "step" or "phase"')
        (scores,) = self._runs.newest_scores()
        ledger = run_ledger(scores, self._runs.opened.policy, details=0)
        if by == "phase":
            names = [phase.name for phase in ledger.phases]
            return DataFrame(levels_after_phases(ledger), index=names, dtype="float64").rename_axis("phase")
        found = DataFrame(changes_from_best(ledger), index=list(ledger.steps), dtype="float64").T
        return found.rename_axis(index="benchmark", columns="step")

    def events(self, benchmark: str) -> DataFrame:
        """Return when each sample of a benchmark was learned, forgotten or learned again.

        Single changes are no evidence: on a plateau, many samples change by chance.

        Raises:
            ConfigError: there is no such benchmark.
            StoreError: samples are missing or damaged.
        """
        from tracker.domain.tables.events import events_table

        found = list(self._runs.newest_scores())
        known = {name for scores in found for name in scores.benchmarks()}
        if benchmark not in known:
            raise no_benchmark(benchmark, known)
        return _frame("events", events_table(found, benchmark, self._runs.opened.policy.min_coverage))

    def latency(self, *, steps: Steps = None, requests: bool = False) -> DataFrame:
        """Return the latency of each load at each step; a failed one has the code of its error.

        Args:
            steps: which ones.
            requests: one row for each request instead: the table `requests`.

        Raises:
            ConfigError: there is no such step.
        """
        from tracker.domain.tables.recorded import latency_table, requests_table

        records = self._runs.records(steps)
        if requests:
            return _frame("requests", requests_table(records))
        return _frame("latency", latency_table(records, self._runs.of_runs(self._runs.history.reports)))

    def alerts(self) -> DataFrame:
        """Return the newest state of each alert."""
        from tracker.domain.tables.recorded import alerts_table

        return _frame("alerts", alerts_table(self._runs.of_runs(self._runs.history.alerts)))

    def costs(self, *, steps: Steps = None) -> DataFrame:
        """Return the cost of each evaluation, also of checkpoints that training left behind.

        Raises:
            ConfigError: there is no such step.
        """
        from tracker.domain.tables.recorded import costs_table

        return _frame("costs", costs_table(self._runs.records(steps, all_branches=True)))

    def sweeps(self, name: str | None = None) -> DataFrame:
        """Return the scores of sweeps by target and variant, with one column `set_AXIS` for each axis.

        Args:
            name: one sweep; None: all.

        Raises:
            ConfigError: no sweep of this name ran.
        """
        from tracker.api.frames import frame_of
        from tracker.domain.tables.sweeps import sweeps_table

        return frame_of(*sweeps_table(self._runs.boards(name)))


def _frame(table: str, rows: Rows) -> DataFrame:
    from tracker.api.frames import frame_of  # pandas takes longer to import than to open a project

    return frame_of(TABLES[table], rows)


def _at(places: Collection[tuple[str, int]], parts: Iterable[Step]) -> list[Step]:
    """Return what belongs to these runs and steps."""
    found = []
    for one in parts:
        if (one.run_id, one.step) in places:
            found.append(one)
    return found
