"""Sweeps: begins due sweep runs (`Turn`), queues their plans, and stores the results of workers.

    follow(service, now)          # one pass of a watcher: timetables, then open sweep runs
    carry_on(service, now)        # open sweep runs only, for the command that began one on demand
    take_sweep_result(record, service)    # a finished plan of a sweep

Scores that the run's own evaluations have already are reused, and only the rest is evaluated.

A sweep run is stored with its plans before any of them is queued, and only by the process that finds it still due.
So a kill, a second watcher or a lease holder that was frozen for an hour may repeat the rest, without duplicates.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Protocol

from eval_jobs.errors import ConfigError, TrackingUnreachable
from eval_jobs.queue_types import Backlog
from eval_jobs.types import Checkpoint, EvalPlan, EvalRecord
from tracker.app.steps.best_of_run import best_of_run
from tracker.domain.records.display import count_text
from tracker.domain.sweeps.board import without_texts
from tracker.domain.sweeps.cron import look_of, next_time, started_look, turn_due
from tracker.domain.sweeps.matrix import count_variants, plans_of
from tracker.domain.sweeps.reuse import is_whole, own_answer, plan_without_scores, run_of_target, with_own_scores
from tracker.domain.sweeps.selectors import newest_of_steps, selected_checkpoints
from tracker.domain.sweeps.types import Pick, Selector, Sweep, Turn, TurnState
from tracker.ports import JudgedRecordStore, Pins, RequestQueue, Sweeps, Tracking

log = logging.getLogger(__name__)

LEASE_S = 60.0
"""Seconds that other processes wait if one was killed while it began a sweep run."""


class Registered(Protocol):
    """A checkpoint as registered in a model registry."""

    @property
    def step(self) -> int:
        """Training step."""

    @property
    def digest(self) -> str:
        """Hash of the weights."""


@dataclass(kw_only=True)
class SweepsSeen:
    """What this process has seen of sweeps so far. A restart begins with an empty state."""

    quiet: dict[str, tuple[datetime, datetime]] = field(default_factory=dict)
    """By sweep, the interval in which it is not due, so that most passes need no store."""
    handed_in: set[tuple[str, datetime]] = field(default_factory=set)
    """Sweep runs whose plans are in the queue."""


@dataclass(frozen=True, kw_only=True)
class SweepService:
    """What sweeps are executed with."""

    run: str
    sweeps: Mapping[str, Sweep]
    store: Sweeps
    queue: RequestQueue
    records: JudgedRecordStore
    pins: Pins
    tracking: Tracking
    holder: str
    """Name of this process in the lease."""
    registered: Callable[[str], Registered]
    """Resolves `models:/NAME@ALIAS` in MLflow's registry; raises ConfigError or TrackingUnreachable if it cannot."""
    seen: SweepsSeen = field(default_factory=SweepsSeen)


@dataclass(frozen=True, kw_only=True)
class SweepSelection:
    """Which checkpoints a sweep evaluates now, and which selectors found none."""

    checkpoints: tuple[Checkpoint, ...]
    missing: tuple[str, ...]


def follow(service: SweepService | None, now: datetime) -> tuple[Turn, ...]:
    """Execute what is due, and return the sweep runs that began, ended or were skipped; None: another process does."""
    if service is None:
        return ()
    noted = [turn for sweep in service.sweeps.values() for turn in _note_due(service, sweep, now)]
    return (*noted, *carry_on(service, now))


def carry_on(service: SweepService, now: datetime) -> tuple[Turn, ...]:
    """End the sweep run whose plans all have results, begin the next one, and return those that changed."""
    if not service.store.open_turns():  # most passes end with this one query
        return ()
    changed = [turn for running in _of(service, TurnState.RUNNING) for turn in _ended(service, running, now)]
    if _next_due(service) is None:
        return tuple(changed)
    if service.store.take(service.holder, now=now, lease_until=now + timedelta(seconds=LEASE_S)):
        while (due := _next_due(service)) is not None:  # read again: another process may have begun one
            begun = begun_turn(service, due, now)
            if service.store.change(begun, was=TurnState.DUE):
                _hand_in(service, begun, now)
                changed.append(begun)
        service.store.release(service.holder)
    return tuple(changed)


def begun_turn(service: SweepService, turn: Turn, now: datetime) -> Turn:
    """Return a due sweep run with its plans by the current configuration; or with the reason why it has none."""
    sweep = service.sweeps.get(turn.sweep)
    if sweep is None:
        note = "removed from tracker.toml"
        return replace(turn, state=TurnState.SKIPPED, note=note, ended_at=now)
    try:
        choice = select_checkpoints(service, sweep)
        check_size(sweep, len(choice.checkpoints))
    except ConfigError as error:
        return replace(turn, state=TurnState.REFUSED, note=error.message, ended_at=now)
    plans = plans_of(sweep, choice.checkpoints, run=service.run, due_at=turn.due_at)
    note = "; ".join(choice.missing)
    if not plans:
        return replace(turn, state=TurnState.DONE, note=note or "nothing to evaluate", started_at=now, ended_at=now)
    return replace(turn, state=TurnState.RUNNING, plans=plans, note=note, started_at=now)


def select_checkpoints(service: SweepService, sweep: Sweep) -> SweepSelection:
    """Return the checkpoints that a sweep evaluates, each once, in the order of its selectors."""
    if not sweep.checkpoints:
        return SweepSelection(checkpoints=(), missing=())
    held: dict[str, list[Checkpoint]] = {}
    for pin in service.pins.held():
        held.setdefault(pin.checkpoint.run_id, []).append(pin.checkpoint)
    found: dict[Checkpoint, None] = {}
    missing = []
    for selector in sweep.checkpoints:
        try:
            found |= dict.fromkeys(_named(service, selector, held))
        except (ConfigError, TrackingUnreachable) as error:  # the other selectors can still be used
            missing.append(f"{selector.text}: {error.message}")
    return SweepSelection(checkpoints=tuple(found), missing=tuple(missing))


def check_size(sweep: Sweep, checkpoints: int) -> None:
    """Check that a sweep run is not larger than `max_evaluations` allows.

    Raises:
        ConfigError: it is.
    """
    targets, each = checkpoints + len(sweep.endpoints), count_variants(sweep.axes)
    if targets * each > sweep.max_evaluations:
        raise ConfigError(
            f"sweep {sweep.name} needs {targets * each:,} evaluations ({count_text(targets, 'target')} x "
            f"{count_text(each, 'variant')}), more than max_evaluations = {sweep.max_evaluations:,}",
            hint="use fewer checkpoints or values, or increase max_evaluations in its [[schedule]]",
        )


def begin_by_hand(service: SweepService, sweep: Sweep, now: datetime) -> Turn:
    """Store a sweep run on demand; it begins when no other one is running.

    Raises:
        ConfigError: it is too large.
    """
    check_size(sweep, len(select_checkpoints(service, sweep).checkpoints))
    turn = Turn(sweep=sweep.name, due_at=now, by_hand=True)
    service.store.add(turn)
    return turn


def take_sweep_result(record: EvalRecord, service: SweepService) -> EvalRecord:
    """Store the result of a sweep's plan, and return it. It is not a result of the run. Repeating it is harmless."""
    whole = _completed(record, service)
    _keep(whole, service)
    service.queue.acknowledge(record.plan.id)  # last: a crash in between repeats the rest harmlessly
    return whole


def own_answers(service: SweepService, plans: Sequence[EvalPlan]) -> dict[str, EvalRecord]:
    """Return the run's own evaluations that cover plans of a sweep, by the id of the plan, without samples."""
    records: dict[str, tuple[EvalRecord, ...]] = {}
    found: dict[str, EvalRecord] = {}
    for plan in plans:
        run = run_of_target(plan)
        if run not in records:
            records[run] = service.records.records(run)
        own = own_answer(plan, records[run])
        if own is not None:
            found[plan.id] = own
    return found


def _note_due(service: SweepService, sweep: Sweep, now: datetime) -> Iterable[Turn]:
    timetable = sweep.timetable
    if timetable is None or _is_quiet(service, sweep.name, now):
        return
    known = service.store.look(sweep.name)
    look = started_look(timetable, known, now)
    waits = any(turn.sweep == sweep.name for turn in _of(service, TurnState.DUE))
    turn = turn_due(sweep.name, timetable, look=look, now=now, waits=waits)
    # The sweep run first: after a crash in between the same one is found again, and it is stored once.
    if turn is not None and service.store.add(turn) and turn.state is TurnState.SKIPPED:
        yield turn
    if turn is not None or look != known:
        service.store.remember(sweep.name, look_of(timetable, now))
    service.seen.quiet[sweep.name] = now, next_time(timetable, now) or now + timedelta(days=1)


def _is_quiet(service: SweepService, name: str, now: datetime) -> bool:
    since, until = service.seen.quiet.get(name, (now, now))
    if now < since:
        return False  # the clock was set back
    service.seen.quiet[name] = now, until
    return now < until


def _next_due(service: SweepService) -> Turn | None:
    """Return the sweep run that may begin: none while another one is running."""
    if _of(service, TurnState.RUNNING):
        return None
    return next(iter(_of(service, TurnState.DUE)), None)


def _of(service: SweepService, state: TurnState) -> tuple[Turn, ...]:
    return tuple(turn for turn in service.store.open_turns() if turn.state is state)


def _ended(service: SweepService, turn: Turn, now: datetime) -> Iterable[Turn]:
    """Yield the ended sweep run if all its plans have results; otherwise make sure that they are queued."""
    if _unanswered(service, turn):
        _hand_in(service, turn, now)
        return
    ended = replace(turn, state=TurnState.DONE, ended_at=now)
    if service.store.change(ended, was=TurnState.RUNNING):
        yield ended


def _hand_in(service: SweepService, turn: Turn, now: datetime) -> None:
    """Queue the plans of a sweep run, also once after each start: the previous process may have been killed here."""
    key = turn.sweep, turn.due_at
    if key in service.seen.handed_in or turn.state is not TurnState.RUNNING:
        return
    left = _unanswered(service, turn)
    own = own_answers(service, left)
    for plan in left:
        known = _with_samples(own.get(plan.id), plan, service)
        if known is None:
            service.queue.add(plan, now=now, backlog=Backlog.ALL, keep=True)
        elif plan.loads:
            service.queue.add(plan_without_scores(plan), now=now, backlog=Backlog.ALL, keep=True)
        else:
            _keep(with_own_scores(plan, known), service)
    service.seen.handed_in.add(key)


def _unanswered(service: SweepService, turn: Turn) -> list[EvalPlan]:
    answered = service.store.answered([plan.id for plan in turn.plans])
    return [plan for plan in turn.plans if plan.id not in answered]


def _with_samples(own: EvalRecord | None, plan: EvalPlan, service: SweepService) -> EvalRecord | None:
    """Return the run's own evaluation with its samples; None if it cannot replace the plan's."""
    if own is None:
        return None
    whole = service.records.record(own.plan.id, [benchmark.name for benchmark in plan.suite.benchmarks])
    if whole is None or not is_whole(whole, plan):
        return None
    return whole


def _keep(record: EvalRecord, service: SweepService) -> None:
    service.tracking.publish_sweep(record)  # first: a plan that has a result is not processed again
    service.store.append(without_texts(record))


def _completed(record: EvalRecord, service: SweepService) -> EvalRecord:
    """Return the record with the scores that were not evaluated because the run's own evaluation has them."""
    if record.plan.suite.benchmarks:
        return record
    plan = _whole_plan(service, record.plan)
    own = _with_samples(own_answers(service, [plan]).get(plan.id), plan, service)
    if own is None:
        return replace(record, plan=plan)
    return with_own_scores(plan, own, record)


def _whole_plan(service: SweepService, asked: EvalPlan) -> EvalPlan:
    """Return the plan as its sweep run has it, with the benchmarks that the run's own evaluation covers."""
    for turn in service.store.open_turns():
        for plan in turn.plans:
            if plan.id == asked.id:
                return plan
    before = service.store.results([asked.id]).get(asked.id)  # repeated after its sweep run has ended
    if before is None:
        return asked
    return before.plan


def _named(
    service: SweepService, selector: Selector, held: Mapping[str, Sequence[Checkpoint]]
) -> tuple[Checkpoint, ...]:
    """Return the pinned checkpoints that a selector names.

    Raises:
        ConfigError: there is none.
        TrackingUnreachable: MLflow is needed and not reachable.
    """
    if selector.pick is Pick.REGISTERED:
        named = _equal_to(service.registered(selector.text), chain.from_iterable(held.values()))[:1]
    else:
        named = _of_run(service, selector, held)
    if not named:
        raise ConfigError("checkpoint is not pinned", hint="increase keep.pins to keep more checkpoints")
    return named


def _of_run(
    service: SweepService, selector: Selector, held: Mapping[str, Sequence[Checkpoint]]
) -> tuple[Checkpoint, ...]:
    run = selector.run or service.run
    of_run = newest_of_steps(held.get(run, ()))
    if not of_run:
        raise ConfigError(f"no pinned checkpoint of {run}", hint="increase keep.pins to keep more checkpoints")
    if selector.pick is Pick.BEST:
        return _best(service, run, selector, of_run)
    return selected_checkpoints(selector, of_run)


def _best(service: SweepService, run: str, selector: Selector, held: Sequence[Checkpoint]) -> tuple[Checkpoint, ...]:
    best = best_of_run(run, service.records, selector.benchmark or None)
    if best is None:
        of = selector.benchmark or "all benchmarks of its suite"
        raise ConfigError(f"no checkpoint of {run} has a score for {of}", hint="evaluate one first")
    return _equal_to(best.checkpoint, held)


def _equal_to(wanted: Registered, held: Iterable[Checkpoint]) -> tuple[Checkpoint, ...]:
    return tuple(c for c in held if (c.step, c.digest) == (wanted.step, wanted.digest))
