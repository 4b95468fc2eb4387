"""Folders that several paths lead to."""

from pathlib import Path

import pytest

from eval_jobs.host.paths import canonical, without_bind_mounts

MOUNTS = r"""
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 22 8:17 / /mnt/disk\0401 rw - ext4 /dev/sdb1 rw
31 22 8:17 /runs /data/runs rw - ext4 /dev/sdb1 rw
32 22 8:17 /runs/sft /srv/sft rw - ext4 /dev/sdb1 rw
33 22 0:40 / /home/me/cloud rw - nfs4 server:/export rw
34 22 8:1 /var/spool /spool rw - ext4 /dev/sda1 rw
"""


@pytest.mark.parametrize(
    ("path", "same"),
    [
        ("/data/runs/sft/out", "/mnt/disk 1/runs/sft/out"),
        ("/srv/sft/out", "/mnt/disk 1/runs/sft/out"),
        ("/srv/sft", "/mnt/disk 1/runs/sft"),
        ("/mnt/disk 1/runs/sft/out", "/mnt/disk 1/runs/sft/out"),
        ("/spool/out", "/var/spool/out"),
        ("/home/me/cloud/out", "/home/me/cloud/out"),
        ("/home/me/out", "/home/me/out"),
    ],
)
def test_a_bind_mount_is_named_by_the_folder_that_it_shows(path: str, same: str) -> None:
    assert without_bind_mounts(path, MOUNTS) == same


def test_without_mounts_a_path_stays() -> None:
    assert without_bind_mounts("/out", "") == "/out"


def test_links_and_dots_lead_to_one_path_and_addresses_stay(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    spelled = {canonical(f"{tmp_path}/{name}") for name in ("real", "link", "link/", "real/../real", "./link/.")}
    assert len(spelled) == 1
    assert canonical(f"{tmp_path}/link/not/there") == f"{spelled.pop()}/not/there"
    assert canonical("s3://bucket/a/../b") == "s3://bucket/a/../b"
