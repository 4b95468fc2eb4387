import pytest

from eval_jobs.errors import ConfigError
from eval_jobs.queue.address import checked_database_url


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_every_name_of_postgresql_means_the_one_driver(scheme: str) -> None:
    assert checked_database_url(f"{scheme}://me@host:5432/runs") == "postgresql+psycopg://me@host:5432/runs"


def test_a_sqlite_path_may_hold_what_looks_like_a_password() -> None:
    assert checked_database_url("sqlite:////home/a:b@c/tracker.db") == "sqlite:////home/a:b@c/tracker.db"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:sesame@host/runs",
        "postgresql://me:se/sa#me?@host/runs",
        "postgresql://me:se@sa@host/runs",
        "postgresql://host/runs?user=me&password=sesame",
        "mysql://me:sesame@host/runs",
    ],
)
def test_a_url_with_a_password_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ConfigError, match="contains a password") as raised:
        checked_database_url(url)
    assert "sesame" not in str(raised.value)
    assert "host" not in str(raised.value)


@pytest.mark.parametrize("url", ["mysql://host/runs", "tracker.db", "postgresql:host/runs", ""])
def test_other_databases_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="invalid database URL"):
        checked_database_url(url)
