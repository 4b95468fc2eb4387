"""One line of a log, read. Pure."""

from typing import NamedTuple

from tracker.domain.health.logs.ranks import printed_rank
from tracker.domain.health.logs.step_lines import StepRow


class ParsedLine(NamedTuple):
    """A line without colours, and the numbers on it."""

    number: int
    """From 1."""
    plain: str
    row: StepRow | None
    """None: it has no numbers of a step."""

    def rank(self, of_log: int | None) -> int | None:
        """Return the process that printed it: the one that it names, else that of its log."""
        printed = printed_rank(self.plain)
        return of_log if printed is None else printed
