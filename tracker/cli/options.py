"""Options that several commands share."""

import json
import math
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

import click
from pydantic_core import to_jsonable_python

from eval_jobs.errors import ConfigError
from tracker.config import DEFAULT_NAME

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)
Parameters = ParamSpec("Parameters")

FILE = click.Path(path_type=Path, dir_okay=False)
COUNT = click.IntRange(min=0)

JSON_SCHEMA_VERSION = 1
"""Of what `--json` prints: it rises when a field is renamed, removed or changes its meaning, not when one is added."""


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


class JsonFlag(click.Option):
    """`--json`, with the type of the result that it prints; docs/reference/json.md is generated from it."""

    def __init__(self, names: Sequence[str], *, kind: object, is_flag: bool = True, help: str = "") -> None:
        super().__init__(names, is_flag=is_flag, help=help)
        self.kind = kind


def json_option(kind: object) -> Callable[[Callable[Parameters, Answer]], Callable[Parameters, Answer]]:
    """Add `--json`, passed on as `as_json`; `kind` is the type of the result."""
    return click.option("--json", "as_json", cls=JsonFlag, kind=kind, help="Print JSON instead of a table.")


def print_json(result: object) -> None:
    """Print the result of the current command in the envelope that all commands share."""
    command = click.get_current_context().command_path.partition(" ")[2]
    click.echo(json_text(command, result))


def json_text(command: str, result: object) -> str:
    """Return the result of a command as a JSON document in ASCII: a file name may contain invalid UTF-8.

    JSON has no infinite numbers: they are the texts "Infinity" and "-Infinity", and not-a-number is "NaN".
    """
    plain = _without_infinity(to_jsonable_python(result, inf_nan_mode="constants"))
    document = {"schema_version": JSON_SCHEMA_VERSION, "command": command, "result": plain}
    return json.dumps(document, indent=2, allow_nan=False)


def checked_run_name(name: str) -> str:
    """Return the name that somebody gives to a run: it is shown in tables, and asked for by typing it.

    Raises:
        ConfigError: nobody could.
    """
    if not name.strip() or not name.isprintable():
        raise ConfigError(f"invalid --run {name!r}", hint="use printable characters on one line")
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
