"""Reads lines in a format that the user describes. Pure.

form = LogFormat(step="it", values={"loss": "train.ce"})
form.row('{"it": 5, "train": {"ce": 2.5}}')     # step 5, {"loss": 2.5}
form.row("it 5 | train.ce=2.5")                 # the same
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from eval_jobs.host.bounded.json_text import parse_json
from tracker.domain.health.logs.step_lines import NUMBER, StepRow, number_in, whole_step

_NUMBER = re.compile(NUMBER, re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class LogFormat:
    """Where a log has its numbers: dotted paths into JSON objects, columns of a CSV, or names before a number."""

    step: str
    values: Mapping[str, str]
    """Name of a curve -> where its value is."""

    def row(self, text: str) -> StepRow | None:
        """Return what a line says; None: it is none of this format."""
        document = _document(text)
        paths = (self.step, *self.values.values())
        if document is None:
            return self.row_of({path: _beside(path, text) for path in paths})
        return self.row_of({path: _inside(path, document) for path in paths})

    def row_of(self, found: Mapping[str, object]) -> StepRow | None:
        """Return what a mapping from paths to values says."""
        step = whole_step(number_of(found.get(self.step)))
        numbers = {name: number_of(found.get(path)) for name, path in self.values.items()}
        values = {name: number for name, number in numbers.items() if number is not None}
        if step is None or not values:
            return None
        return StepRow(step=step, values=values)


def _document(text: str) -> object:
    try:
        return parse_json(text) if text.startswith("{") else None
    except ValueError:
        return None


def _inside(path: str, document: object) -> object:
    """Return the value at a path; a name that has dots itself comes first."""
    if not isinstance(document, Mapping):
        return None
    if path in document:
        return document[path]
    first, _, rest = path.partition(".")
    return _inside(rest, document.get(first)) if rest else None


def _beside(name: str, text: str) -> str | None:
    pattern = rf"(?<![\w.]){re.escape(name)}['\"]?\s*[:=]?\s*['\"]?({NUMBER})(?![\w.])"
    found = re.search(pattern, text, re.IGNORECASE)
    return None if found is None else found[1]


def number_of(value: object) -> float | None:
    """Return a number or its text as a number; None: it is neither."""
    text = str(value).strip() if isinstance(value, int | float | str) else ""
    return number_in(text) if _NUMBER.fullmatch(text) else None
