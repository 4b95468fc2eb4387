"""Finding the step of a loss among skipped and screened checkpoints, through the queue and the history."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from eval_jobs.errors import CheckpointNotFound, ConfigError, Incomparable
from eval_jobs.types import Checkpoint, Generation
from tests.unit.tracker.app.screening_bench import RUN, SCREENING, Bench, checkpoint, kind_of, through
from tracker.app.commands.bisect import Lost, Places, SearchStep, bisect
from tracker.app.tick import tick
from tracker.domain.compare.bisection import most_evaluations
from tracker.domain.compare.lost_between import Ends, LostBetween, remarks_on, sentence_of
from tracker.domain.verdicts.screening import Screening

LAST = 6400
SUMS = Lost(run_id=RUN, benchmark="sums")


def place(step: int) -> Callable[[], Checkpoint]:
    return partial(checkpoint, step)


def places(*, gone: tuple[int, ...] = ()) -> Places:
    return {step: _gone if step in gone else place(step) for step in range(100, LAST + 1, 100)}


def _gone() -> Checkpoint:
    raise CheckpointNotFound("the weights are gone", hint="name another")


def sparse(lost_at: int | None, *, screening: Screening | None = None) -> Bench:
    """A run of 64 checkpoints of which the first three and the last were evaluated."""
    bench = Bench(lost_at=lost_at, screening=screening)
    for step in (100, 200, 300, LAST):
        bench.save(step)
    return bench


def found_by(bench: Bench, lost: Lost = SUMS, where: Places | None = None) -> LostBetween:
    turn = SearchStep(clock=bench.fakes.clock, evaluated=lambda _: bench.settle(), show=lambda _, __: None)
    return bisect(bench.world, lost, places() if where is None else where, turn)


@pytest.mark.slow
@pytest.mark.parametrize("lost_at", [400, 500, 1700, 3100, 3200, 6300, 6400])
def test_the_step_is_found_with_few_evaluations_of_whole_plans(lost_at: int) -> None:
    bench = sparse(lost_at)
    before = len(bench.plans)
    found = found_by(bench)
    assert (found.good, found.bad) == (lost_at - 100, lost_at)
    assert found.evaluated == len(bench.plans) - before <= most_evaluations(60)
    assert found.is_sure
    assert found.ci_low < found.delta < found.ci_high < 0
    assert len(found.lost) > 40
    assert all(kind.endswith("whole") for kind in bench.kinds())


def test_the_finding_is_one_sentence() -> None:
    bench = sparse(3200)
    found = found_by(bench)
    assert sentence_of(found) == (
        f"sums: lost between step 3100 and step 3200 ({found.evaluated} of {found.checkpoints} checkpoints evaluated)"
    )
    assert remarks_on(found) == ()


def test_a_search_that_was_stopped_goes_on_where_it_was() -> None:
    bench = sparse(3200)
    turns = 0

    def stopped(_: Checkpoint) -> None:
        nonlocal turns
        turns += 1
        if turns == 3:
            raise KeyboardInterrupt
        bench.settle()

    turn = SearchStep(clock=bench.fakes.clock, evaluated=stopped, show=lambda _, __: None)
    with pytest.raises(KeyboardInterrupt):
        bisect(bench.world, SUMS, places(), turn)
    bench.settle()
    again = found_by(bench)
    whole = found_by(sparse(3200))
    assert (again.good, again.bad) == (whole.good, whole.bad)
    assert again.evaluated == whole.evaluated - 3
    assert found_by(bench).evaluated == 0


def test_a_checkpoint_whose_weights_are_gone_is_passed_over() -> None:
    found = found_by(sparse(3200), where=places(gone=(3100, 3200, 3300)))
    assert (found.good, found.bad) == (3000, 3400)


@pytest.mark.slow
def test_of_a_screened_checkpoint_only_the_rest_is_asked() -> None:
    """A loss that the screen does not hold shows at the next whole checkpoint, and is placed from there."""
    bench = Bench(lost_at=1500, is_hidden=True, screening=replace(SCREENING, every=10))
    through(bench, 2200)
    before = len(bench.plans)
    found = found_by(bench, where={step: place(step) for step in range(100, 2201, 100)})
    assert (found.good, found.bad) == (1400, 1500)
    assert max(bench.asked.values()) == 1
    assert all("rest sums" in kind_of(plan) for plan in bench.plans[before:])


def test_what_a_watcher_has_planned_meanwhile_is_waited_for_and_not_asked_by_another_plan() -> None:
    bench = sparse(3200, screening=replace(SCREENING, first=3, every=100))
    planned = (3000, 3100, 3200, 3300)
    for step in planned:
        bench.fakes.source.put(checkpoint(step))
    tick(bench.world, bench.state, bench.fakes.clock.now())
    assert bench.fakes.queue.open_steps(RUN) == frozenset(planned)
    found = found_by(bench, where={step: place(step) for step in planned})
    assert (found.good, found.bad) == (3100, 3200)
    assert max(bench.asked.values()) == 1
    assert {f"{step} screen" for step in planned} <= set(bench.kinds())


def test_without_a_loss_it_says_so() -> None:
    with pytest.raises(Incomparable, match="no significant loss in sums"):
        found_by(sparse(None))


def test_without_a_second_result_it_says_so() -> None:
    bench = Bench(screening=None)
    bench.save(100)
    with pytest.raises(Incomparable, match="sums has no complete result before the bad step"):
        found_by(bench)


def test_a_benchmark_or_a_step_that_is_not_there_is_named_with_those_that_are() -> None:
    bench = sparse(3200)
    with pytest.raises(ConfigError, match="no result of benchmark 'summs'") as refused:
        found_by(bench, Lost(run_id=RUN, benchmark="summs"))
    assert "sums" in refused.value.hint
    with pytest.raises(ConfigError, match="step 999 has no complete result"):
        found_by(bench, Lost(run_id=RUN, benchmark="sums", ends=Ends(good=999)))
    with pytest.raises(ConfigError, match="good step 300 is not before bad step 200"):
        found_by(bench, Lost(run_id=RUN, benchmark="sums", ends=Ends(good=300, bad=200)))


def test_results_of_other_settings_are_not_mixed_with_new_ones() -> None:
    bench = sparse(3200)
    world = bench.world
    suites = tuple(replace(suite, generation=Generation(seed=99)) for suite in world.measurement.suites)
    bench.use(replace(world, measurement=replace(world.measurement, suites=suites)))
    with pytest.raises(ConfigError, match="measured with settings that differ from the current ones"):
        found_by(bench)
