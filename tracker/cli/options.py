"""Options that several commands share."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

import click

from eval_jobs.errors import ConfigError
from tracker.config import DEFAULT_NAME

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)
Parameters = ParamSpec("Parameters")

FILE = click.Path(path_type=Path, dir_okay=False)
COUNT = click.IntRange(min=0)


class Callback(Protocol[Answer_co]):
    """A function that click calls with all parameters by name."""

    def __call__(self, **given: object) -> Answer_co:
        """Run the command."""


def asked_as(kind: type[Asked]) -> Callable[[Callable[[Asked], Answer]], Callback[Answer]]:
    """Pass click's parameters to a command as one record of `kind`, whose fields have the same names."""

    def taking(function: Callable[[Asked], Answer]) -> Callback[Answer]:
        @wraps(function)
        def called(**given: object) -> Answer:
            return function(kind(**given))

        return called

    return taking


def config_option(function: Callable[Parameters, Answer]) -> Callable[Parameters, Answer]:
    """Add `--config`, passed on as `config_path`."""
    return click.option(
        "--config",
        "config_path",
        type=FILE,
        default=Path(DEFAULT_NAME),
        show_default=True,
        help="Project configuration.",
    )(function)


def workers_option(function: Callable[Parameters, Answer]) -> Callable[Parameters, Answer]:
    """Add `--workers`."""
    return click.option(
        "--workers", type=COUNT, default=1, show_default=True, help="Number of local workers (0: none)."
    )(function)


def checked_run_name(name: str) -> str:
    """Return the name of a run if it is printable: it is shown in tables, and typed by users.

    Raises:
        ConfigError: the name is empty or not printable.
    """
    if not name.strip() or not name.isprintable():
        raise ConfigError(f"invalid --run {name!r}", hint="use printable characters on one line")
    return name
