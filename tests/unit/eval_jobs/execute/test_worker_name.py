import os
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from eval_jobs.execute.worker_name import oom_kills, own_name, parse_name
from eval_jobs.host import proc


def test_a_name_tells_which_process_of_which_machine_writes_which_log(tmp_path: Path) -> None:
    log = tmp_path / "a folder with log=spaces" / "worker-1.log"
    name = own_name(log)
    assert parse_name(str(name)) == name
    assert (name.pid, name.machine, name.log) == (os.getpid(), proc.machine_hash(), str(log))
    ticks = os.sysconf("SC_CLK_TCK")
    assert name.started / ticks == pytest.approx(psutil.Process().create_time() - psutil.boot_time(), abs=2.0)


def test_what_the_kernel_killed_for_want_of_memory_is_counted() -> None:
    assert oom_kills() >= 0


@pytest.mark.parametrize("text", ["", "node7:4242", "w", "node7:4242 started=x machine=0f oom=0 log=/x"])
def test_a_name_that_was_made_otherwise_is_not_understood(text: str) -> None:
    assert parse_name(text) is None


def test_another_start_of_the_same_process_id_is_another_name() -> None:
    name = own_name(Path("/x"))
    assert str(replace(name, started=name.started + 1)) != str(name)
