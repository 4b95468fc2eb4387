"""The results of a project as tables: what `import tracker` gives.

    project = tracker.open("tracker.toml")
    project["my-run"].scores("gsm8k")

Reading changes nothing, and works beside a watcher that writes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from eval_jobs.errors import ConfigError
from tracker.api.place import found_place, opened_place
from tracker.api.project import Project
from tracker.api.reading import ChosenRuns
from tracker.api.steps import known_names_hint
from tracker.domain.tables.catalog import TABLES

if TYPE_CHECKING:
    from pandas import DataFrame


def open(
    place: str | os.PathLike[str] = "tracker.toml",
    *,
    samples: str | os.PathLike[str] | None = None,
    password_file: str | os.PathLike[str] | None = None,
) -> Project:
    """Open the results of a project.

    Args:
        place: a tracker.toml, its state folder, or the URL of its database.
        samples: folder of the samples, if it is not in the state folder.
        password_file: file with the database password in its first line; default: as in [store], or the variable
            TRACKER_DATABASE_PASSWORD.

    Raises:
        ConfigError: there are no results, or the password is missing.
        StoreError: the database cannot be read, or has tables of another version.
    """
    opened = opened_place(found_place(place, samples=samples, password_file=password_file))
    return Project(place=os.fspath(place), _runs=ChosenRuns(opened=opened))


def schema(table: str) -> DataFrame:
    """Return the columns of a table: table, column, dtype, unit, meaning.

    Raises:
        ConfigError: there is no such table.
    """
    from tracker.api.formats.frames import schema_of
    from tracker.domain.tables.answers import ANSWERS

    known = {**TABLES, **ANSWERS}
    if table not in known:
        raise ConfigError(f"no table {table!r}", hint=known_names_hint("tables", known, table))
    return schema_of([known[table]])
