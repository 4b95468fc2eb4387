"""All checkpoints of one folder or bucket over time: from observations to actions, without any I/O. Pure.

    step = watchlist.look(site, facts, now)          # must it be read?
    complete = watchlist.note(step, listing)         # must it be pinned?
    watchlist.held(site.uri, pin)
    watchlist.next_due(now, heard)                   # what must be published
    watchlist.keep(uris, now)                        # what was deleted

`lifecycle` has the rules for one checkpoint. In a bucket, a complete checkpoint is pinned once it has `settled`.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime

from eval_jobs.errors import CheckpointIncomplete
from tracker.domain.checkpoints.buckets import PASSED_S, demand_whole_weights, patience_s
from tracker.domain.checkpoints.completeness import Complete, Habits, Readiness, assess, assess_to_hold
from tracker.domain.checkpoints.gaps import ROTATION_HINT, UNFINISHED_HINT, Gaps
from tracker.domain.checkpoints.lifecycle import Transition, Watched, is_final, look_at
from tracker.domain.checkpoints.listing import Facts, Listing, Site
from tracker.domain.checkpoints.pin import Pin
from tracker.domain.checkpoints.unusable import NotYet, Rejected
from tracker.domain.checkpoints.watching import Observation, WatchOptions, gap_is_due, settles_in_s

Heard = Mapping[str, datetime]
"""URI of a checkpoint -> time of its last file event."""

_UNKNOWN = Habits()


class Watchlist:
    """The checkpoints, their gaps, and the pins that are due. Not thread-safe."""

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
        """Restore the pins of an earlier process; return those that are useless."""
        last = {pin.run_id: pin.step for pin in sorted(pins, key=lambda p: p.step)}
        useless: list[Pin] = []
        for pin in sorted(pins, key=lambda p: p.ready_ns):
            if (earlier := self._watched.get(pin.uri)) is not None:
                # The step was saved again, and the tracker was killed before the first save was published.
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
        """Return the state of one checkpoint, or None."""
        return self._watched.get(uri)

    def news(self) -> tuple[int, int]:
        """Return the numbers of due pins and of gaps, to detect changes."""
        return len(self._due), len(self.gaps.found())

    # --- what was seen

    def look(
        self, site: Site, facts: Facts, now: datetime, *, is_full: bool = False, is_passed: bool = False
    ) -> Transition:
        """Return what follows from the current files (`lifecycle.look_at`); it takes effect with `note`.

        `is_passed`: a later checkpoint exists.
        """
        one = self._watched.get(site.uri)
        if one is None:
            nothing = Facts(path=site.uri, mtime_ns=0, files=())
            one = self._watched[site.uri] = Watched(site=site, facts=nothing, since=now)
        transition = look_at(one, facts, now, is_full=is_full)
        return replace(transition, after=replace(transition.after, is_passed=is_passed))

    def note(self, transition: Transition, read: Listing | NotYet | None = None) -> Complete | None:
        """Apply the result of `look`, with what was read or why reading failed; return what must be pinned, or None."""
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
        """Record the pin of a checkpoint; one that was downloaded had settled before."""
        self._watched[uri] = replace(self._watched[uri], pin=pin, is_taken=self._is_bucket, trouble="")
        if self._is_bucket:
            self._due.append(pin)
        self._learn(pin)

    def not_held(self, uri: str, trouble: str) -> None:
        """Record why a checkpoint could not be pinned; it is retried."""
        self._watched[uri] = replace(self._watched[uri], trouble=trouble)

    def unseen(self, uri: str, now: datetime) -> None:
        """Record that a checkpoint could not be read: if it is not pinned, its quiet time starts again."""
        one = self._watched.get(uri)
        if one is not None and one.pin is None:
            self._watched[uri] = replace(one, since=now)

    def all_unseen(self, now: datetime) -> None:
        """Record that no checkpoint could be read."""
        for uri in self._watched:
            self.unseen(uri, now)

    def keep(self, uris: Set[str], now: datetime) -> tuple[Pin, ...]:
        """Record that only these checkpoints exist; return the pins of the others that are useless."""
        useless: list[Pin] = []
        for uri in self._watched.keys() - uris:
            one = self._watched.pop(uri)
            ended = self._ended(one)
            if one.pin is None or ended:
                reason = f"it was deleted before it could be {self._done}: {self._loss(one)}"
                self.gaps.add_vanished(one.site, reason, now, hint=_hint_of_loss(one))
            useless += ended
        return tuple(useless)

    # --- what is due

    def next_due(self, now: datetime, heard: Heard) -> Pin | None:
        """Hand out the due pin with the lowest step, or None."""
        for uri, one in () if self._due else self._watched.items():
            if one.pin is not None and self._left_s(one, now, heard) == 0:
                self._watched[uri] = replace(one, is_taken=True)
                self._due.append(one.pin)
        self._due.sort(key=lambda p: (p.step, p.ready_ns))
        if self._due:
            return self._due.pop(0)
        return None

    def settled(self, now: datetime) -> tuple[Watched, ...]:
        """Return the uploads that are complete and must be pinned now, lowest step first."""
        found = [one for one in self._watched.values() if one.pin is None and self._left_s(one, now, {}) == 0]
        return tuple(sorted(found, key=lambda one: (one.site.step, one.site.run_id)))

    def settles_in_s(self, now: datetime, heard: Heard) -> float | None:
        """Return the seconds until the next checkpoint may settle; None: no complete one is waiting."""
        waits = [self._left_s(one, now, heard) for one in self._watched.values()]
        if self._due:
            return 0.0
        return min((wait for wait in waits if wait is not None), default=None)

    def are_expected(self) -> bool:
        """Return whether a complete checkpoint waits to be pinned, without an error so far."""
        waiting = [one for one in self._watched.values() if isinstance(one.readiness, Complete) and one.pin is None]
        return not all(one.trouble for one in waiting)

    def postponed(self, pin: Pin) -> None:
        """Record that a pin could not be published now; it is handed out again after `retry`."""
        self._postponed.append(pin)

    def blocked(self, pin: Pin, why: NotYet | Rejected, now: datetime) -> None:
        """Record why a held checkpoint cannot be served yet; it is handed out again after `retry`."""
        one = self._watched.get(pin.uri)
        since, is_passed = (now, True) if one is None else (one.since, one.is_passed)
        if one is None or gap_is_due(why, since, now, self._options.settle_s, is_passed=is_passed):
            self.gaps.add_unusable(pin, why, now)
        self.postponed(pin)

    def retry(self) -> None:
        """Make postponed pins due again."""
        self._due += self._postponed
        self._postponed = []

    # --- what will not be evaluated

    def overdue(self, now: datetime) -> tuple[Watched, ...]:
        """Return the open checkpoints that are unlikely to become complete."""
        newest: dict[str, int] = {}
        for one in self._watched.values():
            if isinstance(one.readiness, Complete):
                newest[one.site.run_id] = max(one.site.step, newest.get(one.site.run_id, 0))
        return tuple(
            one for one in self._watched.values() if self._is_overdue(one, newest.get(one.site.run_id, 0), now)
        )

    def add_gap(self, one: Watched, now: datetime) -> None:
        """Add a gap for an open checkpoint: complete but not pinned for some reason, or unusable."""
        if not isinstance(one.readiness, Complete):
            self.gaps.add_unusable(one.site, one.readiness, now)
            return
        reason = one.trouble or "its files kept changing"
        what = f"{one.site.uri} could not be {self._done}: {reason}"
        self.gaps.add(one.site, CheckpointIncomplete(what, hint="evaluate it with `tracker evaluate`"), now)

    def give_up(self, now: datetime) -> None:
        """Add a gap for every checkpoint that is not taken, unless it has one already."""
        for one in self._watched.values():
            if not one.is_taken:
                self.add_gap(one, now)
        for pin in self._postponed:
            if pin.complete.blocked is not None:
                self.gaps.add_unusable(pin, pin.complete.blocked, now)

    def _assess(self, run_id: str, listing: Listing) -> Readiness:
        habits = self._habits.get(run_id)
        if not self._is_bucket:
            options = self._options
            return assess_to_hold(listing, habits, allow_pickle=options.allow_pickle, converts=bool(options.convert))
        readiness = demand_whole_weights(listing.facts) or assess(listing, habits)
        # Objects arrive in any order: a trainer_state.json that is the newest proves nothing.
        if isinstance(readiness, Complete):
            return replace(readiness, is_end_proven=False)
        return readiness

    def _unreadable(self, one: Watched, why: NotYet) -> Watched:
        """Return the state of an unreadable checkpoint: its facts stay empty, so that every scan reads it again."""
        before = self._watched[one.site.uri]
        since = before.since if before.pin is None else one.since
        facts = Facts(path=one.site.uri, mtime_ns=0, files=(), problem=why.reason)
        return Watched(site=one.site, facts=facts, since=since, readiness=why)

    def _left_s(self, one: Watched, now: datetime, heard: Heard) -> float | None:
        """Return the seconds until a checkpoint has settled; None: it is not complete, or not awaited."""
        if one.is_taken or not isinstance(one.readiness, Complete):
            return None
        if self._is_bucket:
            habits = self._habits.get(one.site.run_id)
            earlier = None if habits is None else habits.small
            settle_s = patience_s(one.readiness.small(), earlier, self._options.settle_s)
            return settles_in_s(one.readiness, 0, one.since, Observation(now=now, settle_s=settle_s))
        if one.pin is None:
            return None  # it is pinned first
        look = Observation(now=now, settle_s=self._options.settle_s, heard_at=heard.get(one.site.uri))
        return settles_in_s(one.readiness, one.pin.ready_ns, one.since, look)

    def _is_overdue(self, one: Watched, newest_step: int, now: datetime) -> bool:
        if one.pin is not None or isinstance(one.readiness, Complete):
            return False
        settle_s = max(self._options.settle_s, PASSED_S) if self._is_bucket else self._options.settle_s
        return gap_is_due(one.readiness, one.since, now, settle_s, is_passed=one.site.step < newest_step)

    def _ended(self, one: Watched) -> list[Pin]:
        """Make a pin without a source due if the trainer had finished it for certain; else return it as useless."""
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


def _hint_of_loss(one: Watched) -> str:
    if isinstance(one.readiness, Complete):
        return ROTATION_HINT
    if isinstance(one.readiness, Rejected):
        return one.readiness.hint
    return UNFINISHED_HINT
