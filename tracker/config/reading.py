"""A TOML file -> the model of its tables, and every wrong setting said with its file, table and name."""

import difflib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from eval_jobs.errors import ConfigError
from tracker.config.section import Section, toml_key

File = TypeVar("File", bound=Section)
"""Model of a whole file."""


def section_of(annotation: Any) -> type[Section] | None:  # noqa: ANN401 - a type expression has no common type
    """Return the section that a setting of this type holds; None: it is no table."""
    candidates = (annotation, *get_args(annotation))
    return next((c for c in candidates if isinstance(c, type) and issubclass(c, Section)), None)


def read_text(path: Path, *, hint: str) -> str:
    """Return what is in the file.

    `hint`: what to do when there is none.

    Raises:
        ConfigError: it is missing or cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise ConfigError(f"{path} not found", hint=hint) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text", hint="save the file as UTF-8") from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error}", hint="check the file's permissions") from error


def text_without(table: str, path: Path, *, hint: str) -> str:
    """Return what is in a file that has been loaded before, if it lacks the table.

    Raises:
        ConfigError: the table is there, or the file cannot be read.
    """
    text = read_text(path, hint=hint)
    if table in tomllib.loads(text):
        raise ConfigError(f"{path} already has a [{table}] table", hint=hint)
    return text


def checked(model: type[File], text: str, path: Path) -> File:
    """Return the settings that the text of a file holds; `path` anchors relative paths and is named in errors.

    Raises:
        ConfigError: it is no TOML, or a setting is wrong; all wrong settings are named at once.
    """
    try:
        document = tomllib.loads(text)
    # Besides its own error, tomllib lets through what Python says of a number of 5,000 digits or of 5,000 brackets.
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", hint="fix that line") from error
    try:
        return model.model_validate(document, context=path.absolute().parent)
    except ValidationError as error:
        problems = "; ".join(_sentence(model, detail) for detail in error.errors())
        raise ConfigError(f"{path}: {problems}", hint='see "Settings" in the documentation') from error


def _sentence(model: type[Section], detail: ErrorDetails) -> str:
    where = ".".join(_names(detail["loc"]))
    if detail["type"] == "extra_forbidden":
        return f"unknown setting {where}{_nearest(model, detail['loc'])}"
    if detail["type"] == "missing":
        return f"missing setting {where}"
    table = ".".join(toml_key(part) for part in detail["loc"] if isinstance(part, str))
    return f"{where}: {_reason(table, detail)}" if where else _reason(table, detail)


def _reason(where: str, detail: ErrorDetails) -> str:
    if detail["type"] == "model_type":
        return f"this is a table: write [{where}]"
    if detail["type"] == "tuple_type" and isinstance(detail["input"], dict):
        return f"this is an array of tables: write [[{where}]]"
    return detail["msg"].removeprefix("Value error, ")


def _names(location: tuple[int | str, ...]) -> Iterator[str]:
    """Count entries of a list from 1, as people do."""
    for part in location:
        yield f"[{part + 1}]" if isinstance(part, int) else toml_key(part)


def _nearest(model: type[Section], location: tuple[int | str, ...]) -> str:
    known = _table_at(model, location[:-1]).listed()
    close = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.5)
    if close:
        return f" (did you mean {close[0]}?)"
    return f" (known: {', '.join(known)})"


def _table_at(model: type[Section], location: tuple[int | str, ...]) -> type[Section]:
    """Return the model of the table in that place; the number or the name of one of several is no field."""
    is_name = False
    for part in location:
        if is_name or isinstance(part, int):
            is_name = False
            continue
        annotation = model.model_fields[part].annotation
        is_name = get_origin(annotation) is dict
        model = section_of(annotation) or model
    return model
