"""The configuration model as text for `tracker init`; docs/generator builds its reference page with it. Pure."""

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import pairwise
from pathlib import PurePath
from typing import get_origin

from pydantic import BaseModel

from tracker.config import Config
from tracker.config.reading import section_of
from tracker.config.section import Section

Values = Mapping[str, object]
"""Settings of one table by name."""

OFFERED: Mapping[str, Values] = {
    "serve": {"python": "/envs/vllm/bin/python", "gpu_memory_utilization": 0.3, "max_model_len": 4096},
    "benchmark": {"limit": 500, "max_tokens": 512, "few_shot": 5, "chance": 0.25},
    "policy": {"min_effect": 0.02, "planned_checkpoints": 100},
    "tracking": {"uri": "http://127.0.0.1:5000"},
    "keep": {"pins": 8},
    "alerts.channel": {"name": "team", "kind": "slack", "url_env": "SLACK_URL"},
}
"""Settings that a new file shows as comments, with an example of a value."""
MAX_LINES = 60
_WHY = {"max_tokens": "  # context length of the model, less the longest question and 16 tokens for the template"}
"""Comments on values that `tracker init` computes."""


@dataclass(frozen=True, kw_only=True)
class SettingsTable:
    """One table of the file."""

    name: str
    head: str
    """Header as in the file; NAME is a placeholder."""
    section: type[Section]
    is_one_of_several: bool


def commented_toml(chosen: Mapping[str, tuple[Values, ...]]) -> str:
    """Return a tracker.toml in which `chosen` is set, and the settings that users change first are comments.

    The comments are left out where the file would have more than `MAX_LINES`.

    Args:
        chosen: settings by table name, one mapping for each time the table appears.
    """
    lines = _commented(chosen, OFFERED)
    if len(lines) > MAX_LINES:
        lines = _commented(chosen, {})
    return "\n".join(lines) + "\n"


def _commented(chosen: Mapping[str, tuple[Values, ...]], all_offered: Mapping[str, Values]) -> list[str]:
    lines = ['# Configuration of checkpoint-tracker. "Settings" in its documentation lists all settings and defaults.']
    for table in tables():
        given, offered = chosen.get(table.name, ()), all_offered.get(table.name, {})
        for index, values in enumerate(given or ({},) if offered or given else ()):
            off = "" if given or not table.is_one_of_several else "# "
            lines += ["", f"{off}{table.head}"]
            lines += [f"{key} = {toml_text(value)}{_WHY.get(key, '')}" for key, value in values.items()]
            if index == 0:
                lines += _offers(table.section, {key: offered[key] for key in offered if key not in values})
    return lines


def tables(model: type[Section] = Config, prefix: str = "", *, is_inside: bool = False) -> Iterator[SettingsTable]:
    """Yield every table with its full name; a nested table follows its parent, and is repeatable if that is."""
    for key, field in model.model_fields.items():
        section = section_of(field.annotation)
        if section is not None:
            name = f"{prefix}{key}"
            kind = get_origin(field.annotation)
            head = f"[[{name}]]" if kind is tuple else f"[{name}.NAME]" if kind is dict else f"[{name}]"
            is_one_of_several = is_inside or kind is not None
            yield SettingsTable(name=name, head=head, section=section, is_one_of_several=is_one_of_several)
            yield from tables(section, f"{name}.", is_inside=is_one_of_several)


def meanings(section: type[Section]) -> dict[str, str]:
    """Return what every setting means: its description, or the docstring below its declaration."""
    found = {key: field.description or "" for key, field in section.model_fields.items()}
    for declaring in [one for one in section.__mro__ if one not in (BaseModel, object)]:
        for key, text in _texts_below(declaring.__module__).get(declaring.__name__, {}).items():
            found[key] = found.get(key) or text
    return found


def toml_text(value: object) -> str:
    """Return a value as TOML; JSON notation is valid TOML for the types that settings have."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, PurePath):
        value = str(value)
    return json.dumps(value, ensure_ascii=False)


_ASIDE = re.compile(r"^\w+: | \([^)]*\)|, such as .*")


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


def _offers(section: type[Section], offered: Values) -> Iterator[str]:
    """Yield each setting as a comment: its value, and the first sentence of its description."""
    texts = meanings(section)
    for key, value in offered.items():
        meaning = _ASIDE.sub("", texts[key].replace("`", "").partition(". ")[0]).rstrip(".")
        yield f"# {key} = {toml_text(value)}  # {meaning[:1].upper()}{meaning[1:]}"
