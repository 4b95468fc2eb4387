"""docker/prepare.sh: passwords and settings for docker compose, written once."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.containers import interpolated
from tests.requires import PROJECT


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A checkout's files, and a folder of runs."""
    folder = tmp_path / "checkout"
    (folder / "docker").mkdir(parents=True)
    shutil.copy(PROJECT / "docker/prepare.sh", folder / "docker")
    shutil.copy(PROJECT / "docker-compose.yml", folder)
    (tmp_path / "runs").mkdir()
    return folder


def prepare(site: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], **variables}
    command = [str(site / "docker/prepare.sh"), *arguments]
    return subprocess.run(command, cwd=site.parent, env=environment, capture_output=True, text=True, check=False)


def settings(site: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in (site / ".env").read_text().splitlines())


def test_every_secret_and_setting_of_the_compose_file_is_written(site: Path) -> None:
    assert prepare(site, "gpu", "runs", TRACKER_UID="1234", TRACKER_GID="1235").returncode == 0
    assert settings(site) == {
        "COMPOSE_PROFILES": "gpu",
        "RUNS_DIR": str(site.parent / "runs"),
        "TRACKER_UID": "1234",
        "TRACKER_GID": "1235",
    }
    text = (site / "docker-compose.yml").read_text()
    file = yaml.safe_load(interpolated(text, settings(site)))
    with_defaults = {"MLFLOW_PORT", "MLFLOW_WORKERS", "PROJECT_DIR", "WORKER_GPU"}
    assert set(re.findall(r"\$\{(\w+)", text)) - set(settings(site)) == with_defaults
    named = {site / secret["file"] for secret in file["secrets"].values()}
    assert named == set((site / "docker/secrets").iterdir())


def test_secrets_are_long_differ_and_can_be_read_by_containers_but_by_nobody_else_of_the_machine(site: Path) -> None:
    prepare(site, "cpu", "runs", TRACKER_UID="1234")
    folder = site / "docker/secrets"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o644}
    values = {path.read_text() for path in folder.iterdir() if path.name != "s3_identities"}
    assert len(values) == 7
    assert all(re.fullmatch("[0-9a-f]{48}", value) for value in values)
    (identity,) = json.loads((folder / "s3_identities").read_text())["identities"]
    assert identity["credentials"] == [{"accessKey": "mlflow", "secretKey": (folder / "s3_secret_key").read_text()}]


def test_what_is_there_stays(site: Path) -> None:
    prepare(site, "cpu", "runs", TRACKER_UID="1234")
    before = {path: path.read_text() for path in [site / ".env", *(site / "docker/secrets").iterdir()]}
    again = prepare(site, "gpu", "runs", TRACKER_UID="99")
    assert (again.returncode, again.stdout) == (
        0,
        "prepared: passwords in docker/secrets; existing .env kept\n",
    )
    assert {path: path.read_text() for path in before} == before


@pytest.mark.parametrize("arguments", [(), ("cpu",), ("tpu", "runs"), ("cpu", "no-such-folder")])
def test_wrong_arguments_write_nothing(site: Path, arguments: tuple[str, ...]) -> None:
    assert prepare(site, *arguments).returncode == 2
    assert not (site / ".env").exists()
    assert not (site / "docker/secrets").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to own a folder")
def test_runs_of_root_are_said_because_nobody_else_could_read_their_weights(site: Path) -> None:
    refused = prepare(site, "cpu", "runs")
    assert refused.returncode == 2
    assert "belongs to root" in refused.stderr
    assert not (site / ".env").exists()
    assert prepare(site, "cpu", "runs", TRACKER_UID="0").returncode == 0
    os.chown(site.parent / "runs", 77, 78)
    (site / ".env").unlink()
    assert prepare(site, "cpu", "runs").returncode == 0
    assert (settings(site)["TRACKER_UID"], settings(site)["TRACKER_GID"]) == ("77", "78")
