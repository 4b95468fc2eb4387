"""State of one watched checkpoint, from its first file to a pin handed out for publishing. Pure.

    open (no pin) --> held (has an unpublished pin) --> taken (handed out for publishing)

A complete folder is pinned immediately, because rotation may delete it milliseconds later, and taken when it has
settled. An upload is downloaded and pinned when it has settled, and taken at the same time. New weights under the same
name make the checkpoint open again.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from eval_jobs.errors import CheckpointIncomplete
from tracker.domain.checkpoints.completeness import Complete, Readiness
from tracker.domain.checkpoints.listing import Facts, Site, has_lost_entry
from tracker.domain.checkpoints.pin import Pin
from tracker.domain.checkpoints.unusable import KILLED_HINT, NotYet
from tracker.domain.checkpoints.watching import FileChange, change_of

_UNSEEN = NotYet(code=CheckpointIncomplete.code, reason="saving had only just started", hint=KILLED_HINT)


@dataclass(frozen=True, kw_only=True)
class Watched:
    """The state of one watched checkpoint."""

    site: Site
    facts: Facts
    since: datetime
    """Time at which the last change was seen."""
    readiness: Readiness = _UNSEEN
    pin: Pin | None = None
    """None: the checkpoint is open."""
    is_taken: bool = False
    """The pin was handed out for publishing."""
    trouble: str = ""
    """Why it could not be pinned; empty: no failure."""
    is_passed: bool = False
    """A later checkpoint existed at the last scan of this one, so the trainer had finished it."""
    is_overwritten: bool = False
    """Its weights were overwritten in place, which a hard link does not protect against."""


@dataclass(frozen=True, kw_only=True)
class Transition:
    """What follows from a scan of one checkpoint."""

    after: Watched
    is_read: bool = False
    """The content of its files is needed: read them and call `Watchlist.note`."""
    due: Pin | None = None
    """Pin to publish now: its source is changing, and the trainer had finished it for certain."""
    useless: tuple[Pin, ...] = ()
    """The pin, if it must be removed."""


def look_at(one: Watched, facts: Facts, now: datetime, *, is_full: bool = False) -> Transition:
    """Return what follows from the current files; `is_full`: read an unfinished checkpoint again, even if unchanged."""
    pin = one.pin
    if facts == one.facts:
        return Transition(after=one, is_read=pin is None and (is_full or isinstance(one.readiness, Complete)))
    if pin is None:
        return Transition(after=replace(one, facts=facts, since=now, trouble=""), is_read=True)
    weights = change_of(pin.weights(), facts)
    if weights is FileChange.CHANGED:
        return _rewritten(one, pin, facts, now)
    if one.is_taken:
        return Transition(after=replace(one, facts=facts))
    if FileChange.SHRUNK in {weights, change_of(one.facts.files, facts)}:
        return _shrunk(one, pin, facts, now)
    return _grown(one, pin, facts, now)


def is_final(one: Watched, pin: Pin) -> bool:
    """Return whether the trainer had finished the pinned files for certain."""
    return pin.complete.is_end_proven or (one.is_passed and not has_lost_entry(one.facts))


def _rewritten(one: Watched, pin: Pin, facts: Facts, now: datetime) -> Transition:
    """Handle other weights under the same name: a rewound run, or a save that continues."""
    inodes = {f.name: f.inode for f in facts.files}
    is_overwritten = any(inodes.get(f.name) == f.inode for f in pin.weights())
    after = Watched(site=one.site, facts=facts, since=now, is_overwritten=is_overwritten)
    if one.is_taken:
        return Transition(after=after, is_read=True)
    if is_final(one, pin):
        return Transition(after=after, is_read=True, due=pin)
    return Transition(after=after, is_read=True, useless=(pin,))


def _shrunk(one: Watched, pin: Pin, facts: Facts, now: datetime) -> Transition:
    """Handle deleted files: the trainer deletes the folder, or a user cleans up."""
    if is_final(one, pin):
        return Transition(after=replace(one, is_taken=True), due=pin)
    if change_of(pin.source_files, facts) is FileChange.SAME:
        return Transition(after=replace(one, facts=facts, since=now))
    return Transition(after=one)


def _grown(one: Watched, pin: Pin, facts: Facts, now: datetime) -> Transition:
    """Handle new or rewritten files with unchanged weights, such as a tokenizer: pin again."""
    if is_final(one, pin):
        return Transition(after=replace(one, is_taken=True), due=pin)
    after = Watched(site=one.site, facts=facts, since=now, is_overwritten=one.is_overwritten)
    return Transition(after=after, is_read=True, useless=(pin,))
