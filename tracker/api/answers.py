"""Questions to a project: two checkpoints compared, and a gate for a candidate. Neither raises an alarm."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eval_jobs.errors import ConfigError
from eval_jobs.types import EvalRecord
from tracker.api.formats.frames import frame_of
from tracker.api.formats.html import shown_html
from tracker.api.reading import ChosenRuns, no_benchmark
from tracker.api.references import checkpoints_in, is_reference
from tracker.api.samples import Samples, SamplesOf
from tracker.api.steps import checkpoint_name
from tracker.api.tables import sample_reader
from tracker.app.commands.gate import gate_of, gathered
from tracker.app.steps.comparing import noise_of_run, parts_to_compare, whole_record_of
from tracker.config.gating import load_gate_policy
from tracker.domain.calibration.repetition_text import not_calibrated_text
from tracker.domain.compare.view import ComparedBenchmark, ComparisonView, compare_parts
from tracker.domain.gate.rules import GatePolicy
from tracker.domain.gate.text import checks_of, deciding_text, scores_and_change_text, sides_text
from tracker.domain.gate.types import GateReport, GateWord
from tracker.domain.records.reason_text import samples_alone_text
from tracker.domain.records.types import Report
from tracker.domain.tables.answers import CHECKS, COMPARISON, checks_rows, comparison_rows

if TYPE_CHECKING:
    from pandas import DataFrame

_OF_SAMPLE = ["benchmark", "subset", "sample_id", "repeat"]
_SHARED = ["target", "prompt"]
_NOT_SHOWN = ["p_better", "n_common"]
"""Columns that a notebook leaves out, so that the reasons have room."""
_COLUMNS = (*_OF_SAMPLE, *_SHARED, "score", "status", "answer", "output_tokens")


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Comparison:
    """Two checkpoints, sample by sample."""

    table: DataFrame
    """One row for each benchmark: `tracker.schema("comparison")`."""
    _runs: ChosenRuns
    _sides: tuple[Report, Report]
    _view: ComparisonView

    def __repr__(self) -> str:
        before, after = (f"{side.run_id}@{side.step}" for side in self._sides)
        return f"Comparison({before} with {after}: {len(self.table)} benchmarks)"

    def _repr_html_(self) -> str:
        return shown_html(repr(self), self.table.drop(columns=_NOT_SHOWN))

    def samples(self) -> DataFrame:
        """Return the scores and answers of each question on both sides.

        Columns: benchmark, subset, sample_id, repeat, prompt, target, and score, status, answer and output_tokens, each
        with _before and _after. NaN: only the other side has the question.

        Raises:
            StoreError: samples are missing or damaged.
        """
        benchmarks = tuple(dict.fromkeys(self.table["benchmark"]))
        return self._samples(benchmarks)

    @property
    def notes(self) -> tuple[str, ...]:
        """Which noise is not known."""
        return _notes(self._view.benchmarks)

    def lost(self, benchmark: str) -> DataFrame:
        """Return the questions of a benchmark whose score is worse after, as `samples`.

        Raises:
            ConfigError: the benchmark was not compared.
            StoreError: samples are missing or damaged.
        """
        known = {one.benchmark: one for one in self._view.benchmarks}
        if benchmark not in known:
            raise no_benchmark(benchmark, known)
        found = self._samples((benchmark,))
        change = found["score_after"] - found["score_before"]
        worse = change < 0 if known[benchmark].higher_is_better else change > 0
        return found[worse].reset_index(drop=True)

    def _samples(self, benchmarks: tuple[str, ...]) -> DataFrame:
        both = []
        for side in self._sides:
            plan = SamplesOf(run=side.run_id, step=side.step, suite="", plan_id=side.plan_id, benchmarks=benchmarks)
            samples = Samples(_COLUMNS, (plan,), sample_reader(self._runs), status=None)
            both.append(samples.to_pandas())
        before, after = both
        found = before.merge(after, on=_OF_SAMPLE, how="outer", suffixes=("_before", "_after"))
        for name in _SHARED:
            found.insert(len(_OF_SAMPLE), name, found.pop(f"{name}_before").fillna(found.pop(f"{name}_after")))
        return found


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Gate:
    """The decision whether a candidate may replace a baseline."""

    passed: bool
    word: str
    """pass, regression, inconclusive, missing, or incomparable."""
    table: DataFrame
    """One row for each check: `tracker.schema("checks")`."""
    _report: GateReport

    def __repr__(self) -> str:
        return f"Gate({self.word}: {sides_text(self._report)})"

    def _repr_html_(self) -> str:
        title = f"{self.word}: {sides_text(self._report)}: {deciding_text(self._report)}"
        return shown_html(title, self.table.drop(columns=[*_NOT_SHOWN, "n_lost", "n_gained", "detectable"]))

    def __str__(self) -> str:
        """Return the decision and its reasons, one line for each check."""
        lines = [f"{self.word.upper()}: {sides_text(self._report)}: {deciding_text(self._report)}"]
        for check in checks_of(self._report):
            numbers = "" if check.compared is None else f"; {scores_and_change_text(check.compared)}"
            lines.append(f"  {check.name} ({check.kind}): {check.word}: {check.reason}{numbers}")
        return "\n".join([*lines, *self.notes])

    @property
    def notes(self) -> tuple[str, ...]:
        """Which noise is not known."""
        return _notes([check.compared for check in self._report.benchmarks if check.compared is not None])

    def __bool__(self) -> bool:
        """Refuse: `if gate:` would take "inconclusive" for a yes or a no.

        Raises:
            ConfigError: always.
        """
        raise ConfigError("a gate is neither true nor false", hint="use gate.passed, or gate.word")


def comparison_of(runs: ChosenRuns, before: str | int, after: str | int) -> Comparison:
    """Return checkpoint `after` compared with `before`.

    Raises:
        ConfigError: there is no such checkpoint.
        Incomparable: no benchmark can be compared.
        StoreError: samples are missing or damaged.
    """
    runs.samples_dir()
    history, policy = runs.history, runs.opened.policy
    first, second = _named(runs, (before, after))
    noise = noise_of_run(second.run_id, history, policy)
    view = compare_parts(parts_to_compare((first, second), history), policy, noise, examples=0)
    table = frame_of(COMPARISON, comparison_rows(view))
    return Comparison(table=table, _runs=runs, _sides=(first, second), _view=view)


def gate_decision(
    runs: ChosenRuns,
    candidate: str | int | os.PathLike[str],
    baseline: str | int | os.PathLike[str],
    policy: str | os.PathLike[str] | None,
) -> Gate:
    """Return whether `candidate` may replace `baseline`, by a policy file or the settings.

    Raises:
        CheckpointError: a folder is not a complete checkpoint.
        ConfigError: there is no such checkpoint, or the policy is wrong.
        StoreError: samples are missing or damaged.
    """
    runs.samples_dir()
    before, after = _record(runs, baseline), _record(runs, candidate)
    case = gathered(after, before, runs.history, _policy(runs, policy), runs.opened.policy.min_coverage)
    report = gate_of(case)
    table = frame_of(CHECKS, checks_rows(report))
    return Gate(passed=report.word is GateWord.PASS, word=str(report.word), table=table, _report=report)


def _notes(benchmarks: Sequence[ComparedBenchmark]) -> tuple[str, ...]:
    texts = (
        not_calibrated_text(one.benchmark for one in benchmarks if one.repetition is None),
        samples_alone_text([one.benchmark for one in benchmarks if one.is_jitter_unknown]),
    )
    return tuple(filter(None, texts))


def _record(runs: ChosenRuns, name: str | int | os.PathLike[str]) -> EvalRecord:
    """Return the record of a checkpoint with its samples; a folder or bucket prefix is evaluated first."""
    text = os.fspath(name) if isinstance(name, os.PathLike) else checkpoint_name(name)
    if is_reference(text):
        return whole_record_of(_named(runs, (text,))[0], runs.history)
    from tracker.api.acting import evaluate_here, pinned_at, run_of_gated, writable

    project = writable(runs)
    pinned = pinned_at(project, text, run_of_gated(project, text))
    return evaluate_here(project, pinned, lambda _: None, reuse=True).results[0][0]


def _policy(runs: ChosenRuns, path: str | os.PathLike[str] | None) -> GatePolicy:
    if path is not None:
        return load_gate_policy(Path(path))
    config = runs.opened.config
    return GatePolicy() if config is None else config.gate.to_policy()


def _named(runs: ChosenRuns, names: Sequence[str | int]) -> tuple[Report, ...]:
    return checkpoints_in(runs.history, [checkpoint_name(name) for name in names], own=runs.own())
