"""Claims of the dead are taken back at once, those of the living and of other machines never."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from eval_jobs.execute.worker import left_claims
from eval_jobs.execute.worker.left_claims import take_back_left_claims
from eval_jobs.execute.worker_name import WorkerName, own_name
from eval_jobs.host import proc
from eval_jobs.queue_types import Claim
from tests.contract.queues import AFTER_LEASE, NOW, PLANS, claim, ids, waiting
from tests.fakes.queue import FakeQueue

OWN = "the worker that looks"


@dataclass(kw_only=True)
class Place:
    """A queue with one plan, and a process that may hold it."""

    folder: Path
    queue: FakeQueue = field(default_factory=FakeQueue)
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def process(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        self.started.append(process)
        return process

    def name_of(self, process: subprocess.Popen[bytes]) -> WorkerName:
        found = proc.stat(process.pid)
        assert found is not None
        log = self.folder / f"worker-{process.pid}.log"
        log.write_text("worker is ready\n")
        return replace(own_name(log), pid=process.pid, started=found.start_time)

    def held_by(self, name: WorkerName | str) -> Claim:
        self.queue.add(PLANS[0], now=NOW)
        return claim(self.queue, str(name))

    def look(self) -> int:
        return take_back_left_claims(self.queue, OWN, NOW)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(folder=tmp_path)
    yield made
    for process in made.started:
        process.kill()
        process.wait()


def test_the_plan_of_a_killed_worker_is_requeued_at_once_without_counting_a_crash(place: Place) -> None:
    process = place.process()
    place.held_by(place.name_of(process))
    assert place.look() == 0
    process.kill()
    process.wait()
    assert place.look() == 1
    again = claim(place.queue, "b")
    assert (again.lost, again.crashes) == (1, ())


def test_a_dead_worker_that_its_starter_has_not_noticed_yet_is_dead(place: Place) -> None:
    process = place.process()
    name = place.name_of(process)
    place.held_by(name)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now
    assert place.look() == 1


def test_another_process_of_the_same_number_is_not_the_worker(place: Place) -> None:
    name = place.name_of(place.process())
    place.held_by(replace(name, started=name.started - 1))
    assert place.look() == 1


@pytest.mark.parametrize(
    "sign",
    ["Fatal Python error: Segmentation fault\n\nCurrent thread 0x01:\n", f"ERROR {left_claims.UNEXPECTED_END}\n"],
)
def test_a_worker_that_left_a_sign_of_a_crash_counts_as_one(place: Place, sign: str) -> None:
    process = place.process()
    name = place.name_of(process)
    place.held_by(name)
    Path(name.log).write_text("ready\n" + sign)
    process.kill()
    process.wait()
    place.look()
    assert [crash.worker for crash in claim(place.queue, "b").crashes] == [str(name)]


def test_a_worker_that_went_away_while_the_machine_ran_out_of_memory_counts_as_crashed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = place.process()
    place.held_by(place.name_of(process))
    process.kill()
    process.wait()
    monkeypatch.setattr(left_claims, "oom_kills", lambda: 1_000_000)
    place.look()
    assert len(claim(place.queue, "b").crashes) == 1


def test_a_real_segmentation_fault_leaves_the_sign(place: Place) -> None:
    log = place.folder / "worker-1.log"
    code = "import faulthandler, signal; faulthandler.enable(open({!r}, 'a')); signal.raise_signal(signal.SIGSEGV)"
    process = subprocess.Popen([sys.executable, "-c", code.format(str(log))])
    place.held_by(replace(own_name(log), pid=process.pid, started=0))
    assert process.wait() == -signal.SIGSEGV
    place.look()
    assert len(claim(place.queue, "b").crashes) == 1


@pytest.mark.parametrize("change", [{"machine": "0" * 16}, {"machine": "0" * 16, "started": 0}])
def test_a_claim_of_another_machine_or_container_is_kept(place: Place, change: dict[str, str]) -> None:
    process = place.process()
    place.held_by(replace(place.name_of(process), **change))  # type: ignore[arg-type]
    process.kill()
    process.wait()
    assert take_back_left_claims(place.queue, OWN, AFTER_LEASE) == 0


def test_a_claim_with_a_malformed_worker_name_is_kept(place: Place) -> None:
    place.held_by("node7:4242")
    assert place.look() == 0


def test_a_running_process_keeps_its_plan_whatever_its_owner(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where /proc shows only one's own processes, another user's worker cannot be read and is alive all the same."""
    name = place.name_of(place.process())
    place.held_by(name)

    def forbidden(pid: int, number: int) -> None:
        raise PermissionError(pid, number)

    monkeypatch.setattr(proc, "stat", lambda _: None)
    monkeypatch.setattr(os, "kill", forbidden)
    assert take_back_left_claims(place.queue, OWN, AFTER_LEASE) == 0


def test_a_claim_in_the_own_name_is_one_whose_answer_was_lost(place: Place) -> None:
    place.held_by(OWN)
    assert place.look() == 1
    assert claim(place.queue, OWN).attempt == 1


def is_stopped(process: subprocess.Popen[bytes]) -> bool:
    found = proc.stat(process.pid)
    return found is not None and found.state == "T"


def test_a_worker_that_sleeps_past_its_lease_is_killed_and_one_within_it_is_not(place: Place) -> None:
    process = place.process()
    place.held_by(place.name_of(process))
    process.send_signal(signal.SIGSTOP)
    while not is_stopped(process):
        threading.Event().wait(0.01)
    assert place.look() == 0
    assert is_stopped(process)
    assert take_back_left_claims(place.queue, OWN, AFTER_LEASE) == 1
    assert process.wait() == -signal.SIGKILL
    assert waiting(place.queue) == ids(PLANS[0])


def test_a_worker_that_is_awake_is_not_killed_however_late_it_is(place: Place) -> None:
    process = place.process()
    place.held_by(place.name_of(process))
    assert take_back_left_claims(place.queue, OWN, NOW + timedelta(days=1)) == 0
    assert process.poll() is None
