"""What the set-up says, and where torch's CPU wheel comes from: pip's find-links if set, else PyTorch's CPU index."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
TOOL = '#!/bin/sh\n[ "$1" != config ] || exit 1\necho "$(basename "$0") $*" >> "$(dirname "$0")/asked"\n'


@pytest.mark.parametrize(
    ("links", "asked", "not_asked"),
    [("", "--torch-backend cpu", "--find-links"), ("wheels", "--find-links wheels", "--torch-backend")],
)
def test_torch_comes_from_find_links_where_they_are_set_and_else_from_pytorchs_cpu_index(
    tmp_path: Path, links: str, asked: str, not_asked: str
) -> None:
    tools = tmp_path / ".venv" / "bin"
    tools.mkdir(parents=True)
    for name in ("pip", "uv", "python"):
        (tools / name).write_text(TOOL)
        (tools / name).chmod(0o755)
    shutil.copytree(PROJECT / "requirements", tmp_path / "requirements")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **({"PIP_FIND_LINKS": links} if links else {})}
    done = subprocess.run(
        ["sh", "requirements/setup.sh"], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )
    stages = [line for line in done.stdout.splitlines() if " of 3: " in line]
    assert [stage.split(":")[1] for stage in stages] == [" 1 of 3", " 2 of 3", " 3 of 3"]
    packages = len((PROJECT / "requirements" / "cpu.lock").read_text().splitlines())
    assert stages[-1] == f"setup: 3 of 3: {packages} packages: download, unpack (3.6 GB), compile (0.7 GB)"
    install = next(line for line in (tools / "asked").read_text().splitlines() if "cpu.lock" in line)
    assert asked in install
    assert not_asked not in install
    assert "--quiet" in install, "progress is for terminals"
