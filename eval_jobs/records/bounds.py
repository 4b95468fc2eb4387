"""Bounds of numeric settings. Needs only the standard library, for processes without pydantic."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Bounds of a number, used in `Annotated`. Pydantic checks them when it reads records or tables of settings."""

    gt: float | None = None
    ge: float | None = None
    le: float | None = None

    def __get_pydantic_core_schema__(
        self, source: object, handler: Callable[[object], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the schema of `source` with these bounds; None stays valid if `source` allows it."""
        schema = handler(source)
        number = schema["schema"] if schema["type"] == "nullable" else schema
        number |= {name: bound for name, bound in asdict(self).items() if bound is not None}
        return schema
