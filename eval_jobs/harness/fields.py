"""JSON of others, read so that whatever is wrong names the file and the field. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eval_jobs.errors import BadData

_SHOWN_CHARS = 60
_LARGEST = 1e18
"""Beyond it nothing that is counted, timed or scored is a measurement, and no store takes a step."""


@dataclass(frozen=True, kw_only=True)
class Fields:
    """One JSON object and where it stands."""

    source: str
    """Path of the file."""
    values: Mapping[str, object]
    path: str = ""
    """Of the object inside the file, `results.arc_easy`; empty: the file's own."""

    def refusal(self, name: str, problem: str, *, hint: str = "") -> BadData:
        """Return the error that names file and field."""
        return BadData(
            f"{self.source}: `{self._place(name)}` {problem}",
            hint=hint
            or 'use an unmodified result file; for the supported formats, see "Import results" in the documentation',
        )

    def mapping(self, name: str) -> Fields:
        """Return an object inside; an empty one where there is none.

        Raises:
            BadData: something else stands there.
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
        """Return a finite number, None where there is none."""
        return finite(self.values.get(name))

    def count(self, name: str) -> int:
        """Return a whole number from 0.

        Raises:
            BadData: there is none.
        """
        value = self.values.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _LARGEST:
            raise self.refusal(name, f"is {value_text(value)} (expected a non-negative integer)")
        return value

    def text(self, name: str) -> str:
        """Return a text; empty where there is none."""
        value = self.values.get(name)
        if isinstance(value, str):
            return value
        return ""

    def numbers(self, name: str) -> tuple[float, ...]:
        """Return a list of finite numbers; () where there is none.

        Raises:
            BadData: it holds something else.
        """
        values = self.values.get(name)
        if values is None:
            return ()
        found = [finite(value) for value in values] if isinstance(values, list) else [None]
        if None in found:
            raise self.refusal(name, f"is {value_text(values)} (expected a list of numbers)")
        return tuple(value for value in found if value is not None)

    # --- private

    def _place(self, name: str) -> str:
        if self.path:
            return f"{self.path}.{name}"
        return name


def finite(value: object) -> float | None:
    """Return a finite number that is no truth value, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > _LARGEST:
        return None
    if math.isfinite(value):
        return float(value)
    return None


def value_text(value: object) -> str:
    """Return a value as a message can show it."""
    if value is None:
        return "missing"
    if isinstance(value, int) and abs(value) > _LARGEST:  # Python refuses to write it out
        return "a very large number"
    text = f"a list of size {len(value)}" if isinstance(value, Sequence) and not isinstance(value, str) else repr(value)
    if len(text) <= _SHOWN_CHARS:
        return text
    return f"{text[:_SHOWN_CHARS]}..."
