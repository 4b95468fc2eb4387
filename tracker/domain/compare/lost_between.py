"""Input and result of a bisection: scores of one benchmark of a run, on the samples they share. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from eval_jobs.errors import ConfigError, Incomparable
from tracker.domain.compare.bisection import Border, Search
from tracker.domain.records.display import count_text, names_text, p_value_text
from tracker.domain.records.losses import Incident, Measure
from tracker.domain.records.types import Baseline
from tracker.domain.regression.blocks import Blocks
from tracker.domain.regression.detector import Track, blocks_test, jitter_of
from tracker.domain.regression.pooled_test import PooledTest
from tracker.domain.scores.flips import RIGHT
from tracker.domain.scores.matrix import FloatArray, IntArray, ScoreMatrix, values_at
from tracker.domain.scores.series import BenchmarkSeries

SURE_P = 0.01
"""Significance level of the loss at the border, for a p-value multiplied by the number of possible borders."""

_POOLED = 4
"""Maximum number of evaluated checkpoints on each side, nearest to the border, that the loss is measured on."""


@dataclass(frozen=True, kw_only=True)
class Ends:
    """Steps given by the user; None means that the run's own results determine the step."""

    good: int | None = None
    bad: int | None = None


@dataclass(frozen=True, kw_only=True)
class LostBetween:
    """Where a benchmark was lost, as far as the available checkpoints show."""

    run_id: str
    benchmark: str
    good: int
    """The last step before the loss."""
    bad: int
    """The first step with the loss."""
    checkpoints: int
    """Number of checkpoints from the good end to the bad one, both included: evaluated, or available."""
    evaluated: int
    """Number of checkpoints that this search evaluated."""
    delta: float
    """Mean after the border minus mean before it; up is better."""
    ci_low: float
    """95 % interval of `delta`, training jitter included."""
    ci_high: float
    p_worse: float
    """One-sided p of "worse", times the number of possible borders."""
    n_common: int
    lost: tuple[str, ...]
    """IDs of the samples that were right before the border and are wrong after it."""
    gained: int
    odd_steps: tuple[int, ...]
    """Steps with a score on the wrong side of the midpoint: the loss is not a single drop."""

    @property
    def is_sure(self) -> bool:
        """Whether the loss is significant at `SURE_P`."""
        return self.p_worse < SURE_P


def ends_of(series: BenchmarkSeries, rows: IntArray, incidents: Iterable[Incident], wanted: Ends) -> tuple[int, int]:
    """Return a good step and a later bad one.

    By default the bad one is where the newest loss was detected, else the newest evaluated step. The good one is the
    last step of the baseline of that loss, else the best step before it.

    Raises:
        ConfigError: a given step has no usable result, or the good one is not before the bad one.
        Incomparable: there are fewer than two complete results, or no significant loss between the two steps.
    """
    known = [series.steps[row] for row in rows]
    name = series.key.benchmark
    _check_known((wanted.good, wanted.bad), known, name)
    good, bad, before = wanted.good, wanted.bad, None
    if bad is None:
        bad, before = _bad_of(known, name, incidents)
    earlier = rows[[bad is not None and step < bad for step in known]]
    if bad is None or not earlier.size:
        raise Incomparable(
            f"{name} has no complete result before the bad step ({count_text(len(known), 'complete result')} in all)",
            hint="evaluate more checkpoints with `tracker evaluate CHECKPOINT`",
        )
    if good is None:
        good = _best_of(series, earlier) if before is None else before
    if good >= bad:
        raise ConfigError(f"good step {good} is not before bad step {bad}", hint="set --good to a step before --bad")
    _check_lost(series, rows, good, bad)
    return good, bad


def _best_of(series: BenchmarkSeries, rows: IntArray) -> int:
    """Return the step of the best checkpoint, the newest of equally good ones."""
    means = _common_means(series.matrices[Measure.SCORE], rows)
    return series.steps[int(rows[np.flatnonzero(means == means.max())[-1]])]


def _check_known(wanted: Iterable[int | None], known: Sequence[int], benchmark: str) -> None:
    for step in wanted:
        if step is not None and step not in known:
            shown = ", ".join(map(str, known[-20:])) or "none"
            raise ConfigError(f"step {step} has no complete result of {benchmark}", hint=f"evaluated steps: {shown}")


def search_of(series: BenchmarkSeries, rows: IntArray, ends: tuple[int, int], present: Iterable[int]) -> Search:
    """Return the search between two evaluated steps; `present` are further steps that could be evaluated."""
    good, bad = ends
    between = [int(row) for row in rows if good <= series.steps[row] <= bad]
    means = _common_means(series.matrices[Measure.SCORE], np.array(between, dtype=np.int64))
    looks = {series.steps[row]: float(mean) for row, mean in zip(between, means, strict=True)}
    steps = sorted({*looks, *(step for step in present if good < step < bad)})
    return Search(steps=tuple(steps), looks=looks)


def lost_between(run_id: str, series: BenchmarkSeries, search: Search, *, evaluated: int) -> LostBetween:
    """Return the result of a finished search."""
    border, matrix = search.border(), series.matrices[Measure.SCORE]
    sides = _sides(series, border)
    test = _test(series, sides, up_to=border.good)
    low, high = test.interval()
    before, after = (values_at(matrix, rows).mean(axis=0) for rows in (sides.base, sides.new))
    lost = np.flatnonzero((before > RIGHT) & (after <= RIGHT))
    return LostBetween(
        run_id=run_id,
        benchmark=series.key.benchmark,
        good=border.good,
        bad=border.bad,
        checkpoints=len(search.steps),
        evaluated=evaluated,
        delta=test.delta,
        ci_low=max(low, -1.0),
        ci_high=min(high, 1.0),
        p_worse=test.p_worse(len(search.looks) - 1),
        n_common=test.n,
        lost=tuple(series.sample_ids[i] for i in lost),
        gained=int(np.count_nonzero((before <= RIGHT) & (after > RIGHT))),
        odd_steps=border.odd_steps,
    )


def sentence_of(found: LostBetween) -> str:
    """Return the finding in one sentence, without a full stop."""
    counted = f"{found.evaluated} of {found.checkpoints} checkpoints evaluated"
    return f"{found.benchmark}: lost between step {found.good} and step {found.bad} ({counted})"


def remarks_on(found: LostBetween) -> tuple[str, ...]:
    """Return the reasons to doubt the finding, one sentence each."""
    doubts = []
    if not found.is_sure:
        doubts.append(f"not significant ({p_value_text(found.p_worse)}): the drop may be noise")
    if found.odd_steps:
        names = names_text([f"step {step}" for step in found.odd_steps])
        doubts.append(f"not one clean drop: scores at {names} are on the wrong side of the midpoint")
    return tuple(doubts)


def _bad_of(known: Sequence[int], benchmark: str, incidents: Iterable[Incident]) -> tuple[int | None, int | None]:
    """Return the bad step, and the last step of the baseline of the loss that was detected there; None: unknown."""
    bad, good = (known[-1] if known else None), None
    for one in sorted(incidents, key=lambda incident: incident.opened_step):
        if (one.benchmark, one.subset, one.measure) != (benchmark, "", Measure.SCORE) or one.opened_step not in known:
            continue
        bad, good = one.opened_step, None
        if one.drop is not None and not one.drop.is_pinned and one.drop.baseline_steps[-1] in known:
            good = one.drop.baseline_steps[-1]
    return bad, good


def _common_means(matrix: ScoreMatrix, rows: IntArray) -> FloatArray:
    """Return the mean of every row over the samples that all of them scored, shape (len(rows),)."""
    values = values_at(matrix, rows)
    common = ~np.isnan(values).any(axis=0)
    means: FloatArray = values[:, common].mean(axis=1) if common.any() else np.nanmean(values, axis=1)
    return means


def _check_lost(series: BenchmarkSeries, rows: IntArray, good: int, bad: int) -> None:
    search = search_of(series, rows, (good, bad), ())
    name, first, last = series.key.benchmark, search.looks[good], search.looks[bad]
    if first > last:
        test = _test(series, _sides(series, search.border()), up_to=good)
        if test.p_worse(len(search.looks) - 1) < SURE_P:
            return
    if not series.higher_is_better:
        first, last = 1 - first, 1 - last
    shown = f"{first:.3g} at step {good}, {last:.3g} at step {bad}"
    raise Incomparable(f"no significant loss in {name}: {shown}", hint="choose other steps with --good and --bad")


def _sides(series: BenchmarkSeries, border: Border) -> Blocks:
    rows = {step: row for row, step in enumerate(series.steps)}
    return Blocks(
        baseline=Baseline.GIVEN,
        new=np.array([rows[step] for step in border.bad_steps[:_POOLED]], dtype=np.int64),
        base=np.array([rows[step] for step in border.good_steps[-_POOLED:]], dtype=np.int64),
    )


def _test(series: BenchmarkSeries, sides: Blocks, *, up_to: int) -> PooledTest:
    """Return the test of a border; the jitter is estimated from the checkpoints up to step `up_to`."""
    matrix = series.matrices[Measure.SCORE]
    healthy = np.flatnonzero((np.array(series.steps) <= up_to) & series.is_whole)
    jitter = jitter_of([Track(scores=matrix, rows=healthy)])[0]
    return blocks_test(matrix, sides.new, sides.base, jitter)
