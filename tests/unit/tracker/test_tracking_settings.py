"""Who asks an MLflow server, and where the password comes from."""

import os
from pathlib import Path

import pytest

from eval_jobs.errors import ConfigError
from eval_jobs.host.secrets import held_secrets, passed_on
from tracker.config import parse_config
from tracker.wiring.project import Project

MINIMAL = '[run]\nname = "r"\noutput_dir = "out"\n[[benchmark]]\nbenchmark = "arc"\n[tracking]\n'
SERVER = 'uri = "http://mlflow:5000"\n'
BY_FILE = SERVER + 'username = "admin"\npassword_file = "secret"\n'
PASSWORD = "open sesame: 4711"  # noqa: S105 - of no server


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's variables, which are as they were after the test."""
    for name, value in (("USERNAME", "somebody"), ("PASSWORD", "of somebody"), ("TOKEN", "a-token-of-somebody")):
        monkeypatch.setenv(f"MLFLOW_TRACKING_{name}", value)


def project(folder: Path, tracking: str) -> Project:
    return Project(parse_config(MINIMAL + tracking, folder / "tracker.toml"))


def asks_as() -> tuple[str | None, ...]:
    return tuple(os.environ.get(f"MLFLOW_TRACKING_{name}") for name in ("USERNAME", "PASSWORD", "TOKEN"))


def test_the_password_of_an_mlflow_server_comes_from_the_first_line_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{PASSWORD}\nand a remark\n")
    assert project(tmp_path, BY_FILE).mlflow.uri == "http://mlflow:5000"
    assert asks_as() == ("admin", PASSWORD, None)
    assert PASSWORD in held_secrets(os.environ)
    assert not {"MLFLOW_TRACKING_PASSWORD"} & set(passed_on(os.environ))


def test_without_a_file_the_environment_decides(tmp_path: Path) -> None:
    assert project(tmp_path, SERVER).mlflow.uri == "http://mlflow:5000"
    assert asks_as() == ("somebody", "of somebody", "a-token-of-somebody")


@pytest.mark.parametrize("text", [None, "", "\n"])
def test_a_file_without_a_password_is_refused_by_its_name(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "secret").write_text(text)
    with pytest.raises(ConfigError, match="secret") as caught:
        _ = project(tmp_path, BY_FILE).mlflow.uri
    assert caught.value.hint == "fix tracking.password_file"
    assert asks_as() == ("somebody", "of somebody", "a-token-of-somebody")


@pytest.mark.parametrize(
    ("tracking", "says"),
    [
        (SERVER + 'username = "admin"\n', "set together"),
        (SERVER + 'password_file = "secret"\n', "set together"),
        ('username = "admin"\npassword_file = "secret"\n', "tracking.uri"),
        ('uri = "sqlite:///a.db"\nusername = "admin"\npassword_file = "secret"\n', "tracking.uri"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(tmp_path: Path, tracking: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        project(tmp_path, tracking)
