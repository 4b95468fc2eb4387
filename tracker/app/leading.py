"""Several watchers of one run: one leads, the others wait and take over.

stand_by(lead, "run", clock=clock, show=display.stands_by)       # returns as soon as this process leads
watch(world, WatchState(demand_lead=partial(demand_lead, lead)), ...)    # raises LeadLost when another one leads
"""

import logging
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime

from eval_jobs.errors import ConfigError, StoreError, StoreUnavailable
from eval_jobs.ports import Clock
from tracker.domain.checkpoints.watching import Leader
from tracker.domain.log.events import EventKind, RunEvent, run_event
from tracker.ports import EventLog, Lead

log = logging.getLogger(__name__)

STAND_BY_S = 1.0
GIVE_WAY_S = 5.0
"""Seconds to wait after a database outage: the previous leader, which kept watching, takes the lead first."""


class LeadLost(BaseException):
    """Another process has taken the lead. As an interrupt, it is no error that something may be set aside for."""


class WatchLog:
    """What a watcher says of itself in the log of its run."""

    def __init__(self, log: EventLog, run: str, clock: Clock) -> None:
        self._log, self._run, self._clock = log, run, clock
        self._changes: tuple[RunEvent, ...] = ()
        self.leads = False

    def settings_changed(self, changes: Iterable[Mapping[str, str]]) -> None:
        """Keep what was changed until watching begins again."""
        self._changes = tuple(self._event(EventKind.SETTING, **texts) for texts in changes)

    def opening(self) -> tuple[RunEvent, ...]:
        """Return which settings have changed, else that this process leads now: see `WatchState.opening`."""
        where = f"process {os.getpid()} on {socket.gethostname()}"
        events = self._changes or (self._event(EventKind.STARTED, reason=where),)
        self._changes, self.leads = (), True
        return events

    def end(self, error: BaseException | None) -> None:
        """Log why this process no longer watches, if it led and the database can be written."""
        why = "finished" if error is None else str(error) or "interrupted"
        if self.leads:
            with suppress(StoreError):
                self._log.log([self._event(EventKind.STOPPED, reason=why)])

    def _event(self, kind: EventKind, **texts: str) -> RunEvent:
        now = self._clock.now()
        return run_event(kind, (self._run, None, now), now, os.getpid(), texts.get("subject"), **texts)


def demand_lead(lead: Lead, now: datetime) -> None:
    """Raise LeadLost if another process leads, or StoreError if the leader cannot be determined."""
    if not lead.take(now):
        raise LeadLost


def stand_by(lead: Lead, run: str, *, output_dir: str, clock: Clock, show: Callable[[Leader | None], None]) -> None:
    """Return as soon as this process leads `run`.

    Until then `show` is called at every poll: with the leader, or with None if the leader is unknown.

    Raises:
        ConfigError: the run is watched for another output folder.
        StoreError: the first database request fails. If a later one finds it unreachable, it is retried.
    """
    before = lead.leader()
    has_asked, trouble = False, ""
    while True:
        try:
            if trouble:
                lead.leader()  # raises while the database is unreachable
                trouble = ""
                clock.sleep(GIVE_WAY_S)
            if lead.take(clock.now()):
                break
            leader = lead.leader()
            if _is_at(leader, output_dir):
                show(leader)
            elif has_asked and leader == before:
                # Only at the second poll: a process that has just taken the lead may not have stored its name yet.
                raise _refusal(leader, run)
            before, has_asked = leader, True
        except StoreUnavailable as error:
            if not has_asked:
                raise
            trouble = _reported(error, trouble)
            show(None)
        clock.sleep(STAND_BY_S)
    _warn_of_other_folder(before, run, output_dir)


def _warn_of_other_folder(before: Leader | None, run: str, output_dir: str) -> None:
    if before is not None and not _is_at(before, output_dir):
        log.warning("run %s was previously watched at %s: both folders share one history", run, before.output_dir)


def _refusal(leader: Leader | None, run: str) -> ConfigError:
    where = "elsewhere" if leader is None else leader.sentence(run)
    return ConfigError(where, hint="set another run.name for one of the two runs")


def _is_at(leader: Leader | None, output_dir: str) -> bool:
    return leader is None or leader.output_dir == output_dir


def _reported(error: StoreUnavailable, before: str) -> str:
    """Log an error unless it equals `before`, and return its message."""
    if error.message != before:
        log.warning("%s; retrying", error)
    return error.message
