"""Processes in memory."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tracker.domain.health.processes.seen import ProcessId, ProcessState, Sample, SeenProcess

GONE = Sample(state=ProcessState.GONE)


@dataclass
class FakeProcesses:
    """`tracker.ports.Processes` whose processes the test starts, changes and ends."""

    alive: dict[ProcessId, SeenProcess] = field(default_factory=dict)
    doing: dict[ProcessId, Sample] = field(default_factory=dict)
    """What a process does; default: it sleeps."""
    ended_s: dict[ProcessId, float] = field(default_factory=dict)
    kills: int = 0
    stacks_taken: int = 0
    searches: int = 0
    _waited: set[ProcessId] = field(default_factory=set)

    def start(self, process: SeenProcess) -> ProcessId:
        self.alive[process.id] = process
        return process.id

    def end(self, process: ProcessId, at_s: float) -> None:
        del self.alive[process]
        if process in self._waited:
            self.ended_s[process] = at_s

    def all(self) -> tuple[SeenProcess, ...]:
        self.searches += 1
        return tuple(self.alive.values())

    def ended(self, ids: Iterable[ProcessId]) -> frozenset[ProcessId]:
        return frozenset(one for one in ids if one not in self.alive or self._state(one) is ProcessState.ZOMBIE)

    def _state(self, one: ProcessId) -> ProcessState:
        return self.doing[one].state if one in self.doing else ProcessState.SLEEPING

    def samples(self, ids: Iterable[ProcessId]) -> Mapping[ProcessId, Sample]:
        self.stacks_taken += 1
        sleeping = Sample(state=ProcessState.SLEEPING, moved_bytes=0)
        return {one: self.doing.get(one, sleeping) if one in self.alive else GONE for one in ids}

    def exits(self, ids: Iterable[ProcessId]) -> Mapping[ProcessId, float]:
        wanted = tuple(ids)
        self._waited.update(one for one in wanted if one in self.alive)
        return {one: self.ended_s[one] for one in wanted if one in self.ended_s}

    def memory_kills(self, ids: Iterable[ProcessId]) -> int:
        return self.kills if tuple(ids) else 0
