"""Our pins as a store with a budget: listed with what they cost, given up one by one.

A pin that is given up leaves its manifest behind, so that a trainer's folder that is still there is not pinned anew.
Whoever uses a pin outside the queue holds a shared lock on its folder, which the kernel drops with the process.
"""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from eval_jobs.types import Checkpoint
from tracker.adapters.checkpoints.pins.hold import HELD, store_error
from tracker.adapters.checkpoints.pins.manifest import MANIFEST, read_pin, write_manifest
from tracker.domain.checkpoints.pin import Pin
from tracker.ports import HeldPin

log = logging.getLogger(__name__)


class FolderOfPins:
    """`tracker.ports.Pins` over the folder that the checkpoint sources publish to."""

    def __init__(self, pins_dir: Path) -> None:
        """Describe where the pins are; the folder may not exist yet."""
        self._pins_dir = pins_dir.absolute()

    def held(self) -> tuple[HeldPin, ...]:
        """Return all pins that hold weights; see `ports.Pins`."""
        # One that was given up holds nothing else. A process that was killed on the way has left files: those are
        # given up by the next one.
        found = ((pin, pin.checkpoint) for pin in self._published(is_bare=False))
        pins = (
            HeldPin(checkpoint=replace(checkpoint, uri=pin.folder), own_bytes=_own_bytes(Path(pin.folder)))
            for pin, checkpoint in found
            if checkpoint is not None
        )
        return tuple(sorted(pins, key=lambda p: (p.checkpoint.run_id, p.checkpoint.step, p.checkpoint.digest)))

    def given_up(self) -> frozenset[str]:
        """Return whose weights were given up; see `ports.Pins`."""
        return frozenset(pin.folder for pin in self._published(is_bare=True))

    def release(self, pin: HeldPin) -> bool:
        """Delete the weights of a pin; see `ports.Pins`."""
        folder = Path(pin.checkpoint.uri)
        with _locked(folder, fcntl.LOCK_EX) as mine:
            known = read_pin(folder) if mine else None
            if known is None:
                return False
            _give_up(known)
        log.info("deleted the weights of pin %s", folder)
        return True

    @contextmanager
    def in_use(self, checkpoint: Checkpoint) -> Iterator[None]:
        """Keep a pin from being given up; see `ports.Pins`."""
        with _locked(Path(checkpoint.uri), fcntl.LOCK_SH):
            yield

    # --- private

    def _published(self, *, is_bare: bool) -> Iterator[Pin]:
        for manifest in self._pins_dir.glob(f"*/*/{MANIFEST}"):
            if manifest.parent.name.startswith(HELD) or _is_bare(manifest.parent) is not is_bare:
                continue
            pin = read_pin(manifest.parent)
            if pin is not None:
                yield pin


@contextmanager
def _locked(folder: Path, kind: int) -> Iterator[bool]:
    """Lock a folder for the block if nobody objects, and tell so; one that is not there is nobody's."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except OSError:  # somebody else has it, or the file system knows no locks: then nothing is given up
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def _give_up(pin: Pin) -> None:
    """Delete all files but the manifest, which says so from before that on: a kill in between is made good by `held`.

    Raises:
        DiskFull, StoreError: the folder cannot be written.
    """
    folder = Path(pin.folder)
    try:
        write_manifest(replace(pin, released=True), folder, is_durable=True)
        for path in folder.iterdir():
            if path.name != MANIFEST:
                path.unlink()
    except OSError as error:
        raise store_error(error, f"cannot delete the weights of pin {folder}") from error


def _is_bare(folder: Path) -> bool:
    return all(path.name == MANIFEST for path in folder.iterdir())


def _own_bytes(folder: Path) -> int:
    """Return what deleting the pin frees: files that the trainer's folder holds too are not counted."""
    facts = [path.lstat() for path in folder.iterdir()]
    return sum(fact.st_size for fact in facts if fact.st_nlink == 1)
