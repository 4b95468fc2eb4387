"""Between which numbers a setting lies, for processes without pydantic too: needs the standard library only."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Stands in `Annotated`; pydantic checks it where a record is read, and where it is a table of the settings."""

    gt: float | None = None
    ge: float | None = None
    le: float | None = None

    def __get_pydantic_core_schema__(
        self, source: object, handler: Callable[[object], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the schema of `source` with these bounds; None is within them where `source` allows it."""
        schema = handler(source)
        number = schema["schema"] if schema["type"] == "nullable" else schema
        number |= {name: bound for name, bound in asdict(self).items() if bound is not None}
        return schema
