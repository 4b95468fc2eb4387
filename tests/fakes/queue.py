"""A queue in memory, with the rules of the real one."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime

from eval_jobs.queue.rules import PlanState
from eval_jobs.types import BenchmarkFailure, Claim, EvalPlan, EvalRecord, QueueState, Running


@dataclass(frozen=True, kw_only=True)
class _Entry:
    plan: EvalPlan
    state: PlanState = PlanState.WAITING
    claim: Claim | None = None
    attempt: int = 0
    lost: int = 0
    since: datetime | None = None
    note: str = ""
    record: EvalRecord | None = None
    failed: bool = False

    def is_claimable(self, now: datetime) -> bool:
        """Say whether the plan may be taken: it waits, or its worker let the lease run out."""
        if self.claim is None:
            return self.state is PlanState.WAITING
        return self.state is PlanState.RUNNING and self.claim.lease_until <= now


class FakeQueue:
    """`eval_jobs.ports.Queue` in a dictionary."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._lock = threading.Lock()

    def add(self, plan: EvalPlan, *, now: datetime) -> bool:  # noqa: ARG002 - part of the port
        with self._lock:
            known = self._entries.get(plan.id)
            if known is None:
                self._put(_Entry(plan=plan))
            elif known.state is PlanState.WAITING:
                self._put(replace(known, plan=plan))
            return known is None

    def claim(self, *, worker: str, now: datetime, lease_until: datetime) -> Claim | None:
        with self._lock:
            for entry in self._ordered():
                if entry.is_claimable(now):
                    return self._take(entry, worker, now, lease_until)
            return None

    def extend(self, claim: Claim, *, now: datetime, lease_until: datetime, note: str) -> bool:  # noqa: ARG002
        with self._lock:
            entry = self._held(claim)
            if entry is None or entry.claim is None:
                return False
            self._put(replace(entry, claim=replace(entry.claim, lease_until=lease_until), note=note))
            return True

    def finish(self, claim: Claim, record: EvalRecord, *, now: datetime) -> bool:  # noqa: ARG002
        with self._lock:
            entry = self._held(claim)
            if entry is None:
                return False
            failed = any(isinstance(outcome, BenchmarkFailure) for outcome in record.outcomes)
            self._put(replace(entry, state=PlanState.FINISHED, record=record, failed=failed))
            return True

    def release(self, claim: Claim, *, now: datetime, counts: bool = True) -> None:  # noqa: ARG002
        with self._lock:
            entry = self._held(claim)
            if entry is not None:
                attempt = claim.attempt if counts else claim.attempt - 1
                self._put(replace(entry, state=PlanState.WAITING, claim=None, note="", attempt=attempt))

    def finished(self) -> tuple[EvalRecord, ...]:
        with self._lock:
            done = [e for e in self._entries.values() if e.state is PlanState.FINISHED]
            done.sort(key=lambda e: (e.plan.checkpoint.step, e.plan.id))
            return tuple(e.record for e in done if e.record is not None)

    def acknowledge(self, plan_id: str) -> None:
        with self._lock:
            entry = self._entries.get(plan_id)
            if entry is not None and entry.state is PlanState.FINISHED:
                self._put(replace(entry, state=PlanState.ACKNOWLEDGED, record=None))

    def revive(self, *, now: datetime) -> int:  # noqa: ARG002
        with self._lock:
            again = [e for e in self._entries.values() if e.state is PlanState.ACKNOWLEDGED and e.failed]
            for entry in again:
                self._put(_Entry(plan=entry.plan))
            return len(again)

    def state(self) -> QueueState:
        with self._lock:
            entries = self._ordered()
        counts = Counter(str(e.state) for e in entries)
        return QueueState(
            waiting=tuple(e.plan for e in entries if e.state is PlanState.WAITING),
            running=tuple(
                Running(plan=e.plan, worker=e.claim.worker, note=e.note, since=e.since)
                for e in entries
                if e.state is PlanState.RUNNING and e.claim is not None and e.since is not None
            ),
            counts={str(state): counts[state] for state in PlanState},
        )

    # --- private

    def _ordered(self) -> list[_Entry]:
        return sorted(
            self._entries.values(), key=lambda e: (e.plan.checkpoint.step, e.plan.checkpoint.run_id, e.plan.id)
        )

    def _take(self, entry: _Entry, worker: str, now: datetime, lease_until: datetime) -> Claim:
        lost = entry.lost + (entry.state is PlanState.RUNNING)
        claim = Claim(plan=entry.plan, worker=worker, attempt=entry.attempt + 1, lost=lost, lease_until=lease_until)
        self._put(
            replace(entry, state=PlanState.RUNNING, claim=claim, attempt=claim.attempt, lost=lost, since=now, note="")
        )
        return claim

    def _held(self, claim: Claim) -> _Entry | None:
        entry = self._entries.get(claim.plan.id)
        if entry is None or entry.state is not PlanState.RUNNING or entry.claim is None:
            return None
        same = (entry.claim.worker, entry.claim.attempt) == (claim.worker, claim.attempt)
        return entry if same else None

    def _put(self, entry: _Entry) -> None:
        self._entries[entry.plan.id] = entry
