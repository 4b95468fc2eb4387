"""What lines of a trainer's log mean: rules that fit a line to a class of trouble. Pure.

    found = hit_of("RuntimeError: CUDA error: device-side assert triggered", rules)
    found.rule.name                                                                   # illegal_memory

The rules are data (`tracker.config.health`). The first that fits decides: causes come before consequences.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tracker.domain.health.step_lines import is_loss, step_row

MAX_CHARS = 4_096
"""Of a line that are examined: longer ones are data, such as a printed tensor."""

NAN = "nan"
"""Class of a line with a loss that is not a number."""

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_RANK = re.compile(r"^\s*(?:\[(?:rank|default) ?(?P<named>\d+)\]:|(?P<bare>\d+): )", re.IGNORECASE)


class Severity(StrEnum):
    """How a hit is reported."""

    ALERT = "alert"
    SHOWN = "shown"
    """In pages and tables only."""


@dataclass(frozen=True, kw_only=True)
class LineRule:
    """One class of trouble, and the lines that show it."""

    name: str
    contains: tuple[str, ...]
    """Any of these must occur, in lower case: a quick test before the pattern."""
    pattern: re.Pattern[str]
    without: re.Pattern[str] | None = None
    severity: Severity
    is_terminal: bool = False
    """Whether the training ends with it."""
    is_consequence: bool = False
    """Whether another line is its cause."""
    hint: str
    order: int = 0
    """Place among all rules: earlier ones explain later ones."""


@dataclass(frozen=True, kw_only=True)
class LineHit:
    """A line that a rule fits."""

    rule: LineRule
    line: str
    """Without colours and what a progress bar had written before it."""
    rank: int | None
    """Process that printed it; None: the line names none."""


NOT_A_NUMBER = LineRule(
    name=NAN,
    contains=("nan", "inf"),
    pattern=re.compile("nan|inf"),
    severity=Severity.ALERT,
    hint="the loss is no number: lower the learning rate, clip gradients, or look at the data of this step",
)
"""Found by the numbers of a line of a step, not by a pattern: other numbers may be NaN in a healthy run."""


def hit_of(raw: str, rules: Sequence[LineRule]) -> LineHit | None:
    """Return the rule that a line fits first; None: it shows no trouble."""
    line = plain_line(raw)
    lowered = line.lower()
    for rule in rules:
        if any(text in lowered for text in rule.contains) and _fits(rule, line):
            return LineHit(rule=rule, line=line, rank=printed_rank(line))
    if ("nan" in lowered or "inf" in lowered) and _has_nonfinite_loss(line):
        return LineHit(rule=NOT_A_NUMBER, line=line, rank=printed_rank(line))
    return None


def plain_line(raw: str) -> str:
    """Return a line without colours, and without the progress bar before the text that was glued to it."""
    line = _COLOURS.sub("", raw[:MAX_CHARS]).rpartition("\r")[2].rstrip()
    bar, found, rest = line.partition("it/s]")
    if not found:
        bar, found, rest = line.partition("s/it]")
    if found and rest.strip() and "%|" in bar:
        return rest
    return line


def printed_rank(line: str) -> int | None:
    """Return the rank in the prefix of a line, as torchrun, Megatron and srun -l write it."""
    found = _RANK.match(line)
    return None if found is None else int(found["named"] or found["bare"])


def _fits(rule: LineRule, line: str) -> bool:
    if rule.pattern.search(line) is None:
        return False
    return rule.without is None or rule.without.search(line) is None


def _has_nonfinite_loss(line: str) -> bool:
    row = step_row(line)
    if row is None:
        return False
    losses = [value for name, value in row.values.items() if is_loss(name)]
    return not all(map(math.isfinite, losses))
