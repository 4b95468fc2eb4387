"""The checkpoints of one bucket over time: seen, unchanged, taken, gone. Asks nobody; is told what was seen.

    unread(prefixes) -> which to read      saw(prefixes, listings, now)      settled(now) -> which to download
    overdue(now) -> which will not become checkpoints

One upload is OPEN until it was unchanged for long enough, then TAKEN. New weights under the same name open it again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from eval_jobs.errors import CheckpointIncomplete
from tracker.adapters.checkpoints.bucket.listing import Prefix, facts_of_listing
from tracker.adapters.checkpoints.files.gaps import Gaps
from tracker.adapters.checkpoints.pins.hold import Pin
from tracker.domain.checkpoints.buckets import PASSED_S, demand_whole_weights, patience_s
from tracker.domain.checkpoints.completeness import (
    SERVED_SUFFIXES,
    Complete,
    Habits,
    NotYet,
    Readiness,
    WatchOptions,
    assess,
)
from tracker.domain.checkpoints.listing import Facts, Listing, Site
from tracker.domain.checkpoints.watching import FileChange, change_of, gap_is_due

log = logging.getLogger(__name__)

_UNSEEN = NotYet(code=CheckpointIncomplete.code, reason="it had just been begun", hint="")


@dataclass(kw_only=True)
class Upload:
    """One checkpoint in the bucket."""

    site: Site
    prefix: Prefix | None
    """As it was seen last; None: not yet by this process."""
    facts: Facts
    since: datetime
    """When the last change was seen."""
    readiness: Readiness = _UNSEEN
    pin: Pin | None = None
    """None: open."""
    trouble: str = ""
    """Why it could not be downloaded."""


class Uploads:
    """All checkpoints below one prefix."""

    def __init__(self, options: WatchOptions) -> None:
        self._options = options
        self._uploads: dict[str, Upload] = {}
        self._habits: dict[str, Habits] = {}
        self._small: dict[str, frozenset[str]] = {}
        """Per run: names of the small files that its newest known checkpoint has."""
        self._late: set[str] = set()
        self.gaps = Gaps()

    def restore(self, pins: Iterable[Pin], now: datetime) -> None:
        """Take over what an earlier process had pinned."""
        for pin in sorted(pins, key=lambda p: p.ready_ns):
            facts = Facts(path=pin.source, mtime_ns=0, files=pin.source_files)
            site = Prefix(run_id=pin.run_id, step=pin.step, uri=pin.source)
            self._uploads[pin.source] = Upload(site=site, prefix=None, facts=facts, since=now, pin=pin)
            self.gaps.remember_step(site, pin.complete.save_every, was_watched=not pin.by_hand)
            self._learn(pin)

    def unread(self, prefixes: Iterable[Prefix]) -> tuple[Prefix, ...]:
        """Return those whose headers and documents decide something new."""
        return tuple(p for p in prefixes if self._is_unread(p))

    def saw(self, prefixes: Iterable[Prefix], listings: Mapping[str, Listing | NotYet], now: datetime) -> None:
        """Take note of a whole look: everything that is there, and what the unread ones say, or why they do not."""
        by_uri = {p.uri: p for p in prefixes}
        for uri in self._uploads.keys() - by_uri.keys():
            self._gone(self._uploads.pop(uri), now)
        for uri, prefix in by_uri.items():
            listing = listings.get(uri)
            if isinstance(listing, NotYet):
                self._unreadable(prefix, listing, now)
            elif listing is not None:
                self._assess(prefix, listing, now)
            else:
                self._passed_over(self._uploads[uri], prefix)
        self.gaps.add_missed(now)

    def settled(self, now: datetime) -> tuple[Upload, ...]:
        """Return the complete ones that have been unchanged for long enough, lowest step first."""
        found = [u for u in self._uploads.values() if u.pin is None and self._left_s(u, now) == 0]
        return tuple(sorted(found, key=lambda u: (u.site.step, u.site.run_id)))

    def settles_in_s(self, now: datetime) -> float | None:
        """Return how long until the next one may have settled; None when none is complete and open."""
        waits = (self._left_s(u, now) for u in self._uploads.values() if u.pin is None)
        return min((w for w in waits if w is not None), default=None)

    def are_expected(self) -> bool:
        """Return whether a complete one is open only because it is not old enough."""
        return any(
            u.pin is None and isinstance(u.readiness, Complete) and not u.trouble for u in self._uploads.values()
        )

    def overdue(self, now: datetime) -> tuple[Upload, ...]:
        """Return those that will not become checkpoints, as far as can be told."""
        settle_s = max(self._options.settle_s, PASSED_S)
        newest: dict[str, int] = {}
        for upload in self._uploads.values():
            if upload.pin is not None or isinstance(upload.readiness, Complete):
                newest[upload.site.run_id] = max(upload.site.step, newest.get(upload.site.run_id, 0))
        return tuple(
            upload
            for upload in self._uploads.values()
            if upload.pin is None
            and not isinstance(upload.readiness, Complete)
            and gap_is_due(
                upload.readiness,
                upload.since,
                now,
                settle_s,
                is_passed=upload.site.step < newest.get(upload.site.run_id, 0),
            )
        )

    def add_gap(self, upload: Upload, now: datetime) -> None:
        """Call one of `overdue` what it is."""
        if not isinstance(upload.readiness, Complete):
            self.gaps.add_unusable(upload.site, upload.readiness, now)

    def taken(self, upload: Upload, pin: Pin) -> None:
        """Note that an upload is held by us now."""
        upload.pin, upload.trouble = pin, ""
        self._learn(pin)

    def changed(self, upload: Upload, now: datetime) -> None:
        """Note that an upload was not any more what had been seen of it."""
        upload.since = now
        upload.trouble = "it was deleted or written again while it was being downloaded"

    def wait_longer(self, now: datetime) -> None:
        """While the bucket cannot be seen, what is open is not known to be unchanged."""
        for upload in self._uploads.values():
            upload.since = now

    def give_up(self, now: datetime) -> None:
        """Make a gap of everything that is open."""
        for upload in self._uploads.values():
            if upload.pin is not None:
                continue
            if isinstance(upload.readiness, Complete):
                reason = upload.trouble or "it never stopped changing"
                error = CheckpointIncomplete(
                    f"{upload.site.uri} could not be downloaded: {reason}", hint="evaluate it with `tracker run`"
                )
                self.gaps.add(upload.site, error, now)
            else:
                self.add_gap(upload, now)

    # --- private

    def _is_unread(self, prefix: Prefix) -> bool:
        upload = self._uploads.get(prefix.uri)
        if upload is None:
            return True
        if upload.pin is not None:
            return change_of(upload.pin.weights(), facts_of_listing(prefix)) is FileChange.CHANGED
        return upload.facts != facts_of_listing(prefix) or upload.prefix is None

    def _assess(self, prefix: Prefix, listing: Listing, now: datetime) -> None:
        upload = Upload(site=prefix, prefix=prefix, facts=listing.facts, since=now)
        useless = demand_whole_weights(listing.facts)
        upload.readiness = useless or assess(listing, self._habits.get(prefix.run_id))
        if isinstance(upload.readiness, Complete):
            # Objects come in any order: trainer_state.json being the newest proves nothing.
            upload.readiness = replace(upload.readiness, prompt=False)
        self._uploads[prefix.uri] = upload
        self.gaps.remember_step(prefix, upload.readiness.save_every if isinstance(upload.readiness, Complete) else None)

    def _unreadable(self, prefix: Prefix, why: NotYet, now: datetime) -> None:
        """Its facts stay empty, so that it is read again at every look."""
        upload = self._uploads.get(prefix.uri)
        since = upload.since if upload is not None and upload.pin is None else now
        facts = Facts(path=prefix.uri, mtime_ns=0, files=(), problem=why.reason)
        self._uploads[prefix.uri] = Upload(site=prefix, prefix=prefix, facts=facts, since=since, readiness=why)

    def _passed_over(self, upload: Upload, prefix: Prefix) -> None:
        upload.prefix = prefix
        if upload.pin is None:
            return
        for name in sorted(prefix.objects.keys() - set(upload.pin.complete.held)):
            if name.endswith(SERVED_SUFFIXES) and f"{prefix.uri}/{name}" not in self._late:
                self._late.add(f"{prefix.uri}/{name}")
                log.warning(
                    "%s/%s was uploaded after the checkpoint had been taken, which goes on without it: "
                    "raise watch.settle_s above the time that your largest file takes to upload",
                    prefix.uri,
                    name,
                )

    def _left_s(self, upload: Upload, now: datetime) -> float | None:
        if not isinstance(upload.readiness, Complete):
            return None
        small = _small(upload.readiness)
        wait_s = patience_s(small, self._small.get(upload.site.run_id), self._options.settle_s)
        return max(0.0, (upload.since + timedelta(seconds=wait_s) - now).total_seconds())

    def _gone(self, upload: Upload, now: datetime) -> None:
        if upload.pin is not None:
            return
        if isinstance(upload.readiness, Complete):
            reason = upload.trouble or "its upload had ended too short a time ago"
        else:
            reason = upload.readiness.reason
        self.gaps.add_vanished(upload.site, f"was deleted before it could be downloaded: {reason}", now)

    def _learn(self, pin: Pin) -> None:
        earlier = self._habits.get(pin.run_id, Habits())
        self._habits[pin.run_id] = replace(
            earlier,
            trainer_state=earlier.trainer_state or pin.complete.has_trainer_state,
            ranks=pin.complete.ranks,
        )
        self._small[pin.run_id] = _small(pin.complete)


# --- private


def _small(complete: Complete) -> frozenset[str]:
    return frozenset(complete.held) - frozenset(complete.weights)
