"""The sweeps of a run in memory."""

from collections.abc import Collection, Mapping
from datetime import datetime

from eval_jobs.types import EvalRecord
from tracker.domain.sweeps.types import OPEN, TimetablePosition, Turn, TurnState


class FakeSweeps:
    """`tracker.ports.Sweeps` in dictionaries."""

    def __init__(self) -> None:
        self._lease: tuple[str, datetime] | None = None
        self._looks: dict[str, TimetablePosition] = {}
        self._turns: dict[tuple[str, datetime], Turn] = {}
        self._records: dict[str, EvalRecord] = {}

    def take(self, holder: str, *, now: datetime, lease_until: datetime) -> bool:
        if self._lease is not None and self._lease[0] != holder and now < self._lease[1] <= lease_until:
            return False
        self._lease = holder, lease_until
        return True

    def release(self, holder: str) -> None:
        if self._lease is not None and self._lease[0] == holder:
            self._lease = None

    def look(self, sweep: str) -> TimetablePosition | None:
        return self._looks.get(sweep)

    def remember(self, sweep: str, look: TimetablePosition) -> None:
        self._looks[sweep] = look

    def add(self, turn: Turn) -> bool:
        key = turn.sweep, turn.due_at
        is_new = key not in self._turns
        self._turns.setdefault(key, turn)
        return is_new

    def change(self, turn: Turn, *, was: TurnState) -> bool:
        key = turn.sweep, turn.due_at
        if key not in self._turns or self._turns[key].state is not was:
            return False
        self._turns[key] = turn
        return True

    def open_turns(self) -> tuple[Turn, ...]:
        found = (turn for turn in self._turns.values() if turn.state in OPEN)
        return tuple(sorted(found, key=lambda t: (t.due_at, t.sweep)))

    def turns(self, sweep: str) -> tuple[Turn, ...]:
        found = (turn for turn in self._turns.values() if turn.sweep == sweep)
        return tuple(sorted(found, key=lambda t: t.due_at, reverse=True))

    def append(self, record: EvalRecord) -> None:
        self._records[record.plan.id] = record

    def answered(self, plan_ids: Collection[str]) -> frozenset[str]:
        return frozenset(plan_id for plan_id in plan_ids if plan_id in self._records)

    def results(self, plan_ids: Collection[str]) -> Mapping[str, EvalRecord]:
        return {plan_id: self._records[plan_id] for plan_id in plan_ids if plan_id in self._records}
