"""Types of columns, and the metadata that all tables belong to."""

import json

from sqlalchemy import (
    Dialect,
    MetaData,
    Text,
    TypeDecorator,
)

_ESCAPED = frozenset('"\\')


class AsciiText(TypeDecorator[str]):
    """Any text, such as the name of a file with invalid UTF-8, which no database stores as it is."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002 - SQLAlchemy's
        """Return the text with escapes, as in JSON."""
        if value is None or (value.isascii() and value.isprintable() and not _ESCAPED.intersection(value)):
            return value
        return json.dumps(value)[1:-1]

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Return the text from its escaped form."""
        return plain_text(value)


def plain_text(stored: str | None) -> str | None:
    """Return the text that `AsciiText` stored."""
    if stored is None or "\\" not in stored:
        return stored
    return str(json.loads(f'"{stored}"'))


METADATA = MetaData()
