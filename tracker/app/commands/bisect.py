"""`tracker bisect`: evaluates the fewest checkpoints that show where a benchmark regressed.

Plans go through the queue to a worker, and their records into the history, like all others. So a stopped search
resumes, and its results count for everything else too.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from eval_jobs.errors import CheckpointError, ConfigError
from eval_jobs.identity import rest_plan, series_fingerprint, series_serving_hash
from eval_jobs.ports import Clock
from eval_jobs.types import Checkpoint, EvalPlan, EvalRecord
from tracker.app.plans import plans_for
from tracker.app.world import World
from tracker.domain.compare.bisection import Search
from tracker.domain.compare.lost_between import Ends, LostBetween, ends_of, lost_between, search_of
from tracker.domain.records.imported import first_checkpoint
from tracker.domain.scores.matrix import IntArray
from tracker.domain.scores.series import BenchmarkSeries, SeriesKey
from tracker.domain.verdicts.screening import is_screen

log = logging.getLogger(__name__)

Places = Mapping[int, Callable[[], Checkpoint]]
"""Checkpoints that could be evaluated, by step; calling one pins it or raises `CheckpointError`."""


@dataclass(frozen=True, kw_only=True)
class Lost:
    """The loss to locate."""

    run_id: str
    benchmark: str
    ends: Ends = field(default_factory=Ends)


@dataclass(frozen=True, kw_only=True)
class SearchStep:
    """What the search needs from its caller."""

    clock: Clock
    evaluated: Callable[[Checkpoint], None]
    """Returns when all queued plans of a checkpoint are reviewed."""
    show: Callable[[Search, int], None]
    """Called with the step that is evaluated next."""


def bisect(world: World, lost: Lost, places: Places, turn: SearchStep) -> LostBetween:
    """Return where `lost.benchmark` regressed.

    Raises:
        ConfigError: the benchmark or a step has no result, or was measured with other settings than the current ones.
        Incomparable: there is no good checkpoint, no bad one, or no loss between them.
    """
    key = _newest_key(world, lost)
    series, rows = _looks(world, lost, key)
    ends = ends_of(series, rows, world.history.incidents(lost.run_id), lost.ends)
    evaluated: set[int] = set()
    gone: set[int] = set()
    while True:
        series, rows = _looks(world, lost, key)
        search = search_of(series, rows, ends, places.keys() - gone)
        step = search.next_step()
        if step is None:
            return lost_between(lost.run_id, series, search, evaluated=len(evaluated))
        _check_measured_alike(world, key)
        turn.show(search, step)
        _evaluate(world, lost, key, places[step], turn)
        (evaluated if step in _seen(world, lost, key) else gone).add(step)


def _evaluate(world: World, lost: Lost, key: SeriesKey, place: Callable[[], Checkpoint], turn: SearchStep) -> None:
    """Evaluate one checkpoint, unless its weights are gone."""
    try:
        checkpoint = place()
    except CheckpointError as error:
        log.warning("skipping checkpoint: %s", error)
        return
    if checkpoint.step in world.queue.open_steps(lost.run_id, sweeps=False):
        turn.evaluated(checkpoint)  # a watcher has planned it: do not evaluate the same with another plan
        if checkpoint.step in _seen(world, lost, key):
            return
    plans = _plans(world, checkpoint, lost.benchmark)
    for plan in plans:
        world.queue.add(plan, now=turn.clock.now(), backlog=world.order.backlog, keep=True)
    world.wake_workers()
    turn.evaluated(checkpoint)


def _plans(world: World, checkpoint: Checkpoint, benchmark: str) -> tuple[EvalPlan, ...]:
    """Return what a watcher would plan, or the rest if its screen left something out."""
    records = world.history.records(checkpoint.run_id)
    for record in reversed(records):
        if record.plan.checkpoint.digest == checkpoint.digest and _leaves_out(record, benchmark):
            return (rest_plan(record.plan, [benchmark]),)
    plans = plans_for(checkpoint, world.measurement, first=first_checkpoint(checkpoint, records))
    return tuple(plan for plan in plans if benchmark in [b.name for b in plan.suite.benchmarks])


def _leaves_out(screen: EvalRecord, benchmark: str) -> bool:
    if not is_screen(screen.plan):
        return False
    left_out = [result.benchmark for result in screen.results if result.left_out]
    return benchmark in left_out


def _newest_key(world: World, lost: Lost) -> SeriesKey:
    scores = world.history.scores(lost.run_id)
    found = scores.of(lost.benchmark)
    if not found:
        raise ConfigError(
            f"no result of benchmark {lost.benchmark!r} in run {lost.run_id}",
            hint=f"evaluated benchmarks: {', '.join(scores.benchmarks()) or 'none yet'}",
        )
    return found[-1].key


def _looks(world: World, lost: Lost, key: SeriesKey) -> tuple[BenchmarkSeries, IntArray]:
    series = world.history.scores(lost.run_id).series[key]
    return series, series.whole_rows(world.policy.min_coverage)


def _seen(world: World, lost: Lost, key: SeriesKey) -> frozenset[int]:
    series, rows = _looks(world, lost, key)
    return frozenset(series.steps[row] for row in rows)


def _check_measured_alike(world: World, key: SeriesKey) -> None:
    """Raise `ConfigError` if new results could not be compared with the existing ones."""
    serving = series_serving_hash(world.measurement.serve)
    for suite in world.measurement.suites:
        fingerprints = [series_fingerprint(benchmark, suite) for benchmark in suite.benchmarks]
        if (suite.name, serving) == (key.suite, key.serving) and key.fingerprint in fingerprints:
            return
    raise ConfigError(
        f"cannot bisect: {key.benchmark} was measured with settings that differ from the current ones",
        hint="restore the settings of its newest results, or evaluate a good and a bad checkpoint again",
    )
