"""The reference of settings, from the configuration model."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tracker.cli.settings_text import SettingsTable, meanings, tables, toml_text
from tracker.config.reading import section_of
from tracker.config.section import Section

HEAD = """# Settings

Every setting of `tracker.toml`, with its default in parentheses. Paths are relative to the file; an unknown setting is
an error. A running `tracker watch` uses a saved file within seconds; pending evaluations are replaced, results stay
in their series. Restart it for changes of `[run]` or `[store]` (they hold back the whole file), data files or
environment variables.
"""


def settings_page() -> str:
    """Return docs/reference/settings.md."""
    seen: dict[type[Section], str] = {}
    lines = [HEAD]
    for table in tables():
        lines.append(f"## `{table.head}`\n")
        if table.section in seen:
            head = seen[table.section]
            lines.append(f"The same settings as [`{head}`](#{_anchor(head)}).\n")
        else:
            seen[table.section] = table.head
            lines += _table(table)
    return "\n".join(lines)


def plain_settings(section: type[Section]) -> Iterator[tuple[str, FieldInfo]]:
    """Yield the settings of a table that are not tables themselves."""
    fields = ((key, section.model_fields[key]) for key in section.listed())
    return ((key, field) for key, field in fields if section_of(field.annotation) is None)


# --- private


def _table(table: SettingsTable) -> Iterator[str]:
    paragraph, _, _ = (table.section.__doc__ or "").partition("\n\n")
    yield f"{' '.join(paragraph.split())}\n"
    known = meanings(table.section)
    for key, field in plain_settings(table.section):
        yield f"`{key}` ({_default(field)})\n:   {known[key]}\n"


def _anchor(head: str) -> str:
    return re.sub(r"[^\w-]", "", head).lower()


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "required"
    if field.default is None:
        return "unset"
    if field.default in ("", (), {}):
        return "empty"
    return f"`{toml_text(field.default)}`"
