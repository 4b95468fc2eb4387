"""A watcher's pass with sweeps: their plans come after the run's own, and their results reach nothing of the run."""

from dataclasses import replace
from datetime import timedelta

from eval_jobs.queue.rules import lease_end
from eval_jobs.queue_types import Backlog
from tests.fakes.sweeps import FakeSweeps
from tests.sweeping import NOW, FakePins, answered, sweep_of
from tests.unit.tracker.app.fake_world import FakeWorld
from tests.unit.tracker.app.steps.test_sweeps import nobody_registered
from tracker.app.steps.sweeps import SweepService
from tracker.app.tick import tick
from tracker.app.world import WatchState, World
from tracker.domain.sweeps.types import TurnState

TWO = NOW.replace(hour=2)


def with_sweeps(fake: FakeWorld) -> World:
    pins = FakePins(checkpoints=[record.plan.checkpoint for record in fake.run.records])
    service = SweepService(
        run=fake.run.run_id,
        sweeps={"nightly": sweep_of()},
        store=FakeSweeps(),
        queue=fake.queue,
        records=fake.history,
        pins=pins,
        tracking=fake.tracking,
        holder="a",
        registered=nobody_registered,
    )
    return replace(fake.world(), sweeps=service)


def state_of(fake: FakeWorld) -> tuple[object, ...]:
    """Return everything that is known and told of the run."""
    run, history = fake.run.run_id, fake.history
    return (
        history.runs(),
        history.records(run),
        history.reports(run),
        history.incidents(run),
        history.open_alerts(run),
        history.scores(run).series.keys(),
        fake.tracking.records,
        fake.tracking.points,
    )


def test_the_worst_answers_to_a_sweep_change_nothing_that_is_known_or_told_of_the_run() -> None:
    fake = FakeWorld()
    world, state = with_sweeps(fake), WatchState()
    for record in fake.run.records:
        fake.queue.add(record.plan, now=NOW, backlog=Backlog.OLDEST)
    fake.work()
    tick(world, state, NOW)
    before = state_of(fake)
    assert len(fake.history.reports(fake.run.run_id)) == len(fake.run.records)
    begun = tick(world, state, TWO).turns
    assert [turn.state for turn in begun] == [TurnState.RUNNING]
    while claim := fake.queue.claim(worker="w", now=TWO, lease_until=lease_end(TWO)):
        assert claim.plan.sweep is not None
        fake.queue.finish(claim, answered(claim.plan, right=0), now=TWO)
    passed = tick(world, state, TWO + timedelta(seconds=1))
    assert [turn.state for turn in passed.turns] == [TurnState.DONE]
    assert passed.reports == ()
    assert state_of(fake) == before
    assert fake.queue.finished() == ()
    assert len(fake.tracking.sweeps) == 4


def test_what_a_sweep_still_asks_keeps_its_checkpoints_from_being_given_up() -> None:
    fake = FakeWorld()
    world, state = with_sweeps(fake), WatchState()
    tick(world, state, NOW)
    tick(world, state, TWO)
    assert world.sweeps is not None
    (turn,) = world.sweeps.store.open_turns()
    steps = {plan.checkpoint.step for plan in turn.plans}
    assert steps
    assert steps <= fake.queue.open_steps(fake.run.run_id)  # what `collect` keeps


def test_a_world_that_takes_no_care_of_sweeps_leaves_their_results_for_one_that_does() -> None:
    fake = FakeWorld()
    world, state = with_sweeps(fake), WatchState()
    tick(world, state, NOW)
    tick(world, state, TWO)
    while claim := fake.queue.claim(worker="w", now=TWO, lease_until=lease_end(TWO)):
        fake.queue.finish(claim, answered(claim.plan), now=TWO)
    tick(replace(world, sweeps=None), state, TWO + timedelta(seconds=1))
    assert len(fake.queue.finished()) == 4
    assert fake.history.runs() == ()
    tick(world, state, TWO + timedelta(seconds=2))
    assert fake.queue.finished() == ()
