"""Our pins as a store with a budget: listed with the space that they use, released one by one.

A released pin keeps its manifest, so that a trainer's folder that still exists is not pinned again. Users of a pin
outside the queue hold a shared lock on its folder, which the kernel drops with the process.
"""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from eval_jobs.host.storage import is_full
from eval_jobs.types import Checkpoint
from tracker.adapters.checkpoints.pins.hold import HELD, store_error
from tracker.adapters.checkpoints.pins.manifest import MANIFEST, overwrite_manifest, read_pin, write_manifest
from tracker.domain.checkpoints.pin import Pin
from tracker.ports import HeldPin

log = logging.getLogger(__name__)


class FolderOfPins:
    """`tracker.ports.Pins` over the folder that the checkpoint sources publish to."""

    def __init__(self, pins_dir: Path) -> None:
        self._pins_dir = pins_dir.absolute()

    def held(self) -> tuple[HeldPin, ...]:
        """Return all pins that hold weights; see `ports.Pins`."""
        # A released pin has only its manifest. If a process was killed during a release, files remain: such a pin is
        # listed again, and the next release deletes them.
        found = ((pin, pin.checkpoint) for pin in self._published(is_bare=False))
        pins = (
            HeldPin(checkpoint=replace(checkpoint, uri=pin.folder), own_bytes=_own_bytes(Path(pin.folder)))
            for pin, checkpoint in found
            if checkpoint is not None
        )
        return tuple(sorted(pins, key=lambda p: (p.checkpoint.run_id, p.checkpoint.step, p.checkpoint.digest)))

    def given_up(self) -> frozenset[str]:
        """Return the URIs of released pins; see `ports.Pins`."""
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
        """Protect a pin from release; see `ports.Pins`."""
        with _locked(Path(checkpoint.uri), fcntl.LOCK_SH):
            yield

    def _published(self, *, is_bare: bool) -> Iterator[Pin]:
        for manifest in self._pins_dir.glob(f"*/*/{MANIFEST}"):
            if manifest.parent.name.startswith(HELD) or _is_bare(manifest.parent) is not is_bare:
                continue
            pin = read_pin(manifest.parent)
            if pin is not None:
                yield pin


@contextmanager
def _locked(folder: Path, kind: int) -> Iterator[bool]:
    """Lock a folder for the block and yield whether that succeeded; a missing folder cannot be locked."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except OSError:  # another process has it, or the file system has no locks: then nothing is released
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def _give_up(pin: Pin) -> None:
    """Delete all files but the manifest, after marking it as released: `held` lists the pin again after a kill.

    On a full disk, it is marked after the files are deleted.

    Raises:
        DiskFull, StoreError: the folder cannot be written.
    """
    folder, released = Path(pin.folder), replace(pin, released=True)
    try:
        try:
            write_manifest(released, folder, is_durable=True)
            _delete_files(folder)
        except OSError as error:
            if not is_full(error):
                raise
            _delete_files(folder)
            overwrite_manifest(released, folder)
    except OSError as error:
        raise store_error(error, f"cannot delete the weights of pin {folder}") from error


def _delete_files(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name != MANIFEST:
            path.unlink()


def _is_bare(folder: Path) -> bool:
    return all(path.name == MANIFEST for path in folder.iterdir())


def _own_bytes(folder: Path) -> int:
    """Return the bytes that deleting the pin frees: files that the trainer's folder also holds are not counted."""
    facts = [path.lstat() for path in folder.iterdir()]
    return sum(fact.st_size for fact in facts if fact.st_nlink == 1)
