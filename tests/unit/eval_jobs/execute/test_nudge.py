import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from eval_jobs.execute.nudge import DRAINED_BYTES, nudge, pass_on, wait_for_nudge

Pipe = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    yield reading, writing
    for descriptor in (reading, writing):
        try:
            os.close(descriptor)
        except OSError:
            continue


def test_a_nudge_ends_the_wait_and_many_count_as_one(pipe: Pipe) -> None:
    reading, writing = pipe
    for _ in range(3):
        nudge(writing)
    assert wait_for_nudge(reading, 600.0) is False
    begun_s = time.monotonic()
    assert wait_for_nudge(reading, 0.05) is False
    assert time.monotonic() - begun_s >= 0.05


def test_a_pipe_that_is_full_or_that_nobody_reads_stops_nobody(pipe: Pipe) -> None:
    reading, writing = pipe
    for _ in range(DRAINED_BYTES + 1):
        nudge(writing)
    assert len(os.read(reading, 2 * DRAINED_BYTES)) == DRAINED_BYTES
    os.close(reading)
    nudge(writing)


def test_the_end_of_who_nudges_is_told_and_not_taken_for_a_nudge_for_ever(pipe: Pipe) -> None:
    reading, writing = pipe
    os.close(writing)
    assert wait_for_nudge(reading, 600.0) is True


def test_every_nudge_is_passed_on_until_the_other_side_is_gone(pipe: Pipe) -> None:
    reading, writing = pipe
    heard = threading.Semaphore(0)
    thread = threading.Thread(target=pass_on, args=(reading, heard.release))
    thread.start()
    for _ in range(3):
        nudge(writing)
        assert heard.acquire(timeout=60)
    os.close(writing)
    thread.join(60)
    assert not thread.is_alive()


NUDGED = """
import subprocess, sys
from eval_jobs.execute.nudge import Nudged
nudged = Nudged()
print("printed", flush=True)
subprocess.run([sys.executable, "-c", "import sys; print('child', repr(sys.stdin.read()), flush=True)"], check=True)
nudged.nap(600.0)
nudged.report()
nudged.nap(600.0)
nudged.nap(0.01)
"""


def test_a_nudged_process_keeps_both_pipes_for_itself_and_outlives_their_end() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", NUDGED], stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        nudge(process.stdin.fileno())
        assert process.stdout.read(1) == b"\n"
        out, err = process.communicate(timeout=60)  # closes both: who nudged is gone
    assert (process.returncode, out, err.decode().split("\n")) == (0, b"", ["printed", "child ''", ""])
