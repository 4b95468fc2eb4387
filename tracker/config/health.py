"""Table [health] of tracker.toml: which logs are followed, and the rules for their lines, ours and the user's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from pydantic import (
    AfterValidator,
    Field,
    ModelWrapValidatorHandler,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)

from tracker.config.reading import checked, read_text
from tracker.config.section import Section, anchored, checked_with
from tracker.domain.health.logs.user_formats import LogFormat
from tracker.domain.health.processes.pace import HangLimits
from tracker.domain.health.rules.lines import NAN, LineRule
from tracker.domain.health.series.conditions import MetricCondition
from tracker.domain.records.training import Severity, TroubleClass

SHIPPED = "health_rules.toml"
"""Beside this module."""
_SLURM_PLACE = re.compile(r"%\d*(?!t)[A-Za-z]")
"""Of sbatch --output: %j is the job; %t is the rank, which is read from the path."""


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
    return pattern


Pattern = Annotated[str, Field(min_length=1), AfterValidator(_compiles)]


class RuleSection(Section):
    """One class of trouble, and the lines, or the numbers, that show it."""

    name: str = Field(min_length=1, pattern=r"^[a-z][a-z0-9_]*$")
    """Name of the class: lower case letters, digits and `_`."""
    contains: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Texts of which any must occur; case does not count. Empty: any line."""
    pattern: Pattern | None = None
    """Regular expression that must fit; case does not count."""
    without: Pattern | None = None
    """Regular expression that must not fit."""
    condition: str = ""
    """Instead of a pattern: `"rewards/std < 1e-3 for 50 points"`."""
    severity: Severity = Severity.ALERT
    """`alert` or `shown`."""
    terminal: bool = False
    """Whether the training ends with it."""
    consequence: bool = False
    """Whether another line is its cause."""
    wait_s: float = Field(default=0.0, ge=0)
    """Seconds without a step before it is reported."""
    title: str = ""
    """The class in words."""
    hint: str = ""
    """What to do."""
    command: str = ""
    """To run next."""
    action: str = ""
    """Reserved."""
    example: str = ""
    """A line that the rule must fit."""

    @field_validator("condition")
    @classmethod
    def _is_a_condition(cls, value: str) -> str:
        if value:
            MetricCondition.parse(value)
        return value

    @model_validator(mode="wrap")
    @classmethod
    def _has_one_test(cls, value: object, validate: ModelWrapValidatorHandler[RuleSection]) -> RuleSection:
        return checked_with(_problems_of(value) if isinstance(value, dict) else (), value, validate)

    def to_rule(self, order: int, *, is_own: bool) -> LineRule:
        """Return the record of a rule with a pattern; `order` is its place among all rules."""
        trouble = TroubleClass(
            name=self.name,
            severity=self.severity,
            title=self.title,
            is_terminal=self.terminal,
            is_consequence=self.consequence,
            wait_s=self.wait_s,
            hint=self.hint,
            command=self.command,
            order=order,
        )
        return LineRule(
            trouble=trouble,
            contains=tuple(text.lower() for text in self.contains),
            pattern=re.compile(f"(?i){self.pattern}"),
            without=None if self.without is None else re.compile(f"(?i){self.without}"),
            is_own=is_own,
        )

    def to_condition(self) -> MetricCondition:
        """Return the record of a rule with a condition."""
        return MetricCondition.parse(
            self.condition, name=self.name, severity=self.severity, title=self.title, hint=self.hint
        )


def _with_usable_names(value: object, validate: ValidatorFunctionWrapHandler) -> tuple[RuleSection, ...]:
    rules = value if isinstance(value, list | tuple) else ()
    names = Counter(str(one["name"]) for one in rules if isinstance(one, dict) and "name" in one)
    problems = [f"two rules are named {name}: rename one" for name, count in names.items() if count > 1]
    if NAN in names:
        problems.append(f"{NAN} is found by the numbers of a step: choose another name")
    return checked_with(problems, value, validate)


Rules = Annotated[tuple[RuleSection, ...], WrapValidator(_with_usable_names)]


class _ShippedFile(Section):
    """Our own file of rules, in which a class that the numbers show may have lines, too."""

    rule: tuple[RuleSection, ...]


class RulesFile(Section):
    """A file of rules."""

    rule: Rules

    @model_validator(mode="before")
    @classmethod
    def _is_no_project(cls, tables: object) -> object:
        if isinstance(tables, dict) and "health" in tables:
            raise ValueError("a file of rules has [[rule]] tables; [[health.rule]] belongs in tracker.toml")
        return tables


class FormatSection(Section):
    """Where a log has its numbers, if they are not found."""

    step: str = Field(min_length=1)
    """Name of the step: a dotted path in JSON, a column, or what stands before the number."""
    loss: str = ""
    """The same for the training loss."""
    values: Annotated[dict[str, str], Field(min_length=1)] | None = None
    """The same for other curves: `{ reward = "train.reward.mean" }`."""

    @model_validator(mode="after")
    def _names_a_value(self) -> FormatSection:
        if not (self.loss or self.values):
            raise ValueError("set loss or values")
        return self

    def to_format(self) -> LogFormat:
        """Return the record."""
        return LogFormat(step=self.step, values={**({"loss": self.loss} if self.loss else {}), **(self.values or {})})


class HangSection(Section):
    """How long a training may make no progress: no step, no line, no byte of a checkpoint."""

    look_s: float = Field(default=15.0, gt=0)
    """Seconds until its processes are looked at, which reports only what is proven."""
    look_over_s: float = Field(default=20.0, gt=0)
    """Seconds from the first to the last of the three samples of a look."""
    look_factor: float = Field(default=3.0, ge=1)
    """The same in usual intervals between logged steps; the longer time counts."""
    report_s: float = Field(default=300.0, gt=0)
    """Seconds until it is reported without proof."""
    report_factor: float = Field(default=10.0, ge=1)
    """The same in usual intervals."""
    pause_factor: float = Field(default=1.5, ge=1)
    """The same in longest pauses of the run so far."""
    start_s: float = Field(default=1800.0, gt=0)
    """Seconds before the first step."""
    phase_s: float = Field(default=900.0, gt=0)
    """Seconds while it saves or evaluates."""
    phase_factor: float = Field(default=2.5, ge=1)
    """The same in longest saves or evaluations so far."""
    restart_s: float = Field(default=30.0, gt=0)
    """Seconds without ranks in which a launcher may start others."""

    def to_limits(self) -> HangLimits:
        """Return the record."""
        return HangLimits(**self.model_dump())


class ProcessSection(Section):
    """Which processes train."""

    watch: bool = True
    """Whether the processes of the training on this machine are watched."""
    match: Pattern | None = None
    """Regular expression for their command, if they cannot be found by the output folder."""

    def to_pattern(self) -> re.Pattern[str] | None:
        """Return the compiled expression."""
        return None if self.match is None else re.compile(self.match)


class HealthSection(Section):
    """What is read of the trainer's own output while it trains."""

    logs: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Further logs, as patterns, with `%t` for the rank: `"slurm-%j-%t.out"`, `"logs/**/*.log"`."""
    format: tuple[FormatSection, ...] = ()
    """Formats of your own."""
    rule: Rules = ()
    """Rules of your own. One with the name of a rule of the package replaces it."""
    plugins: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Rules in Python of installed packages, by name."""
    process: ProcessSection = Field(default_factory=ProcessSection)
    hang: HangSection = Field(default_factory=HangSection)

    @field_validator("logs")
    @classmethod
    def _are_anchored(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        return tuple(str(anchored(_SLURM_PLACE.sub("*", pattern), info)) for pattern in value)

    def to_formats(self) -> tuple[LogFormat, ...]:
        """Return the user's formats."""
        return tuple(one.to_format() for one in self.format)

    def to_rules(self) -> HealthRules:
        """Return the user's rules, then those of the package that they do not replace."""
        return _with_shipped(self.rule)


@dataclass(frozen=True, kw_only=True)
class HealthRules:
    """What is searched for in a log."""

    lines: tuple[LineRule, ...]
    conditions: tuple[MetricCondition, ...]


def load_rules(path: Path | None = None) -> HealthRules:
    """Return the rules of the package, after those of a file: a rule of the same name replaces ours.

    Raises:
        ConfigError: the file is missing, is no TOML, or a rule is wrong; all wrong settings are named at once.
    """
    if path is None:
        return _with_shipped(())
    return _with_shipped(
        checked(
            RulesFile, read_text(path, hint="pass an existing file of rules; --config takes a tracker.toml"), path
        ).rule
    )


def shipped_rules() -> tuple[RuleSection, ...]:
    """Return the rules of the package as they are written."""
    shipped = files("tracker.config").joinpath(SHIPPED)
    return checked(_ShippedFile, shipped.read_text(encoding="utf-8"), Path(SHIPPED)).rule


def _with_shipped(own: tuple[RuleSection, ...]) -> HealthRules:
    replaced = {one.name for one in own}
    kept = [one for one in (*own, *shipped_rules()) if one in own or one.name not in replaced]
    lines = [one for one in kept if one.pattern is not None]
    return HealthRules(
        lines=tuple(one.to_rule(order, is_own=one in own) for order, one in enumerate(lines)),
        conditions=tuple(one.to_condition() for one in own if one.condition),
    )


def _problems_of(rule: dict[str, object]) -> Iterator[str]:
    """Yield what is wrong with a rule as a whole, as it is written: its settings may be wrong, too."""
    pattern, condition, example = rule.get("pattern"), rule.get("condition"), rule.get("example", "")
    if pattern is None and not condition:
        yield "set pattern or condition"
    if pattern is not None and condition:
        yield "set pattern or condition, not both"
    if isinstance(pattern, str) and isinstance(example, str) and not _may_fit(pattern, example):
        yield f"the pattern does not fit the example {example!r}"


def _may_fit(pattern: str, example: str) -> bool:
    with suppress(re.error):  # said of the pattern
        return not example or re.search(pattern, example, re.IGNORECASE) is not None
    return True
