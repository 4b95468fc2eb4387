"""The configuration model as text for `tracker init`; docs/generator builds its reference page with it. Pure."""

import ast
import inspect
import json
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import pairwise
from pathlib import PurePath
from typing import get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tracker.config import Config
from tracker.config.section import Section

Values = Mapping[str, object]
"""Settings of one table by name."""

WIDTH = 110


@dataclass(frozen=True, kw_only=True)
class SettingsTable:
    """One table of the file."""

    name: str
    head: str
    """Header as in the file; NAME is a placeholder."""
    section: type[Section]
    is_one_of_several: bool


def commented_toml(chosen: Mapping[str, tuple[Values, ...]]) -> str:
    """Return a tracker.toml in which `chosen` is set and everything else is a comment with its default.

    Args:
        chosen: settings by table name, one mapping for each time the table appears.
    """
    lines = ["# Configuration of checkpoint-tracker. Commented-out settings show their defaults."]
    for table in tables():
        given = chosen.get(table.name, ())
        off = "" if given or not table.is_one_of_several else "# "
        for index, values in enumerate(given or ({},)):
            lines += ["", *(_comment(first_paragraph(table.section)) if index == 0 else ())]
            lines.append(off + table.head)
            lines += _settings(table.section, values, explain=index == 0)
    return "\n".join(lines) + "\n"


def tables(model: type[Section] = Config, prefix: str = "", *, is_inside: bool = False) -> Iterator[SettingsTable]:
    """Yield every table with its full name; a nested table follows its parent, and is repeatable if that is."""
    for key, field in model.model_fields.items():
        section = _section_of(field)
        if section is not None:
            name = f"{prefix}{key}"
            kind = get_origin(field.annotation)
            head = f"[[{name}]]" if kind is tuple else f"[{name}.NAME]" if kind is dict else f"[{name}]"
            is_one_of_several = is_inside or kind is not None
            yield SettingsTable(name=name, head=head, section=section, is_one_of_several=is_one_of_several)
            yield from tables(section, f"{name}.", is_inside=is_one_of_several)


def plain_settings(section: type[Section]) -> Iterator[tuple[str, FieldInfo]]:
    """Yield the settings of a table that are not tables themselves."""
    fields = ((key, section.model_fields[key]) for key in section.listed())
    return ((key, field) for key, field in fields if _section_of(field) is None)


def meanings(section: type[Section]) -> dict[str, str]:
    """Return what every setting means: its description, or the docstring below its declaration."""
    found = {key: field.description or "" for key, field in section.model_fields.items()}
    for declaring in [one for one in section.__mro__ if one not in (BaseModel, object)]:
        for key, text in _texts_below(declaring.__module__).get(declaring.__name__, {}).items():
            found[key] = found.get(key) or text
    return found


def first_paragraph(section: type[Section]) -> str:
    """Return the first paragraph of a table's docstring."""
    return " ".join((section.__doc__ or "").split("\n\n", maxsplit=1)[0].split())


def toml_text(value: object) -> str:
    """Return a value as TOML; JSON notation is valid TOML for the types that settings have."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, PurePath):
        value = str(value)
    return json.dumps(value, ensure_ascii=False)


# --- private


@cache
def _texts_below(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings below the fields of all classes of a module."""
    found: dict[str, dict[str, str]] = {}
    statements = ast.parse(inspect.getsource(sys.modules[module])).body
    for one in [statement for statement in statements if isinstance(statement, ast.ClassDef)]:
        for field, text in pairwise(one.body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(meaning))):
                    found.setdefault(one.name, {})[name] = " ".join(meaning.split())
    return found


def _section_of(field: FieldInfo) -> type[Section] | None:
    candidates = (field.annotation, *get_args(field.annotation))
    return next((c for c in candidates if isinstance(c, type) and issubclass(c, Section)), None)


def _settings(section: type[Section], values: Values, *, explain: bool) -> Iterator[str]:
    texts = meanings(section) if explain else {}
    for key, field in plain_settings(section):
        if explain:
            yield from _comment(texts[key])
        if key in values:
            yield f"{key} = {toml_text(values[key])}"
        elif explain:
            yield f"# {key} = {toml_text(_shown_default(field))}"


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text.replace("`", ""), WIDTH)]


def _shown_default(field: FieldInfo) -> object:
    """Return the default, or an empty value for settings that are off or required."""
    if field.default is PydanticUndefined or field.default is None:
        return ""
    return field.default
