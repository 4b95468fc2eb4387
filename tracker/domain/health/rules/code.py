"""Rules of other packages, written in Python: functions from what was read of a log to what they find in it. Pure.

def idle_experts(lines):
for line in lines:
if line.values.get("expert_load_min", 1.0) == 0.0:
yield RuleFinding(line=line, title="An expert gets no tokens", hint="raise the balancing loss")
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tracker.domain.health.logs.ranks import printed_rank
from tracker.domain.health.logs.step_lines import StepRow
from tracker.domain.health.rules.lines import LineHit
from tracker.domain.records.training import Severity, TroubleClass


@dataclass(frozen=True, kw_only=True)
class ReadLine:
    """One line of a log, or one row of a log that is no text."""

    number: int
    """From 1; 0 for a row."""
    text: str = ""
    """Without colours; empty for a row."""
    step: int | None = None
    """Step on the line; None: there is none."""
    values: Mapping[str, float] = field(default_factory=dict)
    """Numbers by their printed names, in lower case."""
    rank: int | None = None
    """Process that printed it; None: unknown."""


@dataclass(frozen=True, kw_only=True)
class RuleFinding:
    """What a rule finds in a line."""

    line: ReadLine
    """The line of the finding, one of those that the rule was called with."""
    title: str
    """In words, as the start of a sentence."""
    hint: str = ""
    """What to do."""
    severity: Severity = Severity.ALERT
    terminal: bool = False
    """Whether the training ends with it."""


CodeRule = Callable[[Sequence[ReadLine]], Iterable[RuleFinding]]
"""Called with everything that was read of one log at once, in its order; it keeps its own state."""

CodeRules = Callable[[Sequence[ReadLine]], Sequence[tuple[str, RuleFinding]]]
"""Tries all rules; returns each finding with the name of its rule."""


def read_line(number: int, plain: str, row: StepRow | None, rank: int | None) -> ReadLine:
    """Return a line without colours and the numbers on it; `rank`: of its log, for a line that names none."""
    printed = printed_rank(plain)
    return ReadLine(
        number=number,
        text=plain,
        step=None if row is None else row.step,
        values={} if row is None else row.values,
        rank=rank if printed is None else printed,
    )


def hit_of_finding(name: str, finding: RuleFinding) -> LineHit:
    """Return a finding as the hit of a rule for lines, which explains what other rules find."""
    trouble = TroubleClass(
        name=name,
        severity=finding.severity,
        title=finding.title,
        is_terminal=finding.terminal,
        hint=finding.hint,
        order=-1,
    )
    line = finding.line
    text = line.text or ", ".join(f"{key} {value:g}" for key, value in line.values.items())
    return LineHit(trouble=trouble, line=text, rank=line.rank, step=line.step)
