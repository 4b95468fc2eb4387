"""The option `--json`, and the envelope of its output."""

import json
import math
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

import click
from pydantic_core import to_jsonable_python

Answer = TypeVar("Answer")
Parameters = ParamSpec("Parameters")

JSON_SCHEMA_VERSION = 1
"""Of the `--json` output: it rises when a field is renamed, removed or changes its meaning, not when one is added."""


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

    JSON has no infinite numbers: they become the strings "Infinity" and "-Infinity", and not-a-number becomes "NaN".
    """
    plain = _without_infinity(to_jsonable_python(result, inf_nan_mode="constants"))
    document = {"schema_version": JSON_SCHEMA_VERSION, "command": command, "result": plain}
    return json.dumps(document, indent=2, allow_nan=False)


def _without_infinity(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_infinity(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_infinity(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)
    return value
