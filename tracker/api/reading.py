"""What is stored about the chosen runs of a project. Reading changes nothing, and works beside a watcher."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from eval_jobs.errors import ConfigError
from tracker.api.place import Opened
from tracker.api.steps import Steps, known_names_hint, of_steps
from tracker.domain.tables.measured import StoredRows
from tracker.domain.tables.selection import StoredEvaluation, numbers_left_behind

if TYPE_CHECKING:
    from eval_jobs.types import EvalRecord
    from tracker.adapters.history.store_sql import SqlHistory
    from tracker.adapters.history.tables_sql import ResultTables
    from tracker.domain.records.types import Gap
    from tracker.domain.scores.run_scores import RunScores
    from tracker.domain.sweeps.board import Board

Part = TypeVar("Part")


@dataclass(frozen=True, kw_only=True)
class ChosenRuns:
    """Some runs of a project, or all."""

    names: tuple[str, ...] | None = None
    """None: all."""
    opened: Opened

    def narrowed(self, wanted: str | Sequence[str]) -> ChosenRuns:
        """Return these runs only, by name or pattern.

        Raises:
            ConfigError: there is no such run.
        """
        known, found = self.runs(), dict[str, None]()
        for one in list(wanted) if isinstance(wanted, list | tuple) else [wanted]:
            found |= dict.fromkeys(_matching(one, known))
        if not found:
            raise ConfigError("no run is named", hint=known_names_hint("runs", known, ""))
        return replace(self, names=tuple(found))

    def newest_scores(self) -> Iterator[RunScores]:
        """Yield the scores of each chosen run, without checkpoints that training left behind."""
        from tracker.app.steps.best_of_run import newest_scores

        self.samples_dir()
        for run in self.runs():
            yield newest_scores(run, self.history)

    def samples_dir(self) -> Path:
        """Return the folder of the samples.

        Raises:
            ConfigError: it is unknown.
        """
        folder = self.opened.place.samples_dir
        if folder is None or not folder.is_dir():
            what = "the folder of the samples is unknown" if folder is None else f"no samples folder {folder}"
            raise ConfigError(what, hint="pass samples= to tracker.open: the folder `samples` in the state folder")
        return folder

    def boards(self, name: str | None) -> Iterator[tuple[str, Board]]:
        """Yield the run and the results of each run of a sweep, or of all, the oldest first.

        Raises:
            ConfigError: no sweep of this name ran.
        """
        from tracker.adapters.history.sweeps_sql import SqlSweeps
        from tracker.domain.sweeps.board import board_of

        ran = self.tables.sweeps()
        if self.names is not None:
            ran = tuple(one for one in ran if one[0] in self.names)
        known = {sweep for _, sweep in ran}
        if name is not None and name not in known:
            raise ConfigError(f"no sweep {name!r}", hint=known_names_hint("sweeps", known, name))
        for run, sweep in ran:
            if name in (None, sweep):
                store = SqlSweeps(self.opened.database, run)
                for turn in reversed(store.turns(sweep)):
                    yield run, board_of(turn, store.results([plan.id for plan in turn.plans]))

    def gaps(self, evaluations: Sequence[StoredEvaluation]) -> list[Gap]:
        """Return the gaps of steps that were not evaluated after all."""
        from tracker.domain.overview.run import still_open

        found: list[Gap] = []
        for run in self.runs():
            judged = {e.step: e.judged_at for e in evaluations if e.run_id == run and e.judged_at is not None}
            found += still_open(judged, self.history.gaps(run))
        return found

    def curve_points(self) -> list[tuple[str, int, str, float]]:
        """Return (run, step, key, value) of the training curves."""
        from tracker.app.steps.curves import curves_of

        return [(run, one.step, one.key, one.value) for run in self.runs() for one in curves_of(run, self.history)]

    def read_points(self) -> list[tuple[str, int, str, float]]:
        """Return (run, step, key, value) of all points that were read, in this order."""
        found: list[tuple[str, int, str, float]] = []
        for run in self.runs():
            for points in (self.history.logged_points(run)[1], self.history.stated_points(run)):
                found += ((run, one.step, one.key, one.value) for one in points)
        return found

    def records(self, steps: Steps, *, all_branches: bool = False) -> list[EvalRecord]:
        """Return the records of these steps, without samples.

        `all_branches`: also of checkpoints that training left behind.
        """
        evaluations = self.tables.evaluations(self.names)
        if not all_branches:
            left = numbers_left_behind(evaluations)
            evaluations = tuple(one for one in evaluations if one.number not in left)
        asked = {one.plan_id for one in of_steps(evaluations, steps)}
        return [record for record in self.of_runs(self.history.records) if record.plan.id in asked]

    def of_runs(self, read: Callable[[str], Iterable[Part]]) -> list[Part]:
        """Return what `read` gives for each chosen run."""
        found: list[Part] = []
        for run in self.runs():
            found += read(run)
        return found

    def own(self) -> str:
        """Return the run that a step alone belongs to: the only one, or that of the settings; empty: unknown."""
        runs = self.runs()
        if len(runs) == 1:
            return runs[0]
        return self.opened.own_run if self.opened.own_run in runs else ""

    def runs(self) -> tuple[str, ...]:
        """Return the names of the runs."""
        if self.names is None:
            return self.tables.runs()
        return self.names

    def results(self, benchmark: str | None, steps: Steps) -> StoredRows:
        """Return the results of these steps, without checkpoints that training left behind."""
        return self._counting(self.tables.results(self.names), benchmark, steps)

    def verdicts(self, benchmark: str | None, steps: Steps) -> StoredRows:
        """Return the verdicts of these steps, without checkpoints that training left behind."""
        return self._counting(self.tables.verdicts(self.names), benchmark, steps)

    def _counting(self, rows: StoredRows, benchmark: str | None, steps: Steps) -> StoredRows:
        known = {subject.benchmark for subject in rows.subjects.values()} - {""}
        if benchmark is not None and benchmark not in known:
            raise no_benchmark(benchmark, known)
        left = numbers_left_behind(rows.evaluations)
        counted = of_steps([e for e in rows.evaluations if e.number not in left], steps)
        return replace(rows, evaluations=counted, benchmark=benchmark)

    @property
    def tables(self) -> ResultTables:
        """Narrow rows."""
        self._demand_own_process()
        return self.opened.tables

    @property
    def history(self) -> SqlHistory:
        """Records, reports and what else is stored as a whole."""
        self._demand_own_process()
        return self.opened.history

    def _demand_own_process(self) -> None:
        if os.getpid() != self.opened.process:
            what = "the project was opened in another process"
            raise ConfigError(what, hint="call tracker.open again in this process")


def no_benchmark(name: str, known: Iterable[str]) -> ConfigError:
    """Return the error for a benchmark that is not there."""
    return ConfigError(f"no benchmark {name!r}", hint=known_names_hint("benchmarks", known, name))


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
