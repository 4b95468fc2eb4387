"""Says of what is read of a log whether it shows trouble: by rules for lines, by numbers, and by Python. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tracker.domain.health.logs.parsed import ParsedLine
from tracker.domain.health.logs.step_lines import StepRow
from tracker.domain.health.logs.text import RawLine
from tracker.domain.health.rules.code import CodeRules, ReadLine, hit_of_finding, read_line
from tracker.domain.health.rules.lines import (
    Fits,
    LineHit,
    LineRule,
    has_any,
    nan_hit,
    plain_line,
    rule_fits,
    rule_hit,
    traceback_hit,
    triggers_of,
)


@dataclass(kw_only=True)
class Classifier:
    """Tries all rules on what is read of one log after another."""

    rules: Sequence[LineRule]
    fits: Fits = rule_fits
    """How a rule is tested on a line."""
    code: CodeRules | None = None
    """Rules of other packages."""
    _untried: list[ReadLine] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Speed up the rules."""
        self._triggers = triggers_of(self.rules)

    def of_line(self, line: ParsedLine, recent: Sequence[str], rank: int | None) -> LineHit | None:
        """Return the trouble that a line shows; `recent`: the lines up to it, `rank`: of its log."""
        if self.code is not None:
            self._untried.append(read_line(line.number, line.plain, line.row, rank))
        found = None
        if self._triggers is None or has_any(line.plain.lower(), self._triggers):
            found = rule_hit(line.plain, self.rules, self.fits)
        if found is not None:
            return found
        return traceback_hit(recent, self.rules) if line.row is None else nan_hit(line.plain, line.row)

    def of_row(self, row: StepRow, rank: int | None) -> LineHit | None:
        """Return the trouble that a row of a log shows whose lines are not text."""
        if self.code is not None:
            self._untried.append(read_line(0, "", row, rank))
        if row.step is None:
            return None
        return nan_hit(f"step {row.step}: the loss is no number", row)

    def of_rest(self, text: str) -> LineHit | None:
        """Return the trouble that a line without an end shows."""
        return rule_hit(plain_line(text), self.rules, self.fits)

    def by_code(self) -> Iterator[tuple[LineHit, RawLine]]:
        """Yield what rules of other packages find, with its line, in what was read since the last call."""
        if self.code is None or not self._untried:
            return
        untried, self._untried = self._untried, []
        for name, finding in self.code(untried):
            yield hit_of_finding(name, finding), RawLine(number=finding.line.number, text=finding.line.text)
