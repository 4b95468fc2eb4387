"""Sweeps: what is due begins, its plans go into the queue, and what workers hand in is kept.

    follow(service, now)          # one pass of a watcher: timetables, then what is open
    carry_on(service, now)        # what is open only, for the command that began a turn by hand
    take_sweep_result(record, service)    # a finished plan of a sweep

What the run's own evaluation has answered already is taken from there, and only the rest is asked.

A turn is stored with its plans before any of them is in the queue, and only by whoever finds it still due: a kill, a
second watcher or a holder of the lease that was frozen for an hour may repeat the rest, and doubles nothing.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
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
from tracker.domain.sweeps.types import Pick, Selector, Sweep, Timetable, Turn, TurnState
from tracker.ports import Pins, RecordStore, RequestQueue, Sweeps, Tracking

log = logging.getLogger(__name__)

LEASE_S = 60.0
"""How long another process waits for one that was killed while it began a turn."""


class Registered(Protocol):
    """A checkpoint as a model registry knows it."""

    @property
    def step(self) -> int:
        """Its step."""

    @property
    def digest(self) -> str:
        """Hash of its weights."""


@dataclass(kw_only=True)
class SweepsSeen:
    """What this process has seen of sweeps so far. The next start begins with an empty one."""

    quiet: dict[str, tuple[datetime, datetime]] = field(default_factory=dict)
    """Between which times nothing of a sweep is due, so that most passes ask nobody."""
    handed_in: set[tuple[str, datetime]] = field(default_factory=set)
    """Turns whose plans are in the queue."""


@dataclass(frozen=True, kw_only=True)
class SweepService:
    """What sweeps are carried out with."""

    run: str
    sweeps: Mapping[str, Sweep]
    store: Sweeps
    queue: RequestQueue
    records: RecordStore
    pins: Pins
    tracking: Tracking
    holder: str
    """Names this process in the lease."""
    registered: Callable[[str], Registered]
    """Asks MLflow's registry for `models:/NAME@ALIAS`. ConfigError, TrackingUnreachable: there is no answer."""
    seen: SweepsSeen = field(default_factory=SweepsSeen)


@dataclass(frozen=True, kw_only=True)
class SweepSelection:
    """Which checkpoints a sweep asks now, and what it could not find."""

    checkpoints: tuple[Checkpoint, ...]
    missing: tuple[str, ...]


def follow(service: SweepService, now: datetime) -> tuple[Turn, ...]:
    """Do what is due and return the turns that began, ended or were skipped."""
    noted = [turn for sweep in service.sweeps.values() for turn in _note_due(service, sweep, now)]
    return (*noted, *carry_on(service, now))


def carry_on(service: SweepService, now: datetime) -> tuple[Turn, ...]:
    """End the turn that is answered and begin the next one; return those that changed."""
    if not service.store.open_turns():  # most passes end with this one question
        return ()
    changed = [turn for running in _of(service, TurnState.RUNNING) for turn in _ended(service, running, now)]
    if _next_due(service) is None:
        return tuple(changed)
    if service.store.take(service.holder, now=now, lease_until=now + timedelta(seconds=LEASE_S)):
        while (due := _next_due(service)) is not None:  # asked again: another process may have begun one until now
            begun = begun_turn(service, due, now)
            if service.store.change(begun, was=TurnState.DUE):
                _hand_in(service, begun, now)
                changed.append(begun)
        service.store.release(service.holder)
    return tuple(changed)


def begun_turn(service: SweepService, turn: Turn, now: datetime) -> Turn:
    """Return a due turn with its plans, as the configuration of now wants them; or why there are none."""
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
    """Return the checkpoints that a sweep asks, each once, in the order in which it names them."""
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
        except (ConfigError, TrackingUnreachable) as error:  # the others can be asked all the same
            missing.append(f"{selector.text}: {error.message}")
    return SweepSelection(checkpoints=tuple(found), missing=tuple(missing))


def check_size(sweep: Sweep, checkpoints: int) -> None:
    """Check that a turn is not larger than somebody meant it to be.

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
    """Note a turn that a person asks for now; it begins when its time comes.

    Raises:
        ConfigError: it is too large.
    """
    check_size(sweep, len(select_checkpoints(service, sweep).checkpoints))
    turn = Turn(sweep=sweep.name, due_at=now, by_hand=True)
    service.store.add(turn)
    return turn


def take_sweep_result(record: EvalRecord, service: SweepService) -> EvalRecord:
    """Keep what a plan of a sweep came to, and return it. Nothing of it is a result of the run. Twice is harmless."""
    whole = _completed(record, service)
    _keep(whole, service)
    service.queue.acknowledge(record.plan.id)  # in the end: a crash in between repeats it
    return whole


def own_answers(service: SweepService, plans: Sequence[EvalPlan]) -> dict[str, EvalRecord]:
    """Return the run's own evaluations that answer plans of a sweep, by the id of the plan; without their samples."""
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


# --- private


def _note_due(service: SweepService, sweep: Sweep, now: datetime) -> Iterable[Turn]:
    timetable = sweep.timetable
    if timetable is None or _is_quiet(service, sweep.name, now):
        return
    known = service.store.look(sweep.name)
    look = started_look(timetable, known, now)
    waits = any(turn.sweep == sweep.name for turn in _of(service, TurnState.DUE))
    turn = turn_due(sweep.name, timetable, look=look, now=now, waits=waits)
    # The turn first: a crash in between finds the same one again, and it is stored once.
    if turn is not None and service.store.add(turn) and turn.state is TurnState.SKIPPED:
        yield turn
    if turn is not None or look != known:
        service.store.remember(sweep.name, look_of(timetable, now))
    service.seen.quiet[sweep.name] = now, _next(timetable, now)


def _is_quiet(service: SweepService, name: str, now: datetime) -> bool:
    since, until = service.seen.quiet.get(name, (now, now))
    if now < since:
        return False  # the clock was set back
    service.seen.quiet[name] = now, until
    return now < until


def _next(timetable: Timetable, now: datetime) -> datetime:
    found = next_time(timetable, now)
    if found is None:
        return now + timedelta(days=1)
    return found


def _next_due(service: SweepService) -> Turn | None:
    """Return the turn that may begin: none while another one is carried out."""
    if _of(service, TurnState.RUNNING):
        return None
    return next(iter(_of(service, TurnState.DUE)), None)


def _of(service: SweepService, state: TurnState) -> tuple[Turn, ...]:
    return tuple(turn for turn in service.store.open_turns() if turn.state is state)


def _ended(service: SweepService, turn: Turn, now: datetime) -> Iterable[Turn]:
    """Yield the turn as it ended, when everything of it is answered."""
    if _unanswered(service, turn):
        _hand_in(service, turn, now)
        return
    ended = replace(turn, state=TurnState.DONE, ended_at=now)
    if service.store.change(ended, was=TurnState.RUNNING):
        yield ended


def _hand_in(service: SweepService, turn: Turn, now: datetime) -> None:
    """Put a turn's plans into the queue: again after a start, because the process before may have been killed here."""
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
    """Return the run's own evaluation with its samples, None where it cannot stand for the plan's."""
    if own is None:
        return None
    whole = service.records.record(own.plan.id, [benchmark.name for benchmark in plan.suite.benchmarks])
    if whole is None or not is_whole(whole, plan):
        return None
    return whole


def _keep(record: EvalRecord, service: SweepService) -> None:
    service.tracking.publish_sweep(record)  # first: what has a result is not looked at again
    service.store.append(without_texts(record))


def _completed(record: EvalRecord, service: SweepService) -> EvalRecord:
    """Return the record with the scores that nobody was asked for, because the run's own evaluation has them."""
    if record.plan.suite.benchmarks:
        return record
    plan = _whole_plan(service, record.plan)
    own = _with_samples(own_answers(service, [plan]).get(plan.id), plan, service)
    if own is None:
        return replace(record, plan=plan)
    return with_own_scores(plan, own, record)


def _whole_plan(service: SweepService, asked: EvalPlan) -> EvalPlan:
    """Return the plan as its turn has it, with what was left out because the run's own evaluation answers it."""
    for turn in service.store.open_turns():
        for plan in turn.plans:
            if plan.id == asked.id:
                return plan
    before = service.store.results([asked.id]).get(asked.id)  # tried again after its turn has ended
    if before is None:
        return asked
    return before.plan


def _named(
    service: SweepService, selector: Selector, held: Mapping[str, Sequence[Checkpoint]]
) -> tuple[Checkpoint, ...]:
    """Return the held checkpoints that a selector names.

    Raises:
        ConfigError: there is none.
        TrackingUnreachable: MLflow would have to say which.
    """
    if selector.pick is Pick.REGISTERED:
        named = _registered(service, selector, held)
    else:
        named = _of_run(service, selector, held)
    if not named:
        raise ConfigError("checkpoint is not pinned", hint="increase keep.pins to keep more checkpoints")
    return named


def _registered(
    service: SweepService, selector: Selector, held: Mapping[str, Sequence[Checkpoint]]
) -> tuple[Checkpoint, ...]:
    wanted = service.registered(selector.text)
    for of_run in held.values():
        for checkpoint in of_run:
            if (checkpoint.step, checkpoint.digest) == (wanted.step, wanted.digest):
                return (checkpoint,)
    return ()


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
    wanted = best.checkpoint
    return tuple(c for c in held if (c.step, c.digest) == (wanted.step, wanted.digest))
