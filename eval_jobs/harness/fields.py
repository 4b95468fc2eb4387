"""Access to JSON from other programs, with errors that name the file and the field. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eval_jobs.errors import BadData

_SHOWN_CHARS = 60
_LARGEST = 1e18
"""No count, time or score beyond it is a measurement, and no store accepts such a step."""


@dataclass(frozen=True, kw_only=True)
class Fields:
    """One JSON object and its position in a file."""

    source: str
    """Path of the file."""
    values: Mapping[str, object]
    path: str = ""
    """Path of the object inside the file, as in `results.arc_easy`; empty: the root."""

    def refusal(self, name: str, problem: str, *, hint: str = "") -> BadData:
        """Return an error that names file and field."""
        return BadData(
            f"{self.source}: `{self._place(name)}` {problem}",
            hint=hint
            or 'use an unmodified result file; for the supported formats, see "Import results" in the documentation',
        )

    def mapping(self, name: str) -> Fields:
        """Return a nested object; an empty one if there is none.

        Raises:
            BadData: the value is not an object.
        """
        value = self.values.get(name)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self.refusal(name, f"is {value_text(value)} (expected an object)")
        return Fields(source=self.source, values=value, path=self._place(name))

    def number(self, name: str) -> float:
        """Return a finite number.

        Raises:
            BadData: there is none.
        """
        value = self.optional_number(name)
        if value is None:
            raise self.refusal(name, f"is {value_text(self.values.get(name))} (expected a number)")
        return value

    def optional_number(self, name: str) -> float | None:
        """Return a finite number, or None if there is none."""
        return finite(self.values.get(name))

    def count(self, name: str) -> int:
        """Return a non-negative integer.

        Raises:
            BadData: there is none.
        """
        value = whole(self.values.get(name))
        if value is None:
            raise self.refusal(name, f"is {value_text(self.values.get(name))} (expected a non-negative integer)")
        return value

    def text(self, name: str) -> str:
        """Return a string; empty if there is none."""
        value = self.values.get(name)
        if isinstance(value, str):
            return value
        return ""

    def numbers(self, name: str) -> tuple[float, ...]:
        """Return a list of finite numbers; () if there is none.

        Raises:
            BadData: the value is not a list of finite numbers.
        """
        values = self.values.get(name)
        if values is None:
            return ()
        found = [finite(value) for value in values] if isinstance(values, list) else [None]
        if None in found:
            raise self.refusal(name, f"is {value_text(values)} (expected a list of numbers)")
        return tuple(value for value in found if value is not None)

    def _place(self, name: str) -> str:
        if self.path:
            return f"{self.path}.{name}"
        return name


def finite(value: object) -> float | None:
    """Return the value as a float if it is a finite number and not a bool, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > _LARGEST:
        return None
    if math.isfinite(value):
        return float(value)
    return None


def whole(value: object) -> int | None:
    """Return the value if it is a possible count: an integer from 0 on, and not a bool; else None."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST:
        return value
    return None


def value_text(value: object) -> str:
    """Return a short text for a value in a message."""
    if value is None:
        return "missing"
    if isinstance(value, int) and abs(value) > _LARGEST:  # Python limits the digits it converts to text
        return "a very large number"
    text = f"a list of size {len(value)}" if isinstance(value, Sequence) and not isinstance(value, str) else repr(value)
    if len(text) <= _SHOWN_CHARS:
        return text
    return f"{text[:_SHOWN_CHARS]}..."
