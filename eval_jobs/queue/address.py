"""Checks database URLs. Pure.

A URL never contains a password: URLs are shown in errors and logs, and command lines are visible to all users.
"""

import re

from eval_jobs.errors import ConfigError

QUEUE_URL_VARIABLE = "TRACKER_DATABASE"
PASSWORD_VARIABLE = "TRACKER_DATABASE_PASSWORD"  # noqa: S105 - the name of a variable
"""Both variables pass the database to a worker: command lines are visible to all users."""

SCHEMES = {
    "sqlite": "sqlite",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}


def checked_database_url(url: str) -> str:
    """Return the URL with its full scheme.

    Raises:
        ConfigError: it contains a password, or is not a URL of SQLite or PostgreSQL.
    """
    scheme, separator, rest = url.partition("://")
    before_host = rest.rpartition("@")[0]
    if scheme != "sqlite" and (":" in before_host or re.search(r"[?&]password=", rest)):
        raise ConfigError(  # without the URL, which contains the password
            "the database URL contains a password",
            hint="remove it from the URL and rotate it; set store.password_env, store.password_file or --password-file",
        )
    if not separator or scheme not in SCHEMES:
        raise ConfigError(
            f"invalid database URL {url!r}",
            hint="use postgresql://user@host/name or sqlite:////absolute/path.db",
        )
    return f"{SCHEMES[scheme]}://{rest}"
