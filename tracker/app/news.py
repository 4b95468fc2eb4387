"""When a watcher has to ask the store: one query says what changed, and without a change nothing else is read.

news = StoreNews(run="run", history=history)
if news.is_due(now):                  # an event, work in progress, or LOOK_S have passed
    changes = news.take(now)
    if news.is_busy: ...              # a pass over everything
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from eval_jobs.records.changes import Change
from eval_jobs.records.run_scope import is_of
from tracker.ports.health import Changes

LOOK_S = timedelta(seconds=10)
"""Between two queries while no event comes: what processes of other machines and other commands write is seen then."""


@dataclass(kw_only=True)
class StoreNews:
    """What changed in the store since the last query, and whether work is in progress."""

    run: str
    history: Changes
    is_busy: bool = True
    """Whether the next pass has to look at everything: something changed, is in progress, or has failed."""
    _position: str | None = None
    _asked_at: datetime | None = None

    def is_due(self, now: datetime) -> bool:
        """Return whether it is time for a query, which an event may precede. `now` may have been set back."""
        if self.is_busy or self._asked_at is None:
            return True
        return not self._asked_at <= now < self._asked_at + LOOK_S

    def take(self, now: datetime) -> tuple[Change, ...]:
        """Return what changed in the run; at first nothing: read everything once, after this call.

        Raises:
            StoreError: it cannot be read; the next call returns it.
        """
        changes: tuple[Change, ...] = ()
        if self._position is None:
            self._position = self.history.position()
        else:
            self._position, changes = self.history.changes(self._position)
        self._asked_at = now
        of_run = tuple(change for change in changes if is_of(change.run_id, self.run))
        if of_run:
            self.is_busy = True
        return of_run
