"""The results of a project as tables: what `import tracker` gives.

    project = tracker.open("tracker.toml")
    project["my-run"].scores("gsm8k")

Reading changes nothing, and works beside a watcher that writes.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from eval_jobs.errors import ConfigError
from tracker.api.place import Opened, found_place, opened_place
from tracker.api.steps import OfStep, Steps, chosen_steps, known_names_hint
from tracker.domain.tables.catalog import TABLES
from tracker.domain.tables.columns import Rows
from tracker.domain.tables.measured import StoredRows, scores_table, verdicts_table
from tracker.domain.tables.selection import Evaluation
from tracker.domain.tables.selection import left_behind as left_of

if TYPE_CHECKING:
    from pandas import DataFrame

    from eval_jobs.types import EvalRecord
    from tracker.adapters.history.store_sql import SqlHistory
    from tracker.adapters.history.tables_sql import ResultTables
    from tracker.api.samples import Samples
    from tracker.domain.records.types import Gap
    from tracker.domain.scores.run_scores import RunScores
    from tracker.domain.sweeps.board import Board


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
    return Project(place=os.fspath(place), _opened=opened)


def schema(table: str) -> DataFrame:
    """Return the columns of a table: table, column, dtype, unit, meaning.

    Raises:
        ConfigError: there is no such table.
    """
    from tracker.api.frames import schema_of

    if table not in TABLES:
        raise ConfigError(f"no table {table!r}", hint=known_names_hint("tables", TABLES, table))
    return schema_of([TABLES[table]])


@dataclass(frozen=True, kw_only=True)
class Project:
    """The results of one project, or of some of its runs."""

    place: str
    """Where the results are."""
    names: tuple[str, ...] | None = None
    """The chosen runs; None: all."""
    _opened: Opened = field(repr=False)

    def __getitem__(self, runs: str | Sequence[str]) -> Project:
        """Return the project with some runs: by name, by pattern (`sft-*`), or several of both.

        Raises:
            ConfigError: there is no such run.
        """
        known = self._tables.runs()
        wanted = list(runs) if isinstance(runs, list | tuple) else [runs]
        found = [name for one in wanted for name in _matching(one, known)]
        return replace(self, names=tuple(dict.fromkeys(found)))

    def scores(self, benchmark: str | None = None, *, steps: Steps = None) -> DataFrame:
        """Return the score of each benchmark at each step; a failed one has the code of its error.

        Raises:
            ConfigError: there is no such benchmark or step.
        """
        return _frame("scores", scores_table(self._counting(self._tables.results(self.names), benchmark, steps)))

    def verdicts(self, benchmark: str | None = None, *, steps: Steps = None) -> DataFrame:
        """Return the verdicts and findings, each with what decided it.

        Raises:
            ConfigError: there is no such benchmark or step.
        """
        return _frame("verdicts", verdicts_table(self._counting(self._tables.verdicts(self.names), benchmark, steps)))

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

        folder = self._samples_dir()
        scores = scores_table(self._counting(self._tables.results(self.names), benchmark, steps))
        reader = SampleReader(lambda: self._tables, SampleFiles(folder), errors)
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

        rows = self._tables.verdicts(self.names, ("evaluation", "word"))
        evaluations, words = rows.evaluations, urgent_words(rows)
        left, gaps = left_of(evaluations), self._gaps(evaluations)
        kept = [e for e in evaluations if left_behind or e.number not in left]
        places: list[Evaluation | Gap] = [*kept, *gaps]
        asked = {(one.run_id, one.step) for one in chosen_steps(places, steps)}
        table = checkpoints_table(_at(asked, kept), words, left, _at(asked, gaps))
        return _frame("checkpoints", table)

    def losses(self, *, still_open: bool = False) -> DataFrame:
        """Return the losses, from their alarm to their end; `still_open`: only those that have not ended."""
        from tracker.domain.tables.recorded import losses_table

        incidents = self._of_runs(self._history.incidents)
        if still_open:
            incidents = [one for one in incidents if one.closed_step is None]
        return _frame("losses", losses_table(incidents, self._of_runs(self._history.acceptances)))

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

        policy = self._opened.policy
        ledgers = [run_ledger(scores, policy, details=0) for scores in self._newest_scores()]
        return _frame("forgetting", forgetting_table(ledgers, subsets=subsets))

    def events(self, benchmark: str) -> DataFrame:
        """Return when each sample of a benchmark was learned, forgotten or learned again.

        Single changes are no evidence: on a plateau, many samples change by chance.

        Raises:
            ConfigError: there is no such benchmark.
            StoreError: samples are missing or damaged.
        """
        from tracker.domain.tables.events import events_table

        found = list(self._newest_scores())
        known = {name for scores in found for name in scores.benchmarks()}
        if benchmark not in known:
            raise _no_benchmark(benchmark, known)
        return _frame("events", events_table(found, benchmark, self._opened.policy.min_coverage))

    def latency(self, *, steps: Steps = None, requests: bool = False) -> DataFrame:
        """Return the latency of each load at each step; a failed one has the code of its error.

        Args:
            steps: which ones.
            requests: one row for each request instead: the table `requests`.

        Raises:
            ConfigError: there is no such step.
        """
        from tracker.domain.tables.recorded import latency_table, requests_table

        records = self._records(steps)
        if requests:
            return _frame("requests", requests_table(records))
        return _frame("latency", latency_table(records, self._of_runs(self._history.reports)))

    def alerts(self) -> DataFrame:
        """Return the newest state of each alert."""
        from tracker.domain.tables.recorded import alerts_table

        return _frame("alerts", alerts_table(self._of_runs(self._history.alerts)))

    def costs(self, *, steps: Steps = None) -> DataFrame:
        """Return the cost of each evaluation.

        Raises:
            ConfigError: there is no such step.
        """
        from tracker.domain.tables.recorded import costs_table

        return _frame("costs", costs_table(self._records(steps)))

    def _newest_scores(self) -> Iterator[RunScores]:
        """Yield the scores of each chosen run, without checkpoints that training left behind."""
        from tracker.app.steps.best_of_run import newest_scores

        self._samples_dir()
        for run in self._runs():
            yield newest_scores(run, self._history)

    def _samples_dir(self) -> Path:
        folder = self._opened.place.samples_dir
        if folder is None or not folder.is_dir():
            what = "the folder of the samples is unknown" if folder is None else f"no samples folder {folder}"
            raise ConfigError(what, hint="pass samples= to tracker.open: the folder `samples` in the state folder")
        return folder

    def sweeps(self, name: str | None = None) -> DataFrame:
        """Return the scores of sweeps by target and variant, with one column `set_AXIS` for each axis.

        Args:
            name: one sweep; None: all.

        Raises:
            ConfigError: no sweep of this name ran.
        """
        from tracker.api.frames import frame_of
        from tracker.domain.tables.sweeps import sweeps_table

        ran = self._tables.sweeps()
        if self.names is not None:
            ran = tuple(one for one in ran if one[0] in self.names)
        known = {sweep for _, sweep in ran}
        if name is not None and name not in known:
            raise ConfigError(f"no sweep {name!r}", hint=known_names_hint("sweeps", known, name))
        boards: list[tuple[str, Board]] = []
        for run, sweep in ran:
            if name in (None, sweep):
                boards += self._boards(run, sweep)
        return frame_of(*sweeps_table(boards))

    def _boards(self, run: str, sweep: str) -> Iterator[tuple[str, Board]]:
        """Yield the run and the results of each of its sweep runs, the oldest first."""
        from tracker.adapters.history.sweeps_sql import SqlSweeps
        from tracker.domain.sweeps.board import board_of

        store = SqlSweeps(self._opened.database, run)
        for turn in reversed(store.turns(sweep)):
            yield run, board_of(turn, store.results([plan.id for plan in turn.plans]))

    def _gaps(self, evaluations: Sequence[Evaluation]) -> list[Gap]:
        """Return the gaps of steps that were not evaluated after all."""
        from tracker.domain.overview.run import still_open

        found: list[Gap] = []
        for run in self._runs():
            judged = {e.step: e.judged_at for e in evaluations if e.run_id == run and e.judged_at is not None}
            found += still_open(judged, self._history.gaps(run))
        return found

    def _records(self, steps: Steps) -> list[EvalRecord]:
        evaluations = self._tables.evaluations(self.names)
        asked = {one.plan_id for one in chosen_steps(evaluations, steps)}
        return [record for record in self._of_runs(self._history.records) if record.plan.id in asked]

    def _of_runs(self, read: Callable[[str], Iterable[Part]]) -> list[Part]:
        """Return what `read` gives for each chosen run."""
        found: list[Part] = []
        for run in self._runs():
            found += read(run)
        return found

    def _runs(self) -> tuple[str, ...]:
        if self.names is None:
            return self._tables.runs()
        return self.names

    def _counting(self, rows: StoredRows, benchmark: str | None, steps: Steps) -> StoredRows:
        """Return the rows that are asked for, without checkpoints that training left behind."""
        known = {subject.benchmark for subject in rows.subjects.values()} - {""}
        if benchmark is not None and benchmark not in known:
            raise _no_benchmark(benchmark, known)
        left = left_of(rows.evaluations)
        counted = chosen_steps([e for e in rows.evaluations if e.number not in left], steps)
        return replace(rows, evaluations=counted, benchmark=benchmark)

    @property
    def _tables(self) -> ResultTables:
        self._demand_own_process()
        return self._opened.tables

    @property
    def _history(self) -> SqlHistory:
        self._demand_own_process()
        return self._opened.history

    def _demand_own_process(self) -> None:
        if os.getpid() != self._opened.process:
            what = "the project was opened in another process"
            raise ConfigError(what, hint="call tracker.open again in this process")


def _frame(table: str, rows: Rows) -> DataFrame:
    from tracker.api.frames import frame_of  # pandas takes longer to import than to open a project

    return frame_of(TABLES[table], rows)


def _no_benchmark(name: str, known: Iterable[str]) -> ConfigError:
    return ConfigError(f"no benchmark {name!r}", hint=known_names_hint("benchmarks", known, name))


def _at(places: Collection[tuple[str, int]], parts: Iterable[Step]) -> list[Step]:
    """Return what belongs to these runs and steps."""
    found = []
    for one in parts:
        if (one.run_id, one.step) in places:
            found.append(one)
    return found


def _matching(wanted: object, known: Sequence[str]) -> Sequence[str]:
    if not isinstance(wanted, str):
        raise ConfigError(f"{wanted!r} is not the name of a run", hint="pass a text")
    if wanted in known:
        return (wanted,)
    found = [name for name in known if fnmatch.fnmatchcase(name, wanted)]
    found = found or [name for name in known if name.endswith(f"/{wanted}")]
    if not found:
        raise ConfigError(f"no run {wanted!r}", hint=known_names_hint("runs", known, wanted))
    return found
