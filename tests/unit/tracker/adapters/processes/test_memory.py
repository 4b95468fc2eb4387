"""Memory that forked workers share counts once, and a process that hangs in the kernel is not waited for."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from tracker.adapters.host.kernel_files import fields_of
from tracker.adapters.processes.machine import ProcessMemory

SHARED_BYTES = 64 << 20


FORKING = f"""
import os, signal
shared = bytearray({SHARED_BYTES})
shared[::4096] = b"x" * len(shared[::4096])
workers = []
while len(workers) < 2:
    pid = os.fork()
    if pid == 0:
        signal.pause()
    workers.append(pid)
print(*workers, flush=True)
signal.pause()
"""


@pytest.fixture
def forked() -> Iterator[list[int]]:
    """A process, and two workers that share its memory."""
    with subprocess.Popen([sys.executable, "-c", FORKING], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        workers = [int(word) for word in parent.stdout.readline().split()]
        yield [parent.pid, *workers]
        for pid in (*workers, parent.pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("has_shares", [True, False])
def test_what_forked_workers_share_counts_once(
    forked: list[int], monkeypatch: pytest.MonkeyPatch, *, has_shares: bool
) -> None:
    if not has_shares:
        own = fields_of

        def fields(path: Path) -> dict[str, int]:
            return {} if path.name == "smaps_rollup" else own(path)

        monkeypatch.setattr("tracker.adapters.processes.machine.fields_of", fields)
    memory = ProcessMemory(root=Path("/"), timeout_s=60.0)
    one, all_ = memory.of(forked[:1]), memory.of(forked)
    assert one is not None
    assert all_ is not None
    assert all_ > SHARED_BYTES
    counted = fields_of(Path(f"/proc/{forked[0]}/status"))["RssAnon"] << 10
    assert all_ < counted + SHARED_BYTES // 2


def test_a_process_that_cannot_be_read_in_time_is_asked_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Event()

    def fields(path: Path) -> dict[str, int]:
        answers.wait()
        return {"Pss_Anon": 5} if path.name == "smaps_rollup" else {}

    monkeypatch.setattr("tracker.adapters.processes.machine.fields_of", fields)
    memory = ProcessMemory(root=Path("/"), timeout_s=0.01)
    assert [memory.of([1]), memory.of([1])] == [None, None]
    memory.timeout_s = 60.0
    answers.set()
    while (found := memory.of([1])) is None:
        answers.wait()
    assert found == 5 << 10
