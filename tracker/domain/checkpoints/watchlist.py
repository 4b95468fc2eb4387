"""All checkpoints of one folder or bucket over time. Told what was seen, it says what is to be done; asks nobody. Pure.

    step = watchlist.look(site, facts, now)          # is it to be read?
    complete = watchlist.note(step, listing)         # is it to be held?
    watchlist.held(site.uri, pin)
    watchlist.next_due(now, heard)                   # what is to be published
    watchlist.keep(uris, now)                        # what is gone

`lifecycle` says what follows for one of them. In a bucket, what is complete is held once it has `settled`.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime

from eval_jobs.errors import CheckpointIncomplete
from tracker.domain.checkpoints.buckets import PASSED_S, demand_whole_weights, patience_s
from tracker.domain.checkpoints.completeness import Complete, Habits, Readiness, assess
from tracker.domain.checkpoints.gaps import Gaps
from tracker.domain.checkpoints.lifecycle import Transition, Watched, is_final, look_at
from tracker.domain.checkpoints.listing import Facts, Listing, Site
from tracker.domain.checkpoints.pin import Pin
from tracker.domain.checkpoints.unusable import NotYet
from tracker.domain.checkpoints.watching import Observation, WatchOptions, gap_is_due, settles_in_s

Heard = Mapping[str, datetime]
"""Where checkpoints lie -> when the last file event came from there."""

_UNKNOWN = Habits()


class Watchlist:
    """The checkpoints, their gaps, and the holds that are due. Not safe for threads."""

    def __init__(self, options: WatchOptions, *, is_bucket: bool) -> None:
        self._options = options
        self._is_bucket = is_bucket
        self._done = "downloaded" if is_bucket else "pinned"
        self._watched: dict[str, Watched] = {}
        self._habits: dict[str, Habits] = {}
        self._due: list[Pin] = []
        self._postponed: list[Pin] = []
        self.gaps = Gaps()

    def restore(self, pins: Sequence[Pin], now: datetime) -> tuple[Pin, ...]:
        """Take over what an earlier process had pinned; return the holds that are of no use."""
        last = {pin.run_id: pin.step for pin in sorted(pins, key=lambda p: p.step)}
        useless: list[Pin] = []
        for pin in sorted(pins, key=lambda p: p.ready_ns):
            if (earlier := self._watched.get(pin.uri)) is not None:
                # The step was saved again, and we were killed before the first save was published.
                useless += self._ended(earlier)
            self._watched[pin.uri] = Watched(
                site=pin,
                facts=Facts(path=pin.uri, mtime_ns=0, files=pin.source_files),
                since=now,
                readiness=pin.complete,
                pin=pin,
                is_taken=self._is_bucket or pin.checkpoint is not None,
                is_passed=pin.step < last[pin.run_id],
            )
            if self._is_bucket and pin.checkpoint is None:
                self._due.append(pin)
            self.gaps.remember_step(pin, pin.complete.save_every, was_watched=not pin.by_hand)
            self._learn(pin)
        return tuple(useless)

    def known(self, uri: str) -> Watched | None:
        """Return what is known of one checkpoint."""
        return self._watched.get(uri)

    def news(self) -> tuple[int, int]:
        """Return numbers that change when something becomes due or a gap."""
        return len(self._due), len(self.gaps.found())

    # --- what was seen

    def look(
        self, site: Site, facts: Facts, now: datetime, *, is_full: bool = False, is_passed: bool = False
    ) -> Transition:
        """Return what follows from what lies there now; it is so once it is `note`d.

        Args:
            site: the checkpoint.
            facts: of what lies there now.
            now: the current time.
            is_full: read an unfinished one again although nothing about its files changed.
            is_passed: a later one has been begun.
        """
        one = self._watched.get(site.uri)
        if one is None:
            nothing = Facts(path=site.uri, mtime_ns=0, files=())
            one = self._watched[site.uri] = Watched(site=site, facts=nothing, since=now)
        transition = look_at(one, facts, now, is_full=is_full)
        return replace(transition, after=replace(transition.after, is_passed=is_passed))

    def note(self, transition: Transition, read: Listing | NotYet | None = None) -> Complete | None:
        """Take note of a look, and of what was read or why that was not possible; return what is to be held."""
        one = transition.after
        if transition.due is not None:
            self._due.append(transition.due)
        if isinstance(read, NotYet):
            one = self._unreadable(one, read)
        elif read is not None:
            one = replace(one, readiness=self._assess(one.site.run_id, read))
            rhythm = one.readiness.save_every if isinstance(one.readiness, Complete) else None
            self.gaps.remember_step(one.site, rhythm)
        self._watched[one.site.uri] = one
        if one.pin is None and isinstance(one.readiness, Complete):
            return one.readiness
        return None

    def held(self, uri: str, pin: Pin) -> None:
        """Note that a checkpoint is held by us now; what was downloaded had settled before."""
        self._watched[uri] = replace(self._watched[uri], pin=pin, is_taken=self._is_bucket, trouble="")
        if self._is_bucket:
            self._due.append(pin)
        self._learn(pin)

    def not_held(self, uri: str, trouble: str) -> None:
        """Note why a checkpoint could not be held; it is tried again."""
        self._watched[uri] = replace(self._watched[uri], trouble=trouble)

    def unseen(self, uri: str, now: datetime) -> None:
        """Note that a checkpoint could not be seen: if it is unfinished, it is not known to be unchanged."""
        one = self._watched.get(uri)
        if one is not None and one.pin is None:
            self._watched[uri] = replace(one, since=now)

    def all_unseen(self, now: datetime) -> None:
        """Note that none could be seen."""
        for uri in self._watched:
            self.unseen(uri, now)

    def keep(self, uris: Set[str], now: datetime) -> tuple[Pin, ...]:
        """Note that nothing but these is there any more; return the holds that are of no use."""
        useless: list[Pin] = []
        for uri in self._watched.keys() - uris:
            one = self._watched.pop(uri)
            ended = self._ended(one)
            if one.pin is None or ended:
                reason = f"was deleted before it could be {self._done}: {self._loss(one)}"
                self.gaps.add_vanished(one.site, reason, now)
            useless += ended
        return tuple(useless)

    # --- what is due

    def next_due(self, now: datetime, heard: Heard) -> Pin | None:
        """Hand out the hold with the lowest step that is to be published, else None."""
        for uri, one in self._watched.items():
            if one.pin is not None and self._left_s(one, now, heard) == 0:
                self._watched[uri] = replace(one, is_taken=True)
                self._due.append(one.pin)
        self._due.sort(key=lambda p: (p.step, p.ready_ns))
        if self._due:
            return self._due.pop(0)
        return None

    def settled(self, now: datetime) -> tuple[Watched, ...]:
        """Return the uploads that are complete and are to be held now, lowest step first."""
        found = [one for one in self._watched.values() if one.pin is None and self._left_s(one, now, {}) == 0]
        return tuple(sorted(found, key=lambda one: (one.site.step, one.site.run_id)))

    def settles_in_s(self, now: datetime, heard: Heard) -> float | None:
        """Return how long until the next one may settle; None: none is complete that could."""
        waits = [self._left_s(one, now, heard) for one in self._watched.values()]
        if self._due:
            return 0.0
        return min((wait for wait in waits if wait is not None), default=None)

    def are_expected(self) -> bool:
        """Return whether a complete one waits to be held, and nothing keeps it from that."""
        waiting = [one for one in self._watched.values() if isinstance(one.readiness, Complete) and one.pin is None]
        return not all(one.trouble for one in waiting)

    def postponed(self, pin: Pin) -> None:
        """Note that a hold could not be published now; it is handed out again after `retry`."""
        self._postponed.append(pin)

    def retry(self) -> None:
        """Let what was postponed be due again."""
        self._due += self._postponed
        self._postponed = []

    # --- what will not be evaluated

    def overdue(self, now: datetime) -> tuple[Watched, ...]:
        """Return the open ones that will not become checkpoints, as far as can be told."""
        newest: dict[str, int] = {}
        for one in self._watched.values():
            if isinstance(one.readiness, Complete):
                newest[one.site.run_id] = max(one.site.step, newest.get(one.site.run_id, 0))
        return tuple(
            one for one in self._watched.values() if self._is_overdue(one, newest.get(one.site.run_id, 0), now)
        )

    def add_gap(self, one: Watched, now: datetime) -> None:
        """Call an open one what it is: complete and not held for some reason, or unusable."""
        if not isinstance(one.readiness, Complete):
            self.gaps.add_unusable(one.site, one.readiness, now)
            return
        reason = one.trouble or "its files kept changing"
        what = f"{one.site.uri} could not be {self._done}: {reason}"
        self.gaps.add(one.site, CheckpointIncomplete(what, hint="evaluate it with `tracker evaluate`"), now)

    def give_up(self, now: datetime) -> None:
        """Make a gap of every checkpoint that is neither taken nor a gap already."""
        for one in self._watched.values():
            if not one.is_taken:
                self.add_gap(one, now)

    # --- private

    def _assess(self, run_id: str, listing: Listing) -> Readiness:
        habits = self._habits.get(run_id)
        if not self._is_bucket:
            return assess(listing, habits, allow_pickle=self._options.allow_pickle)
        readiness = demand_whole_weights(listing.facts) or assess(listing, habits)
        # Objects come in any order: trainer_state.json being the newest proves nothing.
        if isinstance(readiness, Complete):
            return replace(readiness, is_end_proven=False)
        return readiness

    def _unreadable(self, one: Watched, why: NotYet) -> Watched:
        """Its facts stay empty, so that it is read again at every look."""
        before = self._watched[one.site.uri]
        since = before.since if before.pin is None else one.since
        facts = Facts(path=one.site.uri, mtime_ns=0, files=(), problem=why.reason)
        return Watched(site=one.site, facts=facts, since=since, readiness=why)

    def _left_s(self, one: Watched, now: datetime, heard: Heard) -> float | None:
        """Return how long until a complete one has settled; None: it is not waited for."""
        if one.is_taken or not isinstance(one.readiness, Complete):
            return None
        if self._is_bucket:
            habits = self._habits.get(one.site.run_id)
            earlier = None if habits is None else habits.small
            settle_s = patience_s(one.readiness.small(), earlier, self._options.settle_s)
            return settles_in_s(one.readiness, 0, one.since, Observation(now=now, settle_s=settle_s))
        if one.pin is None:
            return None  # it is held first
        look = Observation(now=now, settle_s=self._options.settle_s, heard_at=heard.get(one.site.uri))
        return settles_in_s(one.readiness, one.pin.ready_ns, one.since, look)

    def _is_overdue(self, one: Watched, newest_step: int, now: datetime) -> bool:
        if one.pin is not None or isinstance(one.readiness, Complete):
            return False
        settle_s = max(self._options.settle_s, PASSED_S) if self._is_bucket else self._options.settle_s
        return gap_is_due(one.readiness, one.since, now, settle_s, is_passed=one.site.step < newest_step)

    def _ended(self, one: Watched) -> list[Pin]:
        """Let a hold be published whose source is gone, if the trainer had surely finished it; else it is useless."""
        if one.pin is None or one.is_taken:
            return []
        if not is_final(one, one.pin):
            return [one.pin]
        self._due.append(one.pin)
        return []

    def _loss(self, one: Watched) -> str:
        if not isinstance(one.readiness, Complete):
            return one.readiness.reason
        if one.pin is not None:
            return f"its files had changed within the last {self._options.settle_s:g} s"
        if self._is_bucket:
            return one.trouble or "its upload had only just finished"
        return one.trouble or "pinning was not finished"

    def _learn(self, pin: Pin) -> None:
        self._habits[pin.run_id] = self._habits.get(pin.run_id, _UNKNOWN).after(pin.complete)
