"""Jobs that hang under a real launcher: nothing of them remains."""

from pathlib import Path

from tests.hung_jobs.starter import is_alive, jobs


def test_a_job_under_torchrun_ends_as_a_whole(tmp_path: Path) -> None:
    with jobs(tmp_path, ["sleep"], pause_s=0.01, torchrun=True) as started:
        started["sleep"].wait_for_steps(10)
        processes = started["sleep"].processes()
    assert list(processes) == ["rank0", "rank1"]
    assert not any(map(is_alive, processes.values()))
