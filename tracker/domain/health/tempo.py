"""How fast a run makes progress, and for how much of its time. Pure."""

from dataclasses import dataclass
from datetime import datetime
from statistics import median

GAPS = 20
"""Newest times between two logged steps that show the usual one."""
PAUSE_S = 30.0
PAUSE = 3.0
"""Times the usual interval: what is beyond it was a pause, such as a save or a failure."""


@dataclass(kw_only=True)
class Tempo:
    """When a run that is followed live logged its steps; lines that were written before do not count."""

    first_at: datetime | None = None
    last_at: datetime | None = None
    productive_s: float = 0.0
    """Seconds in which steps advanced."""
    _gaps_s: tuple[float, ...] = ()

    def take(self, at: datetime) -> None:
        """Count a step that was logged at `at`; steps that were read together count as one."""
        if self.first_at is None or self.last_at is None:
            self.first_at = self.last_at = at
            return
        gap_s = (at - self.last_at).total_seconds()
        if gap_s <= 0:
            return
        usual_s = median(self._gaps_s) if self._gaps_s else gap_s
        self.productive_s += min(gap_s, PAUSE * usual_s)
        self._gaps_s = (*self._gaps_s, gap_s)[-GAPS:]
        self.last_at = at

    def pauses_at(self, at: datetime) -> bool:
        """Return whether no step was logged for longer than usual before `at`."""
        if self.last_at is None:
            return False
        usual_s = median(self._gaps_s) if self._gaps_s else 0.0
        return (at - self.last_at).total_seconds() > max(PAUSE_S, PAUSE * usual_s)

    def productive_share(self) -> float | None:
        """Return the share of the time since the first step in which steps advanced; None: unknown."""
        if self.first_at is None or self.last_at is None or self.last_at <= self.first_at:
            return None
        return self.productive_s / (self.last_at - self.first_at).total_seconds()
