"""The trainer's checkpoint folders over time: seen, held, settled, gone. Only our own pins are written.

    sweep: every folder -> facts -> complete? -> hold at once
    next_settled: a held folder that stopped changing, or went away after it was surely finished -> ready to publish
    gaps: what never completed, or went before it could be held

One folder is OPEN (nothing held), HELD, or TAKEN (handed out for publication). Not safe for threads: `FilesystemSource`
holds a lock around every call.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum, auto
from pathlib import Path

from eval_jobs.errors import CheckpointError, CheckpointIncomplete, ConsolidationFailed, StoreError
from tracker.adapters.checkpoints.files.gaps import Gaps
from tracker.adapters.checkpoints.files.listing import CheckpointLocation, facts_of_folder, places_in, read_listing
from tracker.adapters.checkpoints.folder.outage import Outage
from tracker.adapters.checkpoints.pins.hold import Pin, hold, remove_folder
from tracker.domain.checkpoints.completeness import Complete, Habits, NotYet, Readiness, WatchOptions, assess
from tracker.domain.checkpoints.listing import Facts, has_lost_entry
from tracker.domain.checkpoints.unusable import not_yet
from tracker.domain.checkpoints.watching import FileChange, Observation, change_of, gap_is_due, is_settled, settles_in_s

log = logging.getLogger(__name__)


class _Stage(Enum):
    OPEN = auto()
    HELD = auto()
    TAKEN = auto()


_AWAY_HINT = "look at the file server or the disk; it is taken when it can be read again"
_UNSEEN = NotYet(code=CheckpointIncomplete.code, reason="it had just been begun", hint="")


@dataclass(kw_only=True)
class _Folder:
    place: CheckpointLocation
    facts: Facts
    since: datetime
    """When the last change was seen."""
    readiness: Readiness = _UNSEEN
    stage: _Stage = _Stage.OPEN
    pin: Pin | None = None
    trouble: str = ""
    """Why it could not be held."""
    is_passed: bool = False
    """A later checkpoint had been begun when this one was last looked at, so the trainer was done with it."""
    is_overwritten: bool = False
    """Its weights were overwritten in place: a hard link would not protect them."""


class Folders:
    """All checkpoint folders of one output folder."""

    def __init__(self, run_name: str, output_dir: Path, pins_dir: Path, options: WatchOptions) -> None:
        self._run_name = run_name
        self._output_dir = output_dir
        self._pins_dir = pins_dir
        self._options = options
        self._root = output_dir
        """The same without symbolic links, as of the last sweep."""
        self._folders: dict[Path, _Folder] = {}
        self._habits: dict[str, Habits] = {}
        self._due: list[Pin] = []
        self._postponed: list[Pin] = []
        self._complaints: set[str] = set()
        self.gaps = Gaps()
        self.outage = Outage()

    def restore(self, pins: Sequence[Pin], now: datetime) -> None:
        """Take over what an earlier process had pinned."""
        last = {pin.run_id: pin.step for pin in sorted(pins, key=lambda p: p.step)}
        for pin in sorted(pins, key=lambda p: p.ready_ns):
            place = CheckpointLocation(run_id=pin.run_id, step=pin.step, path=Path(pin.source))
            earlier = self._folders.get(place.path)
            if earlier is not None and earlier.stage is _Stage.HELD and earlier.pin is not None:
                # The step was saved again, and we were killed before the first save was published.
                self._finish_or_drop(earlier, earlier.pin)
            self._folders[place.path] = _Folder(
                place=place,
                facts=Facts(path=pin.source, mtime_ns=0, files=pin.source_files),
                since=now,
                readiness=pin.complete,
                stage=_Stage.TAKEN if pin.checkpoint else _Stage.HELD,
                pin=pin,
                is_passed=pin.step < last[pin.run_id],
            )
            self.gaps.remember_step(place, pin.complete.save_every, was_watched=not pin.by_hand)
            self._learn(pin)

    def sweep(self, now: datetime, *, is_full: bool) -> bool:
        """Look at every folder once and hold what is complete; return whether something happened.

        Args:
            now: the current time.
            is_full: look into finished folders too, and not only whether their entries changed.
        """
        self.outage.begin_look()
        places = self._places()
        if places is None:
            for folder in self._folders.values():
                _wait_longer(folder, now)
            return False
        if is_full:
            self._due += self._postponed
            self._postponed = []
        self._root = self._output_dir.resolve()
        last = {place.run_id: place.step for place in places}
        before = len(self._due), len(self.gaps.found())
        is_new = False
        for place in places:
            is_new |= self._look(place, now, is_full=is_full, is_passed=place.step < last[place.run_id])
        for path in self._folders.keys() - {place.path for place in places}:
            self._gone(self._folders.pop(path), now)
        self._report(now)
        return is_new or before != (len(self._due), len(self.gaps.found()))

    def next_settled(self, now: datetime, heard: Mapping[str, datetime]) -> Pin | None:
        """Hand out the hold with the lowest step that is certain by now, else None.

        Args:
            now: the current time.
            heard: folders -> when the last file event came from there.
        """
        for folder in self._folders.values():
            pin = folder.pin
            if folder.stage is not _Stage.HELD or pin is None:
                continue
            if is_settled(pin.complete, pin.ready_ns, folder.since, self._seen(folder, now, heard)):
                folder.stage = _Stage.TAKEN
                self._due.append(pin)
        self._due.sort(key=lambda p: (p.step, p.ready_ns))
        return self._due.pop(0) if self._due else None

    def settles_in_s(self, now: datetime, heard: Mapping[str, datetime]) -> float | None:
        """Return how long until the next hold may settle; None when nothing is held."""
        waits = [
            settles_in_s(folder.pin.complete, folder.pin.ready_ns, folder.since, self._seen(folder, now, heard))
            for folder in self._folders.values()
            if folder.stage is _Stage.HELD and folder.pin is not None
        ]
        return 0.0 if self._due else min(waits, default=None)

    def published(self, pin: Pin) -> None:
        """Note that a hold has become a checkpoint: nothing is wrong with its folder any more."""
        self.gaps.forget(pin.source)

    def refused(self, pin: Pin, error: CheckpointError, now: datetime) -> None:
        """Note that a hold turned out to be useless, or useless here and now."""
        place = CheckpointLocation(run_id=pin.run_id, step=pin.step, path=Path(pin.source))
        self.gaps.add(place, error, now)
        if not isinstance(error, ConsolidationFailed):
            remove_folder(Path(pin.folder))

    def postponed(self, pin: Pin, error: StoreError) -> None:
        """Note that a hold could not be published now; it is handed out again after the next full sweep."""
        self._complain(str(error))
        self._postponed.append(pin)

    def give_up(self, now: datetime) -> None:
        """Make a gap of every folder that is neither taken nor a gap already; what cannot be read now is none."""
        if self.outage.is_on:
            return
        for folder in self._folders.values():
            if folder.stage is _Stage.TAKEN:
                continue
            if isinstance(folder.readiness, Complete):
                reason = folder.trouble or "it never stopped changing"
                error = CheckpointIncomplete(
                    f"{folder.place.path} could not be pinned: {reason}", hint="evaluate it with `tracker run`"
                )
                self.gaps.add(folder.place, error, now)
            else:
                self.gaps.add_unusable(folder.place, folder.readiness, now)

    # --- private: looking

    def _seen(self, folder: _Folder, now: datetime, heard: Mapping[str, datetime]) -> Observation:
        return Observation(now=now, settle_s=self._options.settle_s, heard_at=heard.get(folder.place.uri))

    def _places(self) -> tuple[CheckpointLocation, ...] | None:
        places: tuple[CheckpointLocation, ...] = ()
        try:
            places = places_in(
                self._output_dir, run_name=self._run_name, pattern=self._options.pattern, skip=self._pins_dir
            )
        except FileNotFoundError:
            self._complain(f"{self._output_dir} does not exist yet; waiting for the trainer to create it")
        except OSError as error:
            # Not the same as empty: a file server that is away for a moment has deleted nothing.
            self._complain(f"{self._output_dir} cannot be read: {error.strerror}; trying again")
            self.outage.is_on = True
            return None
        if places:
            self.outage.remember(self._output_dir)
        elif self.outage.is_unmounted(self._output_dir):
            self._complain(f"{self._output_dir} is not mounted: waiting for the file system with its checkpoints")
            self.outage.is_on = True
            return None
        return places

    def _look(self, place: CheckpointLocation, now: datetime, *, is_full: bool, is_passed: bool) -> bool:
        """Look at one folder; return whether something new is held."""
        try:
            is_new = self._look_into(place, now, is_full=is_full, is_passed=is_passed)
        except OSError as error:
            why = error.strerror or str(error)
            if place.path in self._folders:
                _wait_longer(self._folders[place.path], now)
            self._complain(f"{place.path} cannot be read: {why}; trying again")
            if self.outage.note(place.path, now):
                self.gaps.add_unusable(place, not_yet(f"it cannot be read: {why}", hint=_AWAY_HINT), now)
            return False
        self.outage.end(place.path)
        return is_new

    def _look_into(self, place: CheckpointLocation, now: datetime, *, is_full: bool, is_passed: bool) -> bool:
        folder = self._folders.get(place.path)
        if folder is not None and folder.stage is _Stage.TAKEN and not is_full and not _is_touched(folder):
            return False
        facts = facts_of_folder(place.path, self._root)
        if facts is None:
            return False  # the next sweep finds it gone
        if folder is None:
            folder = _Folder(place=place, facts=facts, since=now)
            self._folders[place.path] = folder
            is_new = self._take(folder, facts)
        elif folder.stage is _Stage.OPEN:
            is_new = self._look_again(folder, facts, now, is_full=is_full)
        else:
            is_new = self._compare(folder, facts, now)
        folder.is_passed = is_passed
        return is_new

    def _look_again(self, folder: _Folder, facts: Facts, now: datetime, *, is_full: bool) -> bool:
        if folder.facts != facts:
            folder.since = now
        elif not is_full and not isinstance(folder.readiness, Complete):
            return False
        return self._take(folder, facts)

    def _compare(self, folder: _Folder, facts: Facts, now: datetime) -> bool:
        """Look at a folder that is held or taken."""
        pin = folder.pin
        if pin is None or facts == folder.facts:
            return False
        weights = change_of(pin.weights(), facts)
        if weights is FileChange.CHANGED:
            return self._rewritten(folder, pin, facts, now)
        if folder.stage is _Stage.TAKEN:
            folder.facts = facts
            return False
        if FileChange.SHRUNK in {weights, change_of(folder.facts.files, facts)}:
            self._shrunk(folder, pin, facts, now)
            return False
        return self._grown(folder, pin, facts, now)

    def _rewritten(self, folder: _Folder, pin: Pin, facts: Facts, now: datetime) -> bool:
        """Other weights under the same name: a rewound run, or a save that goes on."""
        inodes = {f.name: f.inode for f in facts.files}
        folder.is_overwritten = any(inodes.get(f.name) == f.inode for f in pin.weights())
        if folder.stage is _Stage.HELD:
            self._finish_or_drop(folder, pin)
        folder.stage, folder.pin, folder.since = _Stage.OPEN, None, now
        return self._take(folder, facts)

    def _shrunk(self, folder: _Folder, pin: Pin, facts: Facts, now: datetime) -> None:
        """Files are gone: the trainer deletes the folder, or somebody tidies up."""
        if _is_final(folder, pin):
            self._finish_or_drop(folder, pin)
        elif change_of(pin.source_files, facts) is FileChange.SAME:
            folder.facts, folder.since = facts, now

    def _grown(self, folder: _Folder, pin: Pin, facts: Facts, now: datetime) -> bool:
        """Something came or was written again beside unchanged weights, such as a tokenizer: hold it anew."""
        if self._finish_or_drop(folder, pin):
            return True
        folder.stage, folder.pin, folder.since = _Stage.OPEN, None, now
        return self._take(folder, facts)

    # --- private: acting

    def _take(self, folder: _Folder, facts: Facts) -> bool:
        """Assess a folder with nothing held, and hold it when it is complete."""
        place = folder.place
        listing = read_listing(facts, place.step, config_from=self._options.config_from)
        folder.facts = facts
        folder.readiness = assess(listing, self._habits.get(place.run_id), allow_pickle=self._options.allow_pickle)
        complete = folder.readiness if isinstance(folder.readiness, Complete) else None
        self.gaps.remember_step(place, complete.save_every if complete else None)
        if complete is None:
            return False
        try:
            pin = hold(place, facts, complete, self._pins_dir, copy_weights=folder.is_overwritten)
        except StoreError as error:
            self._complain(str(error))
            folder.trouble = error.message
            return False
        if pin is None:
            return False
        log.info("%s step %d is complete and held", place.run_id, place.step)
        folder.stage, folder.pin, folder.trouble = _Stage.HELD, pin, ""
        self._learn(pin)
        if not pin.is_linked() and not folder.is_overwritten:
            self._complain(
                f"weights cannot be linked from {self._output_dir} to {self._pins_dir} and are copied instead, which "
                "takes time and space: put run.state_dir on the file system of the checkpoints"
            )
        return True

    def _gone(self, folder: _Folder, now: datetime) -> None:
        if folder.stage is _Stage.TAKEN:
            return
        if folder.stage is _Stage.HELD and folder.pin is not None:
            if self._finish_or_drop(folder, folder.pin):
                return
            reason = f"its files had not been unchanged for {self._options.settle_s:g} s"
        elif isinstance(folder.readiness, Complete):
            reason = folder.trouble or "it was deleted while it was being pinned"
        else:
            reason = folder.readiness.reason
        self.gaps.add_vanished(folder.place, f"was deleted before it could be pinned: {reason}", now)

    def _finish_or_drop(self, folder: _Folder, pin: Pin) -> bool:
        """Publish a hold whose source went away, if the trainer had surely finished it."""
        if _is_final(folder, pin):
            folder.stage = _Stage.TAKEN
            self._due.append(pin)
            return True
        remove_folder(Path(pin.folder))
        return False

    def _report(self, now: datetime) -> None:
        """Add gaps for folders that stay useless, and for steps that must have been there."""
        complete = {
            run_id: max((f.place.step for f in self._folders.values() if _is_complete(f, run_id)), default=-1)
            for run_id in {f.place.run_id for f in self._folders.values()}
        }
        for folder in self._folders.values():
            readiness, place = folder.readiness, folder.place
            if folder.stage is not _Stage.OPEN or isinstance(readiness, Complete):
                continue
            is_passed = place.step < complete[place.run_id]
            if gap_is_due(readiness, folder.since, now, self._options.settle_s, is_passed=is_passed):
                self.gaps.add_unusable(place, readiness, now)
        self.gaps.add_missed(now)

    def _learn(self, pin: Pin) -> None:
        earlier = self._habits.get(pin.run_id, Habits())
        self._habits[pin.run_id] = replace(
            earlier,
            trainer_state=earlier.trainer_state or pin.complete.has_trainer_state,
            ranks=pin.complete.ranks,
        )

    def _complain(self, message: str) -> None:
        """Log a trouble that lasts over many sweeps once."""
        if message not in self._complaints:
            log.warning("%s", message)
            self._complaints.add(message)


# --- private


def _wait_longer(folder: _Folder, now: datetime) -> None:
    """While it cannot be seen, an unfinished folder is not known to be unchanged."""
    if folder.stage is _Stage.OPEN:
        folder.since = now


def _is_final(folder: _Folder, pin: Pin) -> bool:
    """Return whether the trainer had surely finished what is held."""
    return pin.complete.prompt or (folder.is_passed and not has_lost_entry(folder.facts))


def _is_complete(folder: _Folder, run_id: str) -> bool:
    return folder.place.run_id == run_id and isinstance(folder.readiness, Complete)


def _is_touched(folder: _Folder) -> bool:
    try:
        return folder.place.path.stat().st_mtime_ns != folder.facts.mtime_ns
    except OSError:
        return True
