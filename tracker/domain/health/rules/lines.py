"""What lines of a trainer's log mean: rules that fit a line to a class of trouble. Pure.

    found = rule_hit("RuntimeError: CUDA error: device-side assert triggered", rules)
    found.trouble.name                                                                 # illegal_memory

The rules are data (`tracker.config.health`). The first that fits decides: causes come before consequences.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from tracker.domain.health.logs.progress_bars import MARK
from tracker.domain.health.logs.ranks import parts_of_ranks, printed_rank, printer_of
from tracker.domain.health.logs.step_lines import COLOURS, MAX_CHARS, StepRow
from tracker.domain.health.series.kinds import NumberKind, number_kind
from tracker.domain.records.training import Severity, TroubleClass

PYTHON_ERROR = "python_error"
"""Class of the line that ends a traceback, whatever its name."""
NAN = "nan"
"""Class of a line with a loss that is not a number."""

_BAR = re.compile(r"%\|[^|]{0,500}\|[^\[\]|]{0,100}\[[^\]]{0,300}\]")
"""Bounded repetitions: unbounded ones take minutes on a line without the end of a bar."""
_ENDS_TRACEBACK = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?::\s|$)")
_FRAME = re.compile(r'\s+File "[^"]+", line \d+')
_TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True, kw_only=True)
class LineRule:
    """The lines that show one class of trouble."""

    trouble: TroubleClass
    contains: tuple[str, ...]
    """Any of these must occur, in lower case: a quick test before the pattern. Empty: the pattern alone decides."""
    pattern: re.Pattern[str]
    without: re.Pattern[str] | None = None
    is_own: bool = False
    """Whether a user wrote it: its pattern may take arbitrarily long."""

    @property
    def name(self) -> str:
        """Name of the class."""
        return self.trouble.name


Fits = Callable[[LineRule, str], bool]
"""Returns whether the patterns of a rule fit a plain line."""


@dataclass(frozen=True, kw_only=True)
class LineHit:
    """A line that a rule fits."""

    trouble: TroubleClass
    line: str
    """Without colours and what a progress bar had written before it."""
    rank: int | None
    """Process that printed it; None: the line names none."""
    step: int | None = None
    """Step of the line; None: the last one before it."""


NOT_A_NUMBER = TroubleClass(
    name=NAN,
    severity=Severity.ALERT,
    title="The loss is not a number",
    hint="lower the learning rate, clip gradients, or look at the data of this step",
)
"""Found by the numbers of a line of a step, not by a pattern: other numbers may be NaN in a healthy run."""


def rule_fits(rule: LineRule, line: str) -> bool:
    """Return whether the patterns of a rule fit a plain line."""
    if rule.pattern.search(line) is None:
        return False
    return rule.without is None or rule.without.search(line) is None


def triggers_of(rules: Sequence[LineRule]) -> tuple[str, ...] | None:
    """Return texts of which any line with trouble has one, in lower case; None: any line may have trouble."""
    if not all(rule.contains for rule in rules):
        return None
    known: list[str] = []
    for text in sorted({text for rule in rules for text in rule.contains}, key=len):
        if not any(shorter in text for shorter in known):
            known.append(text)
    return tuple(known)


def rule_hit(line: str, rules: Sequence[LineRule], fits: Fits = rule_fits) -> LineHit | None:
    """Return the rule that a plain line fits first; None: none."""
    lowered = line.lower()
    for rule in rules:
        may_fit = not rule.contains or any(text in lowered for text in rule.contains)
        if may_fit and (hit := _hit_in(line, rule, fits)) is not None:
            return hit
    return None


def _hit_in(line: str, rule: LineRule, fits: Fits) -> LineHit | None:
    """Return the first part of a line that a rule fits: ranks may have printed into the same line."""
    for part in parts_of_ranks(line):
        if fits(rule, part):
            return LineHit(trouble=rule.trouble, line=part, rank=printed_rank(part))
    return None


def traceback_hit(lines: Sequence[str], rules: Sequence[LineRule]) -> LineHit | None:
    """Return that the last of some plain lines ends a traceback; None: it does not, or a user wrote that rule anew."""
    line = lines[-1]
    printer = printer_of(line)
    if _ENDS_TRACEBACK.match(line, len(printer)) is None or not _is_behind_frames(lines, printer):
        return None
    for rule in rules:
        if rule.name == PYTHON_ERROR and not rule.is_own:
            return LineHit(trouble=rule.trouble, line=line, rank=printed_rank(line))
    return None


def _is_behind_frames(lines: Sequence[str], printer: str) -> bool:
    """Return whether the lines of a printer before the last one are frames; the begin of a long one is forgotten."""
    has_frame = False
    for before in islice(reversed(lines), 1, None):
        if printer_of(before) != printer:
            continue  # of another rank
        text = before[len(printer) :]
        if not text.startswith("  "):
            return has_frame and text.startswith(_TRACEBACK)
        has_frame = has_frame or _FRAME.match(text) is not None
    return has_frame


def nan_hit(line: str, row: StepRow) -> LineHit | None:
    """Return a hit if the loss in a plain line's row is NaN or infinite; None: it is finite, or there is none."""
    for name, value in row.values.items():
        if not math.isfinite(value) and number_kind(name) is NumberKind.LOSS:
            return LineHit(trouble=NOT_A_NUMBER, line=line, rank=printed_rank(line), step=row.step)
    return None


def plain_line(raw: str) -> str:
    """Return a line without colours, and without the progress bars before the text that was glued to them."""
    line = COLOURS.sub("", raw) if "\x1b" in raw else raw
    line = line.rpartition("\r")[2]
    if MARK in line:
        line = _behind_bars(line)
    return line[:MAX_CHARS].rstrip()


def _behind_bars(line: str) -> str:
    """Return what stands behind the last progress bar; the whole line, if that is nothing."""
    end = 0
    for bar in _BAR.finditer(line):
        end = bar.end()
    rest = line[end:]
    return rest if rest.strip() else line


def has_any(text: str, parts: Sequence[str]) -> bool:
    """Return whether a text contains one of the parts."""
    for part in parts:  # noqa: SIM110 - a generator takes three times as long
        if part in text:
            return True
    return False
