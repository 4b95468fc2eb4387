"""docker/mlflow_server.py: secrets of files become the environment of MLflow, and nothing starts without them."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.requires import PROJECT

STORE = "postgresql+psycopg2://mlflow@postgres/mlflow"
SAYS_WHAT_IT_WAS_GIVEN = '#!/bin/sh\necho "$*: $PGPASSWORD, ${PGPASSWORD_FILE:-no file}"\n'


def start(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Start it where `mlflow` is a program that says what it was given."""
    (folder / "mlflow").write_text(SAYS_WHAT_IT_WAS_GIVEN)
    (folder / "mlflow").chmod(0o755)
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "MLFLOW_ARTIFACTS_DESTINATION": "/files", **variables}
    command = [sys.executable, str(PROJECT / "docker/mlflow_server.py"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_the_first_line_of_a_file_is_the_secret(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("sesame\nand a remark\n")
    served = start(tmp_path, PGPASSWORD_FILE=str(tmp_path / "secret"))
    assert served.stdout == "server --app-name basic-auth: sesame, no file\n"
    upgraded = start(tmp_path, "upgrade", PGPASSWORD_FILE=str(tmp_path / "secret"), MLFLOW_BACKEND_STORE_URI=STORE)
    assert upgraded.stdout == f"db upgrade {STORE}: sesame, no file\n"


@pytest.mark.parametrize(("text", "says"), [(None, "cannot read"), ("", "an empty first line")])
def test_a_missing_or_empty_secret_ends_it_by_its_name(tmp_path: Path, text: str | None, says: str) -> None:
    if text is not None:
        (tmp_path / "secret").write_text(text)
    ended = start(tmp_path, PGPASSWORD_FILE=str(tmp_path / "secret"))
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert "PGPASSWORD_FILE" in ended.stderr
    assert says in ended.stderr


def test_a_store_that_does_not_answer_ends_it_with_one_line(tmp_path: Path) -> None:
    ended = start(
        tmp_path,
        MLFLOW_ARTIFACTS_DESTINATION="s3://mlflow",
        MLFLOW_S3_ENDPOINT_URL="http://127.0.0.1:9",
        AWS_ACCESS_KEY_ID="mlflow",
        AWS_SECRET_ACCESS_KEY="open-sesame",  # noqa: S106 - of nobody
        AWS_MAX_ATTEMPTS="1",
    )
    assert ended.returncode == 1
    assert "cannot create bucket mlflow" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "open-sesame" not in ended.stderr


def test_a_server_that_is_away_when_a_user_is_to_be_made_is_said_without_a_secret(tmp_path: Path) -> None:
    ended = start(
        tmp_path,
        "user",
        MLFLOW_TRACKING_URI="http://127.0.0.1:9",
        MLFLOW_TRACKING_USERNAME="tracker",
        MLFLOW_TRACKING_PASSWORD="open-sesame",  # noqa: S106 - of nobody
        MLFLOW_AUTH_ADMIN_PASSWORD="open-barley",  # noqa: S106
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("mlflow_server: cannot reach MLflow at http://127.0.0.1:9: ")
    assert "Traceback" not in ended.stderr
    assert "open-" not in ended.stderr
