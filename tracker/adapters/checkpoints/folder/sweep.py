"""Scans the trainer's checkpoint folders and holds complete checkpoints, as `Watchlist` decides.

Only our own pins are written. Not thread-safe: `FilesystemSource` holds a lock around every call.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path

from eval_jobs.errors import CheckpointUnnamed, StoreError
from eval_jobs.host.unforeseen import SetAside, bug_of
from tracker.adapters.checkpoints.files.listing import (
    CheckpointLocation,
    facts_of_folder,
    models_beside,
    places_in,
    read_listing,
    too_high_in,
)
from tracker.adapters.checkpoints.folder.runs import no_names
from tracker.adapters.checkpoints.pins.hold import hold, remove_folder
from tracker.adapters.checkpoints.pins.manifest import write_manifest
from tracker.adapters.checkpoints.pins.publisher import Complaints
from tracker.domain.checkpoints.completeness import Complete, assess
from tracker.domain.checkpoints.lifecycle import Watched
from tracker.domain.checkpoints.listing import Facts
from tracker.domain.checkpoints.names import MAX_STEP
from tracker.domain.checkpoints.pin import Pin
from tracker.domain.checkpoints.unusable import not_yet
from tracker.domain.checkpoints.watching import STALLED_S, WatchOptions, is_quiet
from tracker.domain.checkpoints.watchlist import Watchlist
from tracker.domain.records.display import names_text

log = logging.getLogger(__name__)

PORTION_S = 1.0
"""Seconds after which a sweep of many folders pauses."""
_NAME_HINT = "set watch.pattern to the names of the checkpoints that are to be evaluated"
_AWAY_HINT = "check the file server or the disk; the checkpoint is pinned once it is readable again"


class Outage:
    """Distinguishes an unavailable file server from a trainer that deletes checkpoints. Not thread-safe.

    An unmounted file system leaves its empty mount point, or nothing, on the file system below: the folder exists, can
    be read, and holds no checkpoint. A folder on another file system than the checkpoints proves nothing about them.
    """

    def __init__(self) -> None:
        self._device: int | None = None
        """Device of the output folder when it last held a checkpoint."""
        self._since: dict[Path, datetime] = {}
        """Checkpoints that cannot be read -> since when."""
        self.is_on = False
        """Whether the last scan could not read something that the next one may find again."""

    def note(self, path: Path, now: datetime) -> bool:
        """Record that a checkpoint cannot be read; return whether this has lasted too long for a mere outage."""
        lasts = is_quiet(self._since.setdefault(path, now), now, STALLED_S)
        self.is_on |= not lasts
        return lasts

    def end(self, path: Path) -> None:
        """Record that a checkpoint was read."""
        self._since.pop(path, None)

    def remember(self, output_dir: Path) -> None:
        """Record that the output folder holds checkpoints now."""
        self._device = _device(output_dir)

    def is_unmounted(self, output_dir: Path) -> bool:
        """Return whether the output folder, now without checkpoints, is on another file system than they were."""
        return self._device is not None and _device(output_dir) != self._device


class Folders:
    """All checkpoint folders of one output folder."""

    def __init__(self, run_name: str, output_dir: Path, pins_dir: Path, options: WatchOptions) -> None:
        self._run_name = run_name
        self._output_dir = output_dir
        self._pins_dir = pins_dir
        self._options = options
        self._root = output_dir
        """The output folder with symbolic links resolved, as of the last sweep."""
        self._problem_at_start: str | None = None
        """Why nothing in the folder was a checkpoint when watching began; None: not looked at yet."""
        self._complaints = Complaints()
        self.watchlist = Watchlist(options, is_bucket=False)
        self.outage = Outage()
        self.aside = SetAside(log)
        self.is_unfinished = False
        """Whether the last sweep ended before it had seen every folder."""
        self._next = 0
        """Position in the order of the known folders at which the next sweep begins."""

    def sweep(self, now: datetime, *, is_full: bool) -> bool:
        """Scan every folder once and hold complete checkpoints; return whether something changed.

        `is_full`: also list finished folders, instead of only checking whether their entries changed.
        """
        self.outage.is_on = False
        is_new_round = is_full and not self.is_unfinished
        places = self._places()
        if places is None:
            self.is_unfinished = False
            self.watchlist.all_unseen(now)
            return False
        if is_new_round:
            self.watchlist.retry()
            self._look_beside(places, now)
        self._root = self._output_dir.resolve()
        before = self.watchlist.news()
        look = partial(self._look, now=now, is_full=is_full, last={place.run_id: place.step for place in places})
        is_new = self._look_in_turn(places, look)
        remove_pins(self.watchlist.keep({place.uri for place in places}, now))
        self._add_overdue(now)
        self.watchlist.gaps.add_missed(now)
        return is_new or before != self.watchlist.news()

    def _add_overdue(self, now: datetime) -> None:
        for one in self.watchlist.overdue(now):
            if one.site.uri not in self.aside.found:  # that has a gap of its own
                self.watchlist.add_gap(one, now)

    def _look_in_turn(self, places: Sequence[CheckpointLocation], look: Callable[[CheckpointLocation], bool]) -> bool:
        """Scan for a limited time: folders never seen first, since they may be deleted soon, and others in turn."""
        new = [place for place in places if self.watchlist.known(place.uri) is None]
        known = [place for place in places if self.watchlist.known(place.uri) is not None]
        known = known[self._next :] + known[: self._next]
        is_new, done = False, []
        for part, share in ((new, 0.8), (known, 0.2)):
            until_s, count = time.monotonic() + share * PORTION_S, 0
            for place in part:
                is_new |= look(place)
                count += 1
                if time.monotonic() > until_s:
                    break
            done.append(count)
        self._next = (self._next + done[1]) % max(1, len(known))
        self.is_unfinished = done != [len(new), len(known)]
        return is_new

    def _places(self) -> tuple[CheckpointLocation, ...] | None:
        places: tuple[CheckpointLocation, ...] = ()
        try:
            places = places_in(
                self._output_dir, run_name=self._run_name, pattern=self._options.pattern, skip=self._pins_dir
            )
        except FileNotFoundError:
            self._complaints.say(f"{self._output_dir} does not exist yet; waiting for the trainer to create it")
        except OSError as error:
            # Not the same as empty: a file server that is unavailable for a moment has deleted nothing.
            self._complaints.say(f"cannot read {self._output_dir}: {error.strerror}; retrying")
            self.outage.is_on = True
            return None
        if places:
            self.outage.remember(self._output_dir)
        elif self.outage.is_unmounted(self._output_dir):
            self._complaints.say(f"{self._output_dir} is not mounted; waiting for its file system")
            self.outage.is_on = True
            return None
        return places

    def _look_beside(self, places: tuple[CheckpointLocation, ...], now: datetime) -> None:
        """Name the models that are no checkpoints of the run; one with a step of its own is a gap."""
        steps = {(place.run_id, place.step) for place in places}
        unnumbered = []
        for model in models_beside(self._output_dir, places, run_name=self._run_name):
            if model.step is None:
                unnumbered.append(str(model.path))
            elif (model.run_id, model.step) not in steps:
                place = CheckpointLocation(run_id=model.run_id, step=model.step, path=model.path)
                error = CheckpointUnnamed(f"{model.path} has another name", hint=_NAME_HINT)
                self.watchlist.gaps.add(place, error, now)
        if unnumbered and (places or len(unnumbered) == 1):  # else `no_names` says it
            which = names_text(unnumbered)
            self._complaints.say(f"models without a step: {which}; evaluate one with `tracker evaluate FOLDER`")
        high = too_high_in({self._output_dir, *(place.path.parent for place in places)}, self._options.pattern)
        if high:
            self._complaints.say(f"no checkpoints, because their steps are above {MAX_STEP:,}: {names_text(high)}")
        if places:
            self.watchlist.gaps.forget(str(self._output_dir))
        else:
            self._check_names(unnumbered, now)

    def _check_names(self, unnumbered: list[str], now: datetime) -> None:
        """Report that nothing is a checkpoint by its name; what was there before watching began is not of the run."""
        problem = no_names(self._output_dir, unnumbered)
        message = "" if problem is None else problem.message
        if self._problem_at_start is None:
            self._problem_at_start = message
        if problem is None:
            return
        self._complaints.say(str(problem))
        if message != self._problem_at_start:
            place = CheckpointLocation(run_id=self._run_name, step=0, path=self._output_dir)
            self.watchlist.gaps.add(place, problem, now)

    def _look(self, place: CheckpointLocation, now: datetime, *, is_full: bool, last: Mapping[str, int]) -> bool:
        """Scan one folder; return whether something new is held. If that fails because of a bug, it is a gap."""
        is_passed = place.step < last[place.run_id]
        look = partial(self._look_safely, place, now, is_full=is_full, is_passed=is_passed)
        is_new = self.aside.attempt(place.uri, f"cannot examine {place.path}", look, None)
        if is_new is None:
            self.watchlist.gaps.add(place, bug_of(self.aside.found[place.uri]), now)
        return bool(is_new)

    def _look_safely(self, place: CheckpointLocation, now: datetime, *, is_full: bool, is_passed: bool) -> bool:
        try:
            is_new = self._look_into(place, now, is_full=is_full, is_passed=is_passed)
        except OSError as error:
            why = error.strerror or str(error)
            self.watchlist.unseen(place.uri, now)
            self._complaints.say(f"cannot read {place.path}: {why}; retrying")
            if self.outage.note(place.path, now):
                self.watchlist.gaps.add_unusable(place, not_yet(f"cannot read its files: {why}", hint=_AWAY_HINT), now)
            return False
        self.outage.end(place.path)
        return is_new

    def _look_into(self, place: CheckpointLocation, now: datetime, *, is_full: bool, is_passed: bool) -> bool:
        one = self.watchlist.known(place.uri)
        if one is not None and one.is_taken and not is_full and not _is_touched(place, one):
            return False
        facts = facts_of_folder(place.path, self._root)
        if facts is None:
            return False  # deleted: the next sweep handles it
        transition = self.watchlist.look(place, facts, now, is_full=is_full, is_passed=is_passed)
        config_from = self._options.config_from
        listing = read_listing(facts, place.step, config_from=config_from) if transition.is_read else None
        complete = self.watchlist.note(transition, listing)
        remove_pins(transition.useless)
        return complete is not None and self._hold(place, facts, complete, is_copy=transition.after.is_overwritten)

    def unblocked(self, pin: Pin, now: datetime) -> Pin | None:
        """Return a hold that was `blocked` and can be served with the settings and files of now; None: not yet."""
        folder = Path(pin.folder)
        facts = facts_of_folder(folder)
        if facts is None:
            return None  # deleted by hand; a checkpoint that still exists is held again at the next start
        options = self._options
        listing = read_listing(facts, pin.step, config_from=options.config_from, beside=Path(pin.source).parent)
        found = assess(listing, allow_pickle=options.allow_pickle, converts=bool(options.convert))
        if isinstance(found, Complete):
            complete = replace(pin.complete, blocked=None, base_model=found.base_model, config_from=found.config_from)
        else:
            complete = replace(pin.complete, blocked=found, is_end_proven=True)  # it has settled, or was complete
        if complete != pin.complete:
            pin = replace(pin, complete=complete)
            write_manifest(pin, folder, is_durable=False)
        if complete.blocked is None:
            return pin
        self.watchlist.blocked(pin, complete.blocked, now)
        return None

    def _hold(self, place: CheckpointLocation, facts: Facts, complete: Complete, *, is_copy: bool) -> bool:
        """Hold a complete folder; return whether that was possible."""
        place = replace(place, step=complete.step)  # a name may count epochs
        try:
            pin = hold(place, facts, complete, self._pins_dir, copy_weights=is_copy)
        except StoreError as error:
            self._complaints.say(str(error))
            self.watchlist.not_held(place.uri, error.message)
            return False
        if pin is None:
            return False
        log.info("%s step %d is complete and pinned", place.run_id, place.step)
        self.watchlist.held(place.uri, pin)
        if not pin.is_linked() and not is_copy:
            self._complaints.say(
                f"copying weights from {self._output_dir} to {self._pins_dir}, because they cannot be hard-linked: "
                "set run.state_dir to a folder on the checkpoints' file system to save time and space"
            )
        return True


def remove_pins(useless: Iterable[Pin]) -> None:
    """Delete useless holds."""
    for pin in useless:
        remove_folder(Path(pin.folder))


def _is_touched(place: CheckpointLocation, one: Watched) -> bool:
    try:
        return place.path.stat().st_mtime_ns != one.facts.mtime_ns
    except OSError:
        return True


def _device(path: Path) -> int | None:
    """Return the device of a folder, or of its nearest existing parent; None: it cannot be read."""
    for folder in (path, *path.parents):
        try:
            return folder.stat().st_dev
        except FileNotFoundError:
            continue
        except OSError:
            return None
    return None
