"""Options that several commands share."""

import json
import math
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

import click
from pydantic import TypeAdapter

from eval_jobs.errors import ConfigError
from tracker.config import DEFAULT_NAME

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)
Parameters = ParamSpec("Parameters")


class Callback(Protocol[Answer_co]):
    """What click calls with everything that was asked for, by name."""

    def __call__(self, **given: object) -> Answer_co:
        """Carry the command out."""


def asked_as(kind: type[Asked]) -> Callable[[Callable[[Asked], Answer]], Callback[Answer]]:
    """Let a command take what was asked for as one record of `kind`; its fields are named like click's parameters."""

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
        type=click.Path(path_type=Path, dir_okay=False),
        default=Path(DEFAULT_NAME),
        show_default=True,
        help="The project's configuration.",
    )(function)


def workers_option(function: Callable[Parameters, Answer]) -> Callable[Parameters, Answer]:
    """Add `--workers`."""
    return click.option(
        "--workers", type=click.IntRange(0), default=1, show_default=True, help="Evaluating processes here; 0: none."
    )(function)


def json_option(function: Callable[Parameters, Answer]) -> Callable[Parameters, Answer]:
    """Add `--json`, passed on as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for a script.")(function)


def json_text(kind: Any, value: object) -> str:  # noqa: ANN401 - a type expression has no common type
    """Return a record of type `kind` as JSON in ASCII: a file's name may hold what is no UTF-8.

    JSON has no infinite numbers: they are the texts "Infinity" and "-Infinity", and what is no number is "NaN".
    """
    plain = _without_infinity(TypeAdapter[Any](kind).dump_python(value, mode="json"))
    return json.dumps(plain, indent=2, allow_nan=False)


def checked_run_name(name: str) -> str:
    """Return the name that somebody gives to a run: it is shown in tables, and asked for by typing it.

    Raises:
        ConfigError: nobody could.
    """
    if not name.strip() or not name.isprintable():
        raise ConfigError(f"--run {name!r} is no name for a run", hint="write a name of one line that can be seen")
    return name


# --- private


def _without_infinity(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_infinity(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_infinity(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)
    return value
