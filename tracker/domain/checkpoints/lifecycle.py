"""One watched checkpoint, from the first file that was seen to the hold that is taken: what follows from a look. Pure.

    open (nothing is held) --> held --> taken (handed out to be published)

A complete folder is held at once, because rotation may delete it milliseconds later, and taken when it has settled. An
upload is held, which takes a download, when it has settled, and taken with that. New weights under the same name open
it again.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from eval_jobs.errors import CheckpointIncomplete
from tracker.domain.checkpoints.completeness import Complete, Readiness
from tracker.domain.checkpoints.listing import Facts, Site, has_lost_entry
from tracker.domain.checkpoints.pin import Pin
from tracker.domain.checkpoints.unusable import NotYet
from tracker.domain.checkpoints.watching import FileChange, change_of

_UNSEEN = NotYet(code=CheckpointIncomplete.code, reason="saving had only just started", hint="")


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What is known of one checkpoint."""

    site: Site
    facts: Facts
    since: datetime
    """When the last change was seen."""
    readiness: Readiness = _UNSEEN
    pin: Pin | None = None
    """None: it is open."""
    is_taken: bool = False
    """What is held was handed out to be published."""
    trouble: str = ""
    """Why it could not be held."""
    is_passed: bool = False
    """A later checkpoint had been begun when this one was last looked at, so the trainer was done with it."""
    is_overwritten: bool = False
    """Its weights were overwritten in place: a hard link would not protect them."""


@dataclass(frozen=True, kw_only=True)
class Transition:
    """What follows from a look."""

    after: Watched
    is_read: bool = False
    """What its files say decides now: read them, and `Watchlist.note` them."""
    due: Pin | None = None
    """The hold is published: its source is changing, and the trainer had surely finished it."""
    useless: tuple[Pin, ...] = ()
    """The hold, where it is to be removed."""


def look_at(one: Watched, facts: Facts, now: datetime, *, is_full: bool = False) -> Transition:
    """Return what follows from what lies there now.

    Args:
        one: as it is known.
        facts: of what lies there now.
        now: the current time.
        is_full: an unfinished one is read again although nothing about its files changed.
    """
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
    """Return whether the trainer had surely finished what is held."""
    return pin.complete.is_end_proven or (one.is_passed and not has_lost_entry(one.facts))


# --- private


def _rewritten(one: Watched, pin: Pin, facts: Facts, now: datetime) -> Transition:
    """Other weights under the same name: a rewound run, or a save that goes on."""
    inodes = {f.name: f.inode for f in facts.files}
    is_overwritten = any(inodes.get(f.name) == f.inode for f in pin.weights())
    after = Watched(site=one.site, facts=facts, since=now, is_overwritten=is_overwritten)
    if one.is_taken:
        return Transition(after=after, is_read=True)
    if is_final(one, pin):
        return Transition(after=after, is_read=True, due=pin)
    return Transition(after=after, is_read=True, useless=(pin,))


def _shrunk(one: Watched, pin: Pin, facts: Facts, now: datetime) -> Transition:
    """Files are gone: the trainer deletes the folder, or somebody tidies up."""
    if is_final(one, pin):
        return Transition(after=replace(one, is_taken=True), due=pin)
    if change_of(pin.source_files, facts) is FileChange.SAME:
        return Transition(after=replace(one, facts=facts, since=now))
    return Transition(after=one)


def _grown(one: Watched, pin: Pin, facts: Facts, now: datetime) -> Transition:
    """Something came or was written again beside unchanged weights, such as a tokenizer: it is held anew."""
    if is_final(one, pin):
        return Transition(after=replace(one, is_taken=True), due=pin)
    after = Watched(site=one.site, facts=facts, since=now, is_overwritten=one.is_overwritten)
    return Transition(after=after, is_read=True, useless=(pin,))
