"""A queue in memory, with the rules of the real one."""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from eval_jobs.queue.rules import (
    MAX_LEASE_S,
    MAX_REVIVALS,
    ON_ITS_WAY,
    SHOWN,
    PlanState,
    may_skip,
    place_of,
    was_poisoned,
)
from eval_jobs.queue_types import Backlog, Claim, Crash, Hold, HoldEnd, QueueState, Running, Waiting
from eval_jobs.records.progress import Progress, shown_line
from eval_jobs.types import BenchmarkFailure, EvalPlan, EvalRecord


@dataclass(frozen=True, kw_only=True)
class _Entry:
    plan: EvalPlan
    place: int
    may_skip: bool
    state: PlanState = PlanState.WAITING
    hold: Hold | None = None
    attempt: int = 0
    lost: int = 0
    crashes: tuple[Crash, ...] = ()
    stalled: int = 0
    answered: int = 0
    answered_at_loss: int = 0
    revived: int = 0
    since: datetime | None = None
    note: str = ""
    progress: Progress | None = None
    record: EvalRecord | None = None
    failed: bool = False
    poisoned: bool = False

    @property
    def run_id(self) -> str:
        return self.plan.checkpoint.run_id

    def is_of(self, hold: Hold) -> bool:
        held = self.hold
        return held is not None and (held.worker, held.attempt) == (hold.worker, hold.attempt)


class FakeQueue:
    """`eval_jobs.ports.Queue` in a dictionary."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._lock = threading.RLock()

    def add(self, plan: EvalPlan, *, now: datetime, backlog: Backlog = Backlog.OLDEST, keep: bool = False) -> bool:  # noqa: ARG002 - part of the port
        with self._lock:
            known = self._entries.get(plan.id)
            place = place_of(plan, backlog, keep=keep)
            skippable = may_skip(backlog, keep=keep)
            if known is None:
                self._put(_Entry(plan=plan, place=place, may_skip=skippable))
                return True
            states = {PlanState.WAITING} if skippable else {PlanState.WAITING, PlanState.SKIPPED, PlanState.LEFT_OUT}
            if known.state in states:
                self._put(replace(known, plan=plan, place=place, may_skip=skippable, state=PlanState.WAITING))
            return False

    def skip(self, run_id: str, *, max_waiting: int) -> int:
        with self._lock:
            waiting = [e for e in self._in(PlanState.WAITING) if e.run_id == run_id]
            places = sorted({e.place for e in waiting})[:max_waiting]
            surplus = [e for e in waiting if e.place not in places and e.may_skip]
            for entry in surplus:
                self._put(replace(entry, state=PlanState.SKIPPED))
            return len(surplus)

    def skipped(self) -> tuple[EvalPlan, ...]:
        with self._lock:
            return tuple(e.plan for e in _by_step(self._in(PlanState.SKIPPED)))

    def waiting(self) -> tuple[EvalPlan, ...]:
        with self._lock:
            return tuple(e.plan for e in _by_step(self._in(PlanState.WAITING)))

    def withdraw(self, plan_id: str) -> bool:
        with self._lock:
            entry = self._entries.get(plan_id)
            if entry is None or entry.state is not PlanState.WAITING:
                return False
            del self._entries[plan_id]
            return True

    def leave_out(self, plan_id: str) -> None:
        with self._lock:
            entry = self._entries.get(plan_id)
            if entry is not None and entry.state is PlanState.SKIPPED:
                self._put(replace(entry, state=PlanState.LEFT_OUT))

    def claim(
        self, *, worker: str, now: datetime, lease_until: datetime, except_runs: Collection[str] = ()
    ) -> Claim | None:
        with self._lock:
            self._end_leases(now, lease_until)
            waiting = [e for e in self._in(PlanState.WAITING) if e.run_id not in except_runs]
            if not waiting:
                return None
            run_id = min({e.run_id for e in waiting}, key=lambda run: (self._last_claim(run), run))
            entry = min((e for e in waiting if e.run_id == run_id), key=lambda e: (e.place, e.plan.id))
            return self._take(entry, worker, now, lease_until)

    def extend(
        self, claim: Claim, *, lease_until: datetime, progress: Progress | None = None, answered: int = 0
    ) -> bool:
        with self._lock:
            entry = self._held(claim.hold)
            if entry is None:
                return False
            hold = replace(claim.hold, lease_until=lease_until)
            self._put(replace(entry, hold=hold, progress=progress, answered=max(entry.answered, answered)))
            return True

    def finish(self, claim: Claim, record: EvalRecord, *, now: datetime) -> bool:  # noqa: ARG002 - part of the port
        with self._lock:
            entry = self._entries.get(claim.plan.id)
            if entry is None or not entry.is_of(claim.hold):
                return False
            if entry.state is PlanState.RUNNING:
                failed = any(isinstance(outcome, BenchmarkFailure) for outcome in record.outcomes)
                poisoned = was_poisoned(record)
                self._put(replace(entry, state=PlanState.FINISHED, record=record, failed=failed, poisoned=poisoned))
            return True

    def release(self, claim: Claim, *, counts: bool = True, note: str = "") -> None:
        with self._lock:
            entry = self._held(claim.hold)
            if entry is not None:
                attempt = claim.attempt if counts else claim.attempt - 1
                self._put(replace(entry, state=PlanState.WAITING, hold=None, note=shown_line(note), attempt=attempt))

    def holds(self) -> tuple[Hold, ...]:
        with self._lock:
            held = (e.hold for e in self._in(PlanState.RUNNING) if e.hold is not None)
            return tuple(sorted(held, key=lambda hold: hold.plan_id))

    def take_back(self, hold: Hold, end: HoldEnd) -> bool:
        with self._lock:
            entry = self._held(hold)
            if entry is None:
                return False
            if end is HoldEnd.INTERRUPTED:
                self._put(replace(entry, state=PlanState.WAITING, hold=None, note="", attempt=entry.attempt - 1))
            else:
                self._lose(entry, crashed=end is HoldEnd.CRASHED)
            return True

    def known(self, plan_ids: Collection[str]) -> frozenset[str]:
        with self._lock:
            return frozenset(plan_ids) & self._entries.keys()

    def done(self, plan_ids: Collection[str]) -> frozenset[str]:
        with self._lock:
            entries = (*self._in(PlanState.FINISHED), *self._in(PlanState.ACKNOWLEDGED))
            return frozenset(e.plan.id for e in entries if not e.failed) & frozenset(plan_ids)

    def finished(self) -> tuple[EvalRecord, ...]:
        with self._lock:
            done = _by_step(self._in(PlanState.FINISHED))
            return tuple(e.record for e in done if e.record is not None)

    def acknowledge(self, plan_id: str) -> None:
        with self._lock:
            entry = self._entries.get(plan_id)
            if entry is not None and entry.state is PlanState.FINISHED:
                self._put(replace(entry, state=PlanState.ACKNOWLEDGED, record=None))

    def revive(self, renewed: Callable[[EvalPlan], EvalPlan | None]) -> int:
        with self._lock:
            failed = (e for e in self._in(PlanState.ACKNOWLEDGED) if e.failed)
            allowed = (e for e in failed if not e.poisoned or e.revived < MAX_REVIVALS)
            again = [(e, plan) for e in allowed if (plan := renewed(e.plan)) is not None]
            for e, plan in again:
                self._put(
                    _Entry(plan=plan, place=e.place, may_skip=e.may_skip, since=e.since, revived=e.revived + e.poisoned)
                )
            return len(again)

    def open_steps(self, run_id: str, *, sweeps: bool = True) -> frozenset[int]:
        open_states = (PlanState.WAITING, PlanState.RUNNING, PlanState.FINISHED)
        entries = [entry for state in open_states for entry in self._in(state) if entry.run_id == run_id]
        return frozenset(e.plan.checkpoint.step for e in entries if sweeps or e.plan.sweep is None)

    def state(self) -> QueueState:
        with self._lock:
            waiting, running = _in_turn(self._in(PlanState.WAITING)), _in_turn(self._in(PlanState.RUNNING))
            counts = {str(state): len(self._in(state)) for state in ON_ITS_WAY}
        shown = (
            Waiting(
                plan_id=e.plan.id,
                run_id=e.run_id,
                step=e.plan.checkpoint.step,
                note=self._newest_note(e),
                noted_at=e.since,
                is_sweep=e.plan.sweep is not None,
            )
            for e in sorted(waiting, key=lambda e: e.plan.sweep is not None)[:SHOWN]
        )
        return QueueState(
            waiting=tuple(shown),
            running=tuple(
                Running(plan=e.plan, worker=e.hold.worker, progress=e.progress, since=e.since)
                for e in running
                if e.hold is not None and e.since is not None
            ),
            counts=counts,
            unfinished=Counter(e.run_id for e in (*waiting, *running)),
        )

    # --- private

    def _in(self, state: PlanState) -> list[_Entry]:
        return [entry for entry in self._entries.values() if entry.state is state]

    def _newest_note(self, entry: _Entry) -> str:
        is_newest = entry.since is not None and entry.since.timestamp() == self._last_claim(entry.run_id)
        return entry.note if is_newest else ""

    def _last_claim(self, run_id: str) -> float:
        return max((e.since.timestamp() for e in self._entries.values() if e.run_id == run_id and e.since), default=0.0)

    def _end_leases(self, now: datetime, lease_until: datetime) -> None:
        for entry in self._in(PlanState.RUNNING):
            if entry.hold is None:
                continue
            if entry.hold.lease_until <= now:
                self._lose(entry, crashed=True)
            elif entry.hold.lease_until > now + timedelta(seconds=MAX_LEASE_S):
                self._put(replace(entry, hold=replace(entry.hold, lease_until=lease_until)))

    def _lose(self, entry: _Entry, *, crashed: bool) -> None:
        got_further = entry.answered > entry.answered_at_loss
        crashes = () if got_further else entry.crashes
        if crashed and entry.hold is not None and entry.since is not None:
            crashes = (*crashes, Crash(worker=entry.hold.worker, progress=entry.progress, claimed_at=entry.since))
        self._put(
            replace(
                entry,
                state=PlanState.WAITING,
                hold=None,
                note="",
                lost=entry.lost + 1,
                crashes=crashes,
                stalled=1 if got_further else entry.stalled + 1,
                answered_at_loss=entry.answered,
            )
        )

    def _take(self, entry: _Entry, worker: str, now: datetime, lease_until: datetime) -> Claim:
        claim = Claim(
            plan=entry.plan,
            worker=worker,
            attempt=entry.attempt + 1,
            lost=entry.lost,
            crashes=entry.crashes,
            stalled=entry.stalled,
            lease_until=lease_until,
        )
        running = replace(
            entry, state=PlanState.RUNNING, hold=claim.hold, attempt=claim.attempt, since=now, note="", progress=None
        )
        self._put(running)
        return claim

    def _held(self, hold: Hold) -> _Entry | None:
        entry = self._entries.get(hold.plan_id)
        return entry if entry is not None and entry.state is PlanState.RUNNING and entry.is_of(hold) else None

    def _put(self, entry: _Entry) -> None:
        self._entries[entry.plan.id] = entry


def _by_step(entries: Iterable[_Entry]) -> list[_Entry]:
    return sorted(entries, key=lambda e: (e.plan.checkpoint.step, e.plan.id))


def _in_turn(entries: Iterable[_Entry]) -> list[_Entry]:
    return sorted(entries, key=lambda e: (e.run_id, e.place, e.plan.id))
