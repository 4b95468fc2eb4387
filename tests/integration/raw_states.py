"""The states of `raw_training`, made once for all tests that read them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.requires import PROJECT
from tracker.adapters.checkpoints.files.raw_files import model_files


@pytest.fixture(scope="session")
def states(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that two ranks of `raw_training` have filled, and `tied`: the small files of a tied model."""
    folder = tmp_path_factory.mktemp("states")
    environment = {**os.environ, "WORLD_SIZE": "2", "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    environment |= {"CUDA_VISIBLE_DEVICES": "", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "HF_HUB_OFFLINE": "1"}
    ranks = [started(folder, environment, rank) for rank in ("0", "1")]
    try:
        codes = [rank.wait(timeout=550) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert codes == [0, 0], (folder / "rank0.log").read_text()[-5000:]
    (folder / "tied").mkdir()
    for path in model_files(folder / "base"):
        shutil.copyfile(path, folder / "tied" / path.name)
    config = folder / "tied" / "config.json"
    config.write_text(config.read_text().replace('"tie_word_embeddings": false', '"tie_word_embeddings": true'))
    return folder


def started(folder: Path, environment: dict[str, str], rank: str) -> subprocess.Popen[bytes]:
    with (folder / f"rank{rank}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.integration.raw_training", str(folder)],
            cwd=PROJECT,
            env={**environment, "RANK": rank, "LOCAL_RANK": rank},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
