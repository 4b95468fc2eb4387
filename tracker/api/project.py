"""The results of one or several runs of a project as tables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tracker.api import tables
from tracker.api.reading import ChosenRuns
from tracker.api.steps import Steps, checkpoint_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from tracker.api.acting import Evaluation
    from tracker.api.answers import Comparison, Gate
    from tracker.api.samples import Samples


@dataclass(frozen=True, kw_only=True, repr=False)
class Project:
    """The results of one project, or of some of its runs."""

    place: str
    """Where the results are."""
    _runs: ChosenRuns

    def __repr__(self) -> str:
        return f"Project({self.place}: {', '.join(self._runs.names or ('all runs',))})"

    def _repr_html_(self) -> str:
        from tracker.api.formats.html import SHOWN, shown_html

        runs = self.runs(headlines=len(self._runs.runs()) <= SHOWN, best=False)
        return shown_html(self.place, runs.drop(columns="output_dir"))

    def __getitem__(self, runs: str | Sequence[str]) -> Project:
        """Return the project with some runs: by name, by pattern (`sft-*`), or several of both.

        Raises:
            ConfigError: there is no such run.
        """
        return replace(self, _runs=self._runs.narrowed(runs))

    def runs(self, *, headlines: bool = True, best: bool = True) -> DataFrame:
        """Return the runs with their number of checkpoints, gaps, open losses and firing alerts.

        Args:
            headlines: also the finding of each run in one sentence. False is faster: hundreds of runs take seconds.
            best: also its best checkpoint, from its samples; missing if their folder is unknown. False is faster.

        Raises:
            StoreError: samples are missing or damaged; `best=False` reads none.
        """
        return _frame(tables.read_runs(self._runs, headlines=headlines, best=best))

    def scores(self, benchmark: str | None = None, *, steps: Steps = None, subsets: bool = False) -> DataFrame:
        """Return the score of each benchmark at each step; a failed one has the code of its error.

        Args:
            benchmark: one of them; None: all.
            steps: which ones.
            subsets: also a row for each subset, which reads the samples.

        Raises:
            ConfigError: there is no such benchmark or step.
            StoreError: samples are missing or damaged.
        """
        return _frame(tables.read_scores(self._runs, benchmark, steps, subsets=subsets))

    def verdicts(self, benchmark: str | None = None, *, steps: Steps = None) -> DataFrame:
        """Return the verdicts and findings, each with what decided it.

        Raises:
            ConfigError: there is no such benchmark or step.
        """
        return _frame(tables.read_verdicts(self._runs, benchmark, steps))

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
        from tracker.api.samples import samples_of

        return samples_of(*tables.sample_source(self._runs, benchmark, steps, errors), status=status, texts=texts)

    def checkpoints(self, *, steps: Steps = None, left_behind: bool = False) -> DataFrame:
        """Return the evaluated checkpoints and the gaps.

        Args:
            steps: which ones; gaps of other steps are left out.
            left_behind: also those that training left behind when it went back.

        Raises:
            ConfigError: there is no such step.
        """
        return _frame(tables.read_checkpoints(self._runs, steps, left_behind=left_behind))

    def losses(self, *, still_open: bool = False) -> DataFrame:
        """Return the losses, from their alarm to their end; `still_open`: only those that have not ended."""
        return _frame(tables.read_losses(self._runs, still_open=still_open))

    def forgetting(self, *, subsets: bool = False) -> DataFrame:
        """Return what each run forgot, with the thresholds of its tracker.toml, or the defaults if there is none.

        Args:
            subsets: also of each subset.

        Raises:
            ConfigError: the tracker.toml is wrong.
            StoreError: samples are missing or damaged.
        """
        return _frame(tables.read_forgetting(self._runs, subsets=subsets))

    def forgetting_matrix(self, by: Literal["step", "phase"] = "step") -> DataFrame:
        """Return the forgetting of one run as a matrix.

        Args:
            by: "step": a row for each benchmark, a column for each step, and the change from the best score so far;
                "phase": a row for each phase, a column for each benchmark, and the score at the end of the phase.

        Raises:
            ConfigError: there are several runs, or `by` is something else.
            StoreError: samples are missing or damaged.
        """
        from tracker.api.formats.matrices import forgetting_matrix_of

        return forgetting_matrix_of(self._runs.runs(), tables.ledgers_of(self._runs), by)

    def events(self, benchmark: str) -> DataFrame:
        """Return when each sample of a benchmark was learned, forgotten or learned again.

        Single changes are no evidence: on a plateau, many samples change by chance.

        Raises:
            ConfigError: there is no such benchmark.
            StoreError: samples are missing or damaged.
        """
        return _frame(tables.read_events(self._runs, benchmark))

    def latency(self, *, steps: Steps = None, requests: bool = False) -> DataFrame:
        """Return the latency of each load at each step; a failed one has the code of its error.

        Args:
            steps: which ones.
            requests: one row for each request instead: the table `requests`.

        Raises:
            ConfigError: there is no such step.
        """
        if requests:
            return _frame(tables.read_requests(self._runs, steps))
        return _frame(tables.read_latency(self._runs, steps))

    def alerts(self) -> DataFrame:
        """Return the newest state of each alert."""
        return _frame(tables.read_alerts(self._runs))

    def incidents(self) -> DataFrame:
        """Return what went wrong in the training, as `tracker incidents`."""
        return _frame(tables.read_incidents(self._runs))

    def progress(self) -> DataFrame:
        """Return how each training stands by its logs."""
        return _frame(tables.read_progress(self._runs))

    def log(self) -> DataFrame:
        """Return what changed what people see, and when: see `tracker log`."""
        return _frame(tables.read_log(self._runs))

    def costs(self, *, steps: Steps = None) -> DataFrame:
        """Return the cost of each evaluation, also of checkpoints that training left behind.

        Raises:
            ConfigError: there is no such step.
        """
        return _frame(tables.read_costs(self._runs, steps))

    def curves(self, keys: str | Sequence[str] | None = None) -> DataFrame:
        """Return the training curves, such as train/loss, on the axis of steps.

        Args:
            keys: one or several; None: all.

        Raises:
            ConfigError: there is no such curve.
        """
        return _frame(tables.read_curves(self._runs, [keys] if isinstance(keys, str) else keys))

    def points(self) -> DataFrame:
        """Return the values of the training curves as they were read, also those that a restart discarded."""
        return _frame(tables.read_points(self._runs))

    def sweeps(self, name: str | None = None) -> DataFrame:
        """Return the scores of sweeps by target and variant, with one column `set_AXIS` for each axis.

        Args:
            name: one sweep; None: all.

        Raises:
            ConfigError: no sweep of this name ran.
        """
        return _frame(tables.read_sweeps(self._runs, name))

    def compare(self, before: str | int, after: str | int) -> Comparison:
        """Compare two evaluated checkpoints, sample by sample.

        Args:
            before: a step, or as in the commands: "best:gsm8k", "other-run@latest".
            after: the one to compare with it.

        Raises:
            ConfigError: there is no such checkpoint.
            Incomparable: no benchmark can be compared.
            StoreError: samples are missing or damaged.
        """
        from tracker.api.answers import comparison_of

        return comparison_of(self._runs, before, after)

    def gate(
        self,
        candidate: str | int | os.PathLike[str],
        *,
        baseline: str | int | os.PathLike[str],
        policy: str | os.PathLike[str] | None = None,
    ) -> Gate:
        """Decide whether a candidate may replace a baseline: `assert gate.passed, str(gate)`.

        Args:
            candidate: a step, or as in the commands: "best:gsm8k", "other-run@latest"; a folder is evaluated first.
            baseline: what it would replace.
            policy: file with a [gate] table; default: that of tracker.toml.

        Raises:
            CheckpointError: a folder is not a complete checkpoint.
            ConfigError: there is no such checkpoint, or the policy is wrong.
            StoreError: samples are missing or damaged.
        """
        from tracker.api.answers import gate_decision

        return gate_decision(self._runs, candidate, baseline, policy)

    def plot_scores(self, benchmark: str | None = None, *, ax: Axes | None = None) -> Axes:
        """Plot scores with marks for their verdicts; phases are shaded. Nothing is shown or saved.

        Args:
            benchmark: one of them; None: all.
            ax: where to draw; None: a figure of its own.

        Raises:
            ConfigError: there is no such benchmark, nothing to plot, or too much for one plot.
        """
        from tracker.api.formats.plots import scores_plot

        scores, verdicts = self.scores(benchmark), self.verdicts(benchmark)
        return scores_plot(scores, verdicts, self._runs.opened.policy.phases, ax)

    def plot_forgetting(self, *, ax: Axes | None = None) -> Axes:
        """Plot the forgetting matrix of one run.

        Args:
            ax: where to draw; None: a figure of its own.

        Raises:
            ConfigError: there are several runs.
            StoreError: samples are missing or damaged.
        """
        from tracker.api.formats.plots import forgetting_plot

        return forgetting_plot(self.forgetting_matrix(), self._runs.runs()[0], ax)

    def plot_latency(self, *, ax: Axes | None = None) -> Axes:
        """Plot the time to the first token by step.

        Args:
            ax: where to draw; None: a figure of its own.

        Raises:
            ConfigError: nothing was timed, or there is too much for one plot.
        """
        from tracker.api.formats.plots import latency_plot

        return latency_plot(self.latency(), ax)

    def follow(self, *, since: int | None = None) -> Iterator[DataFrame]:
        """Yield the verdicts of each checkpoint as they are reached; a database that is away is waited for.

        Args:
            since: also those that are there already, from this step on; None: only new ones.
        """
        from eval_jobs.host.clock import SystemClock
        from tracker.api.following import followed

        return followed(self._runs, since, SystemClock())

    def evaluate(self, checkpoint: str | os.PathLike[str], *, here: bool = False) -> Evaluation:
        """Evaluate a checkpoint, a folder or s3://bucket/prefix: `project.evaluate(path).wait()`.

        Args:
            checkpoint: its location.
            here: in this process, as `tracker evaluate`; otherwise it is queued for `tracker watch` and its workers.

        Raises:
            CheckpointError: it cannot be pinned.
            ConfigError: the project was not opened by its tracker.toml, or a setting is wrong.
            StoreError: the results cannot be stored.
        """
        from tracker.api.acting import evaluation_of

        return evaluation_of(self._runs, checkpoint, here=here)

    def accept(self, checkpoint: str | int, benchmark: str, *, reason: str) -> None:
        """Accept the score of a benchmark at a checkpoint as its new baseline, as `tracker accept`.

        Raises:
            ConfigError: there is no such checkpoint or benchmark, or the project was not opened by its tracker.toml.
            StoreError: it cannot be stored.
        """
        from tracker.api.acting import accepted_level, writable

        accepted_level(writable(self._runs), checkpoint_name(checkpoint), benchmark, reason)


def _frame(table: tables.Table) -> DataFrame:
    from tracker.api.formats.frames import frame_of  # pandas takes longer to import than to open a project

    return frame_of(*table)
