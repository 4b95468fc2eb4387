"""Which plans are queued for the checkpoints that were found, and what waits because other settings ask it again.

A change of settings may be a mistake, and asking every checkpoint again takes hours: the cost is logged first, and
nothing is asked for `watch.reask_wait_s`. Undoing the change within that time asks nothing.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from eval_jobs.ports import PlanQueue
from eval_jobs.queue_types import Backlog
from eval_jobs.types import Checkpoint, EvalPlan, EvalRecord
from tracker.app.plans import first_plans, is_baseline, still_to_ask
from tracker.app.steps.known_results import KnownResults
from tracker.app.world import Reasks, WatchState, World
from tracker.domain.records.display import count_text, duration_text
from tracker.domain.sweeps.estimate import estimate_of

log = logging.getLogger(__name__)


def plan_found(world: World, state: WatchState, now: datetime) -> None:
    """Queue the plans of what was found and publish its curves; what fails stays found, behind the others."""
    known = KnownResults(world.history, world.keeping.run, world.queue)
    for checkpoint in tuple(state.found):
        if state.is_held(state.found[-1]):
            return  # evaluations would fail
        at = f"step {checkpoint.step} of {checkpoint.run_id}"
        with state.aside.around(f"plan {checkpoint.uri}", f"cannot queue the evaluation of {at}") as is_due:
            if is_due:
                _plan(world, state, checkpoint, known, now)
                state.found.remove(checkpoint)
        if checkpoint not in state.found:
            with state.aside.around(f"curves {checkpoint.uri}", f"cannot publish the curves of {at}"):
                world.publish_training(checkpoint)


def _plan(world: World, state: WatchState, checkpoint: Checkpoint, known: KnownResults, now: datetime) -> None:
    first = state.first.setdefault(checkpoint.run_id, checkpoint)
    keep = checkpoint == first or is_baseline(checkpoint, world.policy)
    for whole in first_plans(checkpoint, world, state, keep=keep):
        plan = still_to_ask(whole, known, world.queue)
        if plan is None:
            _take_over(state, whole, known, now)
        elif _is_reask(plan, known, world.queue):
            state.reasks.checkpoints[checkpoint.uri] = checkpoint
        else:
            # plan.id is a content hash: adding twice is a no-op
            world.queue.add(plan, now=now, backlog=world.order.backlog, keep=keep)
    world.wake_workers()  # before the curves: long ones and a slow tracking store take time


def _is_reask(plan: EvalPlan, known: KnownResults, queue: PlanQueue) -> bool:
    """Return whether `plan` would ask a checkpoint that was evaluated, or is just being evaluated, once more."""
    if queue.known([plan.id]):
        return False
    return known.is_running(plan) or bool(known.own(plan.checkpoint))


def ask_again(world: World, state: WatchState, now: datetime) -> None:
    """Log what evaluated checkpoints lack, and queue it when the time to undo the change is over."""
    reasks = state.reasks
    if not reasks.checkpoints:
        return
    for uri in world.keeping.pins.given_up() & reasks.checkpoints.keys():
        del reasks.checkpoints[uri]  # `tracker gc` deleted its weights meanwhile
    is_due = (now - (reasks.since or now)).total_seconds() >= world.order.reask_wait_s
    if reasks.since is not None and not is_due:
        return  # what is missing is looked up twice, and not in every pass
    known = KnownResults(world.history, world.keeping.run, world.queue)
    missing = {one.uri: tuple(_missing(world, state, one, known)) for one in reasks.checkpoints.values()}
    if reasks.since is None:
        _announce(world, [plan for plans in missing.values() for plan in plans if not known.is_running(plan)])
        reasks.since = now
    if is_due:
        _release(world, reasks, missing, known, now)


def _release(
    world: World, reasks: Reasks, missing: Mapping[str, Sequence[EvalPlan]], known: KnownResults, now: datetime
) -> None:
    for uri, plans in missing.items():
        if not any(map(known.is_running, plans)):  # what it is being asked may be enough
            _queue_reasks(world, plans, now)
            del reasks.checkpoints[uri]
    if not reasks.checkpoints:
        reasks.since = None


def _queue_reasks(world: World, plans: Iterable[EvalPlan], now: datetime) -> None:
    """Queue them in the order of the steps and after all new checkpoints: losses are then found where they began."""
    for plan in plans:
        world.queue.add(plan, now=now, backlog=Backlog.OLDEST)
    world.wake_workers()


def _take_over(state: WatchState, plan: EvalPlan, known: KnownResults, now: datetime) -> None:
    """Have a checkpoint judged by known results of the same weights, unless its own newest results are these."""
    if known.current(plan) is not None:
        return
    record = known.record_of(plan, now)
    if record is not None:
        log.warning("step %d has known weights: their results are taken over", plan.checkpoint.step)
        state.reasks.taken_over[record.plan.id] = record


def _missing(world: World, state: WatchState, checkpoint: Checkpoint, known: KnownResults) -> Iterator[EvalPlan]:
    for whole in first_plans(checkpoint, world, state, keep=False):
        plan = still_to_ask(whole, known, world.queue)
        if plan is not None:
            yield plan


def _announce(world: World, plans: Sequence[EvalPlan]) -> None:
    if not plans:
        return  # what is being evaluated may be enough
    again = count_text(len({plan.checkpoint.uri for plan in plans}), "evaluated checkpoint")
    text = f"results missing at {again}: {_asked_text(world, plans)}"
    records: list[EvalRecord] = []
    for run_id in {plan.checkpoint.run_id for plan in plans}:
        records += world.history.records(run_id)
    expected = estimate_of(plans, records, ())
    if expected.total_s and not expected.unknown:
        text += f", about {duration_text(expected.total_s)}"
    if world.order.reask_wait_s:
        text += f"; starts in {duration_text(world.order.reask_wait_s)}, or now with `tracker watch --yes`"
        text += "; undo the change to ask nothing"
    log.warning("settings changed: %s", text)


def _asked_text(world: World, plans: Sequence[EvalPlan]) -> str:
    asked = []
    for benchmark, checkpoints in Counter(one for plan in plans for one in plan.suite.benchmarks).items():
        questions = world.measurement.questions_of(benchmark) or "unknown"
        asked.append(f"{benchmark.name} ({checkpoints} x {questions} questions)")
    return ", ".join(asked) or "latency only"
