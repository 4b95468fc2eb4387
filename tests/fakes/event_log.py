"""The log of runs in memory."""

from collections.abc import Iterable
from dataclasses import replace

from eval_jobs.records.run_scope import is_of
from tracker.domain.log.events import RunEvent


class FakeEventLog:
    """`tracker.ports.EventLog`."""

    def __init__(self) -> None:
        self._events: dict[str, RunEvent] = {}

    def log(self, events: Iterable[RunEvent]) -> None:
        for event in events:
            if event.key not in self._events:
                self._events[event.key] = replace(event, number=len(self._events) + 1)

    def is_logged(self, key: str) -> bool:
        return key in self._events

    def events(self, run: str | None = None, *, after: int = 0, last: int = 0) -> tuple[RunEvent, ...]:
        found = [event for event in self._events.values() if event.number > after]
        if run is not None:
            found = [event for event in found if is_of(event.run_id, run) or event.run_id == run.partition("/")[0]]
        return tuple(found[-last:])
