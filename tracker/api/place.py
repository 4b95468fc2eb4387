"""Where the results of a project are, and how they are opened: by tracker.toml, state folder, or database URL."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from eval_jobs.queue.address import PASSWORD_VARIABLE, checked_database_url
from tracker.adapters.secrets import read_secret

if TYPE_CHECKING:
    from eval_jobs.queue.database_sql import Database
    from tracker.adapters.history.store_sql import SqlHistory
    from tracker.adapters.history.tables_sql import ResultTables
    from tracker.config import Config
    from tracker.domain.records.policy import Policy

DATABASE = "tracker.db"
SETTINGS = "tracker.toml"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where results are."""

    database_url: str
    password: str = ""
    samples_dir: Path | None = None
    """Folder of the samples; None: unknown."""
    config: Config | None = None
    """The settings; None: unknown."""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """An open database, shared by all parts of a project."""

    tables: ResultTables
    database: Database
    place: Place
    process: int
    """Connections must not be used in a fork of it."""

    @cached_property
    def history(self) -> SqlHistory:
        """The records and reports."""
        from tracker.adapters.history.store_sql import SqlHistory

        return SqlHistory(self.database, self.place.samples_dir or Path())

    @property
    def config(self) -> Config | None:
        """The settings; None: unknown."""
        return self.place.config

    @property
    def own_run(self) -> str:
        """Name of the run of the settings; empty: unknown."""
        return "" if self.config is None else self.config.run.name

    @cached_property
    def policy(self) -> Policy:
        """Thresholds and phases of the settings, or the defaults."""
        from tracker.domain.records.policy import Policy
        from tracker.wiring.programs import verdict_policy

        return Policy() if self.config is None else verdict_policy(self.config)


def found_place(
    place: str | os.PathLike[str],
    *,
    samples: str | os.PathLike[str] | None,
    password_file: str | os.PathLike[str] | None,
) -> Place:
    """Return where the results of `place` are.

    Raises:
        ConfigError: there is nothing, or the password cannot be read.
    """
    text, given = os.fspath(place), None if samples is None else Path(samples)
    if "://" in text:
        return Place(
            database_url=checked_database_url(text),
            password=_password(None if password_file is None else Path(password_file), ""),
            samples_dir=given,
        )
    path = Path(text).expanduser()
    if path.is_dir():
        if not (path / DATABASE).is_file() and (path / SETTINGS).is_file():
            return _of_settings(path / SETTINGS, given, password_file)
        url = f"sqlite:///{(path / DATABASE).absolute()}"
        return Place(database_url=url, samples_dir=given or path / "samples")
    return _of_settings(path, given, password_file)


def opened_place(place: Place) -> Opened:
    """Open the database of a place to read it.

    Raises:
        StoreError: it cannot be read, or has tables of another version.
    """
    from eval_jobs.queue.database_sql import open_for_reading
    from eval_jobs.queue.migrate_sql import demand_newest
    from tracker.adapters.database.tables import TRACKER_TABLES
    from tracker.adapters.history.tables_sql import ResultTables

    database = open_for_reading(place.database_url, password=place.password)
    demand_newest(database, TRACKER_TABLES)
    return Opened(tables=ResultTables(database), database=database, place=place, process=os.getpid())


def _of_settings(path: Path, samples: Path | None, password_file: str | os.PathLike[str] | None) -> Place:
    from tracker.config import load_config

    config = load_config(path, hint="pass a tracker.toml, a state folder, or the URL of a database")
    store = config.store
    file = store.password_file if password_file is None else Path(password_file)
    return Place(
        database_url=checked_database_url(config.database_url),
        password=_password(file, store.password_env),
        samples_dir=samples or config.run.samples_dir,
        config=config,
    )


def _password(file: Path | None, variable: str) -> str:
    if file is not None:
        return read_secret(variable="", file=file, setting="store.password")
    if not variable and PASSWORD_VARIABLE in os.environ:
        variable = PASSWORD_VARIABLE
    return read_secret(variable=variable, file=None, setting="store.password")
