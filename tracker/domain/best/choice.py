"""The best checkpoint of a run: one of its peak block, never the luckiest single one. Pure.

The best single checkpoint of a long run is the luckiest one: after 100 checkpoints of 100 questions each its score is 5
points above the true value. So consecutive checkpoints are averaged, as many as a verdict's peak has
(`blocks.peak_width`), and the best of these blocks decides. The result is the newest checkpoint of the block that is
not below its median: scores within a block differ by chance, but a broken checkpoint among good ones must be avoided.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from eval_jobs.types import Checkpoint, EvalPlan
from tracker.domain.records.display import steps_text
from tracker.domain.records.imported import stands_for_import
from tracker.domain.records.losses import Closing, Incident, Measure
from tracker.domain.records.metric_keys import MAX_KEY_CHARS, unique_keys
from tracker.domain.records.policy import Policy
from tracker.domain.records.tracking import Champion
from tracker.domain.regression.blocks import peak_width
from tracker.domain.scores.matrix import FloatArray
from tracker.domain.scores.run_scores import RunScores, without_step
from tracker.domain.scores.series import BenchmarkSeries

CHAMPION = "champion"
"""Alias of the best over the whole suite, in a model registry."""

_NOT_IN_ALIASES = re.compile(r"[^\w-]+")


@dataclass(frozen=True, kw_only=True)
class Best:
    """The best checkpoint of a run, and the evidence for the choice."""

    plan: EvalPlan
    """Plan of the newest record of the checkpoint that counts."""
    benchmarks: tuple[str, ...]
    """Benchmarks that count, with equal weights."""
    block: tuple[int, ...]
    """Steps of the best block, ascending; the checkpoint is one of them."""
    mean: float
    """Mean of the block over the benchmarks; up is better: the score, or 1 - score if lower is better."""
    passed_over: int | None = None
    """Step that would be the best if no loss were open at it; None: there is none."""

    @property
    def checkpoint(self) -> Checkpoint:
        """The best checkpoint."""
        return self.plan.checkpoint


def best_of(
    scores: RunScores,
    benchmark: str | None = None,
    *,
    incidents: Sequence[Incident] = (),
    min_coverage: float = Policy.min_coverage,
) -> Best | None:
    """Return the best checkpoint, or None if none has a score on everything that counts.

    Only checkpoints count that were evaluated in full on every benchmark, are not broken, and show no open loss of
    `incidents`, those of the run: with `benchmark`, of that one. Of several measurement settings the newest count, and
    of several suites the one that was measured at most checkpoints. Imported results count only if the run has no
    others: there are no pinned weights to return to. Without `benchmark`, the mean over the suite counts.

    `scores` are of one branch of a run (`rewind.scores_of_newest`), including `Measure.SCORE`.
    """
    broken, lost = _unfit(scores, incidents, benchmark)
    best = _best_without(scores, benchmark, broken | lost, min_coverage)
    if best is None or not lost:
        return best
    highest = _best_without(scores, benchmark, broken, min_coverage)
    # After a change of settings, all comparable checkpoints may show the loss: those before it have other settings.
    if highest is not None and highest.mean > best.mean and highest.checkpoint.step in lost:
        return replace(best, passed_over=highest.checkpoint.step)
    return best


def best_by_benchmark(
    scores: RunScores, *, incidents: Sequence[Incident] = (), min_coverage: float = Policy.min_coverage
) -> dict[str, Best]:
    """Return `best_of` of each benchmark that has one, in the order of the run's benchmarks."""
    found: dict[str, Best] = {}
    for name in scores.benchmarks():
        best = best_of(scores, name, incidents=incidents, min_coverage=min_coverage)
        if best is not None:
            found[name] = best
    return found


def champions_of(
    scores: RunScores, incidents: Sequence[Incident] = (), *, min_coverage: float = Policy.min_coverage
) -> tuple[Champion, ...]:
    """Return the champions of one branch of a run (`rewind.scores_of_newest`), the overall one first.

    The best block decides, never a lucky maximum, and no checkpoint with an open loss (`best_of`).
    """
    overall = best_of(scores, incidents=incidents, min_coverage=min_coverage)
    first = () if overall is None else (_champion(CHAMPION, overall),)
    single = best_by_benchmark(scores, incidents=incidents, min_coverage=min_coverage)
    aliases = aliases_of(scores.benchmarks())
    return (*first, *(_champion(aliases[name], best) for name, best in single.items()))


def aliases_of(benchmarks: Iterable[str]) -> dict[str, str]:
    """Return `best-<benchmark>` for each; a suffix derived from the name makes equal aliases distinct."""
    return {name: f"best-{part}" for name, part in unique_keys(benchmarks, _alias_part).items()}


def _best_without(scores: RunScores, benchmark: str | None, steps: Collection[int], min_coverage: float) -> Best | None:
    scores = _own(scores)
    suite = _main_suite(scores, benchmark)
    names = _benchmarks_of(scores, suite) if benchmark is None else (benchmark,)
    # The newest settings, also if only the other steps have others.
    keys = [found[-1].key for found in (scores.of(name, suite) for name in names) if found]
    for step in steps:
        scores = without_step(scores, step)
    series = [scores.series[key] for key in keys if key in scores.series]
    if series:
        return _peak(series, min_coverage)
    return None


def _unfit(scores: RunScores, incidents: Iterable[Incident], benchmark: str | None) -> tuple[set[int], set[int]]:
    """Return the steps of broken checkpoints, and of those with an open loss."""
    known = {step for series in scores.series.values() for step in series.steps}
    broken, lost = set[int](), set[int]()
    for incident in incidents:
        since = {step for step in known if step >= incident.onset_step}
        if _is_open(incident, benchmark):
            lost |= since
        elif incident.closed_by is Closing.TRANSIENT and not incident.benchmark:
            broken |= since - {step for step in since if step > (incident.last_step or incident.onset_step)}
    return broken, lost


def _is_open(incident: Incident, benchmark: str | None) -> bool:
    """Return whether a loss of the score is open: of `benchmark` or all together; None: of any benchmark."""
    if incident.closed_step is not None or incident.measure is not Measure.SCORE:
        return False
    fell = {incident.benchmark, *incident.benchmarks}
    return benchmark is None or benchmark in fell


def _own(scores: RunScores) -> RunScores:
    own = {k: series for k, series in scores.series.items() if not stands_for_import(series.plans[-1].checkpoint)}
    if own:
        return replace(scores, series=own)
    return scores


def _main_suite(scores: RunScores, benchmark: str | None) -> str | None:
    """Return the suite that was measured at most checkpoints; of several, the most recent one."""
    measured: dict[str, set[int]] = {}
    for series in scores.series.values():
        if benchmark in {None, series.key.benchmark}:
            measured.setdefault(series.key.suite, set()).update(series.steps)
    return max(measured, key=lambda suite: (len(measured[suite]), max(measured[suite]), suite), default=None)


def _benchmarks_of(scores: RunScores, suite: str | None) -> tuple[str, ...]:
    """Return the planned benchmarks of the newest checkpoint of a suite: benchmarks removed since do not count."""
    of_suite = [series for series in scores.series.values() if series.key.suite == suite]
    newest = max(of_suite, key=lambda s: (s.steps[-1], s.finished_at[-1]), default=None)
    if newest is None:
        return ()
    return tuple(benchmark.name for benchmark in newest.plans[-1].suite.benchmarks)


def _peak(series: Sequence[BenchmarkSeries], min_coverage: float) -> Best | None:
    rows = [_usable(one, min_coverage) for one in series]
    known = _plans_of_all(series, rows)
    if not known:
        return None
    steps, scored = list(known), []
    for one, of in zip(series, rows, strict=True):
        scored.append(one.matrices[Measure.SCORE].means[[of[step] for step in steps]])
    means: FloatArray = np.mean(scored, axis=0)
    first, width = _best_block(means)
    block = means[first : first + width]
    newest = first + int(np.flatnonzero(block >= np.median(block))[-1])
    return Best(
        plan=known[steps[newest]],
        benchmarks=tuple(one.key.benchmark for one in series),
        block=tuple(steps[first : first + width]),
        mean=float(block.mean()),
    )


def _plans_of_all(series: Sequence[BenchmarkSeries], rows: Sequence[Mapping[int, int]]) -> dict[int, EvalPlan]:
    """Return a plan of every step at which all series measured the same weights, ascending."""
    known: dict[int, EvalPlan] = {}
    for step in sorted(set.intersection(*map(set, rows))):
        plans = [one.plans[of[step]] for one, of in zip(series, rows, strict=True)]
        # The weights of a step may differ between series: it was saved again, and measured only in part since.
        if len({plan.checkpoint.digest for plan in plans}) == 1:
            known[step] = plans[-1]
    return known


def _usable(series: BenchmarkSeries, min_coverage: float) -> dict[int, int]:
    means = series.matrices[Measure.SCORE].means
    rows = series.whole_rows(min_coverage).tolist()
    return {series.steps[row]: row for row in rows if not np.isnan(means[row])}


def _best_block(means: FloatArray) -> tuple[int, int]:
    """Return the index and width of the best block of consecutive checkpoints; of equal ones the newest."""
    width = min(means.size, peak_width(None, means.size))
    sums = np.convolve(means, np.ones(width), mode="valid")
    return int(np.flatnonzero(sums >= sums.max() - 1e-12 * width)[-1]), width


def _alias_part(benchmark: str) -> str:
    return _NOT_IN_ALIASES.sub("-", benchmark)[:MAX_KEY_CHARS]


def _champion(alias: str, best: Best) -> Champion:
    what = best.benchmarks[0] if len(best.benchmarks) == 1 else f"{len(best.benchmarks)} benchmarks"
    reason = f"{what}: best block {steps_text(best.block)}, mean {best.mean:.3f}"
    if best.passed_over is not None:
        reason += f"; step {best.passed_over} scores higher, with a loss that is open"
    return Champion(alias=alias, checkpoint=best.checkpoint, plan_id=best.plan.id, reason=reason)
