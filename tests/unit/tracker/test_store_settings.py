"""Where the database is and how its password is given."""

import traceback
from pathlib import Path

import pytest

from eval_jobs.errors import ConfigError
from tracker.config import parse_config
from tracker.wiring.project import Project

MINIMAL = '[run]\nname = "r"\noutput_dir = "out"\n[[benchmark]]\nbenchmark = "arc"\n[store]\n'
WITH_PASSWORD = 'database = "postgresql://me:sesame@host/runs"\n'  # noqa: S105 - of no server
SERVER = 'database = "postgresql://me@host/runs"\n'


def project(folder: Path, store: str) -> Project:
    return Project(parse_config(MINIMAL + store, folder / "tracker.toml"))


def test_the_database_is_a_file_in_the_state_folder_unless_it_is_named(tmp_path: Path) -> None:
    assert project(tmp_path, "").config.database_url == f"sqlite:///{tmp_path}/.tracker/tracker.db"
    assert project(tmp_path, SERVER).config.database_url == "postgresql+psycopg://me@host/runs"


def test_a_password_comes_from_an_environment_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNS_PASSWORD", "sesame")
    named = project(tmp_path, SERVER + 'password_env = "RUNS_PASSWORD"\n')
    assert named.database_password == "sesame"  # noqa: S105 - of no server
    assert "sesame" not in repr(named.database)


def test_a_password_comes_from_the_first_line_of_a_file_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("sesame\nand a remark\n")
    assert project(tmp_path, SERVER + 'password_file = "secret"\n').database_password == "sesame"  # noqa: S105


@pytest.mark.parametrize("text", [None, "", "\n"])
def test_a_file_without_a_password_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "secret").write_text(text)
    with pytest.raises(ConfigError, match="secret"):
        _ = project(tmp_path, SERVER + 'password_file = "secret"\n').database_password


def test_a_variable_that_is_not_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="TRACKER_TEST_NOT_SET is not set"):
        _ = project(tmp_path, SERVER + 'password_env = "TRACKER_TEST_NOT_SET"\n').database_password


@pytest.mark.parametrize(
    ("store", "says"),
    [
        (SERVER + 'password_env = "A"\npassword_file = "b"\n', "not both"),
        ('password_env = "A"\n', "store.database"),
        ('database = "mysql://host/runs"\n', "invalid database URL 'mysql://host/runs'"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(tmp_path: Path, store: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        project(tmp_path, store)


def test_a_password_in_the_url_is_refused_and_shown_nowhere_not_even_in_a_traceback(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the database URL contains a password") as raised:
        project(tmp_path, WITH_PASSWORD)
    assert "sesame" not in "".join(traceback.format_exception(raised.value))
