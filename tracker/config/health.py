"""Rules for lines of a trainer's log: those of the package, and tables of the same form in a file of the user."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from tracker.config.reading import checked, read_text
from tracker.config.section import Section, named_twice
from tracker.domain.health.line_rules import NAN, LineRule, Severity

SHIPPED = "health_rules.toml"
"""Beside this module."""


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
    return pattern


Pattern = Annotated[str, Field(min_length=1), AfterValidator(_compiles)]


class LineRuleSection(Section):
    """One class of trouble, and the lines that show it."""

    name: str = Field(min_length=1, pattern=r"^[a-z][a-z0-9_]*$")
    """Name of the class: lower case letters, digits and `_`."""
    contains: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)
    """Texts of which any must occur; case does not count."""
    pattern: Pattern
    """Regular expression that must fit; case does not count."""
    without: Pattern | None = None
    """Regular expression that must not fit."""
    severity: Severity = Severity.ALERT
    """`alert` or `shown`."""
    terminal: bool = False
    """Whether the training ends with it."""
    consequence: bool = False
    """Whether another line is its cause."""
    hint: str = ""
    """What to do."""

    def to_rule(self, order: int) -> LineRule:
        """Return the record; `order` is its place among all rules."""
        return LineRule(
            name=self.name,
            contains=tuple(text.lower() for text in self.contains),
            pattern=re.compile(self.pattern, re.IGNORECASE),
            without=None if self.without is None else re.compile(self.without, re.IGNORECASE),
            severity=self.severity,
            is_terminal=self.terminal,
            is_consequence=self.consequence,
            hint=self.hint,
            order=order,
        )


class RulesFile(Section):
    """A file of rules."""

    rule: tuple[LineRuleSection, ...]

    @model_validator(mode="after")
    def _names_are_unique(self) -> RulesFile:
        names = [one.name for one in self.rule]
        if twice := named_twice(names):
            raise ValueError(f"two rules are named {twice}: rename one")
        if NAN in names:
            raise ValueError(f"{NAN} is found by the numbers of a step: choose another name")
        return self


def load_line_rules(path: Path | None = None) -> tuple[LineRule, ...]:
    """Return the rules of the package, after those of a file: a rule of the same name replaces ours.

    Raises:
        ConfigError: the file is missing, is no TOML, or a rule is wrong; all wrong settings are named at once.
    """
    own: tuple[LineRuleSection, ...] = ()
    if path is not None:
        own = checked(RulesFile, read_text(path, hint="pass an existing file to --rules"), path).rule
    shipped = files("tracker.config").joinpath(SHIPPED)
    ours = checked(RulesFile, shipped.read_text(encoding="utf-8"), Path(SHIPPED)).rule
    replaced = {one.name for one in own}
    kept = (*own, *(one for one in ours if one.name not in replaced))
    return tuple(one.to_rule(order) for order, one in enumerate(kept))
