"""Which process of an engine, and who asks it, runs where, on machines of all kinds."""

import os
from collections.abc import Collection

import pytest

from eval_jobs.host import cpu_placement
from eval_jobs.host.proc import ProcessStat

SERVER, SCHEDULER, WORKER, SECOND = 11, 12, 13, 14
STARTED_BY = {SCHEDULER: SERVER, WORKER: SCHEDULER, SECOND: SCHEDULER}


class Machine:
    """What `share_cores` sees of a machine, and what it does there."""

    def __init__(self, n_cores: int, **bound: Collection[int]) -> None:
        self.usable = frozenset(range(n_cores))
        self.bound = dict.fromkeys((SERVER, SCHEDULER, WORKER), frozenset[int]())
        self.bound |= {int(name.removeprefix("p")): frozenset(cores) for name, cores in bound.items()}
        self.ended: set[int] = set()
        self.put: dict[int, set[int]] = {}

    def bound_cores(self, pid: int, usable: frozenset[int]) -> frozenset[int]:
        return self.bound[pid] if self.bound[pid] < usable else frozenset()

    def run_on(self, pid: int, numbers: Collection[int]) -> None:
        self.put[pid] = set(numbers)

    def stat(self, pid: int) -> ProcessStat | None:
        if pid in self.ended:
            return None
        return ProcessStat(pid=pid, state="S", parent=STARTED_BY.get(pid, 1), group=SERVER, start_time=1, cpu_ticks=0)

    def share(self, monkeypatch: pytest.MonkeyPatch) -> tuple[int, ...]:
        monkeypatch.setattr(cpu_placement, "usable_cores", lambda: self.usable)
        monkeypatch.setattr(cpu_placement, "bound_cores", self.bound_cores)
        monkeypatch.setattr(cpu_placement, "run_on", self.run_on)
        monkeypatch.setattr("eval_jobs.host.proc.stat", self.stat)
        return cpu_placement.share_cores(list(self.bound))


def test_on_two_cores_the_scheduler_joins_its_worker_and_the_server_has_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(2, p13={0})
    assert machine.share(monkeypatch) == (1,)
    assert machine.put == {SERVER: {1}, SCHEDULER: {0}}


def test_a_scheduler_may_use_the_cores_of_all_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(8, p13={0, 1, 2}, p14={3, 4, 5, 6})
    assert machine.share(monkeypatch) == (7,)
    assert machine.put == {SERVER: {7}, SCHEDULER: set(range(7))}


def test_where_nothing_would_be_better_the_engine_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = {
        "several cores are left": Machine(4, p13={0, 1}),
        **{f"nothing is bound on {n} cores": Machine(n) for n in (1, 2, 64)},
        "workers are on all cores": Machine(2, p13={0}, p14={1}),
        "the engine was bound as a whole": Machine(2, p11={0}, p12={0}, p13={0}),
    }
    found = {name: (machine.share(monkeypatch), machine.put) for name, machine in machines.items()}
    assert found == dict.fromkeys(machines, ((), {}))


def test_a_worker_that_ends_meanwhile_has_no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(2, p13={0})
    machine.ended.add(WORKER)
    assert machine.share(monkeypatch) == (1,)
    assert machine.put == {SERVER: {1}, SCHEDULER: {1}}


@pytest.mark.parametrize(("engine", "client"), [(0, 5), (10, 15), (17, 19), (19, 19)])
def test_clients_stand_behind_the_engine(monkeypatch: pytest.MonkeyPatch, engine: int, client: int) -> None:
    monkeypatch.setattr(os, "getpriority", lambda _, pid: {SERVER: engine}[pid])
    assert cpu_placement.client_niceness(SERVER) == client
