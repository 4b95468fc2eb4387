"""Conditions of users on the numbers of a log: `rewards/std < 1e-3 for 50 points`. Pure."""

import operator
import re
from dataclasses import dataclass

from tracker.domain.records.training import Severity

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d{1,2})?"
_FORM = re.compile(
    rf"(?P<key>[^<>=]*[^<>=\s])\s*(?P<sign>[<>]=?)\s*(?P<number>{_NUMBER})(?:\s+for\s+(?P<points>[1-9]\d*)\s+points?)?",
    re.IGNORECASE,
)
_SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@dataclass(frozen=True, kw_only=True)
class MetricCondition:
    """When a number is trouble, whatever its past."""

    name: str
    """Of the rule."""
    key: str
    """Printed name of the number, in lower case."""
    sign: str
    threshold: float
    points: int
    """In a row."""
    severity: Severity
    title: str = ""
    """In words; empty: the name says it."""
    hint: str

    @classmethod
    def parse(
        cls, text: str, *, name: str = "", severity: Severity = Severity.ALERT, title: str = "", hint: str = ""
    ) -> "MetricCondition":
        """Return the condition that a text says; without a name, the text is its name.

        Raises:
            ValueError: the text says no condition.
        """
        found = _FORM.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"{text!r} is no condition: write NAME < NUMBER, such as 'loss >= 1e3 for 5 points'")
        return cls(
            name=name or text.strip(),
            key=found["key"].strip().lower(),
            sign=found["sign"],
            threshold=float(found["number"]),
            points=int(found["points"] or 1),
            severity=severity,
            title=title,
            hint=hint,
        )

    def holds(self, value: float) -> bool:
        """Return whether it is so for a value; never for NaN."""
        return bool(_SIGNS[self.sign](value, self.threshold))
