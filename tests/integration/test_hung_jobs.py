"""The jobs that hang do so as they are called, and nothing of them remains."""

from pathlib import Path

from tests.hung_jobs.starter import HANGING, is_alive, jobs


def test_eight_jobs_at_once_hang_after_step_ten_and_are_gone_afterwards(tmp_path: Path) -> None:
    assert len(HANGING) == 8
    with jobs(tmp_path, HANGING, pause_s=0.01) as started:
        for job in started.values():
            job.wait_for_steps(10)
        processes = [process for job in started.values() for process in job.processes().values()]
        with jobs(
            tmp_path, ["healthy"], pause_s=0.01
        ) as more:  # as long as this job takes for 15 steps, no other makes one
            more["healthy"].wait_for_steps(15)
        assert {case: job.steps() for case, job in started.items()} == dict.fromkeys(HANGING, 10)
        assert {case: len(job.processes()) for case, job in started.items()} == {
            case: 4 if case.startswith("loader") else 2 for case in HANGING
        }
    assert not any(map(is_alive, processes))


def test_a_job_under_torchrun_ends_as_a_whole(tmp_path: Path) -> None:
    with jobs(tmp_path, ["sleep"], pause_s=0.01, torchrun=True) as started:
        started["sleep"].wait_for_steps(10)
        processes = started["sleep"].processes()
    assert list(processes) == ["rank0", "rank1"]
    assert not any(map(is_alive, processes.values()))
