"""Finds the pins that earlier processes left, and removes incomplete ones."""

import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path, PurePath, PurePosixPath

from eval_jobs.errors import CheckpointError
from eval_jobs.host.paths import canonical
from eval_jobs.host.unforeseen import error_text
from eval_jobs.records.run_scope import is_of
from tracker.adapters.checkpoints.files.safetensors_file import read_weights
from tracker.adapters.checkpoints.pins.hold import HELD, owner_mark, remove_folder
from tracker.adapters.checkpoints.pins.manifest import is_unchanged, read_pin
from tracker.domain.checkpoints.pin import Pin
from tracker.domain.checkpoints.watching import known_time

log = logging.getLogger(__name__)

ABANDONED = timedelta(days=1)
"""A hold of another machine that was not modified for this long is deleted."""
RELEASE_S = 2.0
RELEASED = "released"
"""Takes the place of the owner in the name of a hold whose source was closed."""


def find_pins(pins_dir: Path, run_name: str, output_dir: PurePath, now: datetime) -> tuple[Pin, ...]:
    """Return the pins of one output folder that an earlier process left, lowest step first.

    Holds without a manifest were left incomplete by a killed process and are removed; so are published pins whose
    weights no longer match their digest.
    """
    return tuple(sorted(_usable_pins(pins_dir, run_name, output_dir, now), key=lambda p: (p.step, p.folder)))


def release_holds(pins_dir: Path, run_name: str, output_dir: PurePath) -> None:
    """Release this process's holds of one output folder: the next watcher takes them, on any machine.

    It ends after `RELEASE_S`: on this machine the next watcher also takes the others, whose owner is dead then.
    """
    until_s = time.monotonic() + RELEASE_S
    for folder in pins_dir.absolute().glob(f"*/{HELD}{owner_mark(os.getpid())}-*"):
        if time.monotonic() > until_s:
            return
        pin = read_pin(folder)
        if pin is not None and _belongs(pin, run_name, output_dir):
            with suppress(OSError):
                folder.rename(folder.with_name(f"{HELD}{RELEASED}-{folder.name.rpartition('-')[2]}"))


def is_abandoned(folder: Path, now: datetime) -> bool:
    """Return whether the process that made this hold is dead, or idle for a day on another machine."""
    owner = folder.name.removeprefix(HELD).rpartition("-")[0]
    if owner == RELEASED:
        return True
    host, _, pid = owner.rpartition("-")[0].rpartition("-")
    if host == socket.gethostname() and pid.isdecimal():
        return owner_mark(int(pid)) != owner
    try:
        modified_at = known_time(folder.stat().st_mtime_ns, now)
    except OSError:
        return False
    return modified_at is not None and now - modified_at > ABANDONED


def _usable_pins(pins_dir: Path, run_name: str, output_dir: PurePath, now: datetime) -> Iterator[Pin]:
    for folder in sorted(pins_dir.absolute().glob("*/*")):
        is_held = folder.name.startswith(HELD)
        if is_held and not is_abandoned(folder, now):
            continue
        pin = read_pin(folder)
        if is_held and pin is None:
            log.info("removing %s: incomplete pin of a killed process", folder)
            remove_folder(folder)
        elif pin is not None and _belongs(pin, run_name, output_dir) and _is_usable(pin):
            pin = replace(pin, source=_respelled(pin.source, output_dir))
            # If its process was killed before the final rename, a hold has the manifest of a published pin.
            yield replace(pin, checkpoint=None) if is_held else pin


def _belongs(pin: Pin, run_name: str, output_dir: PurePath) -> bool:
    return is_of(pin.run_id, run_name) and PurePosixPath(_respelled(pin.source, output_dir)).is_relative_to(output_dir)


def _respelled(source: str, output_dir: PurePath) -> str:
    """Return the path of a checkpoint below `output_dir` as now spelled; one that is elsewhere stays as it is."""
    place = PurePosixPath(source)
    if place.is_relative_to(output_dir):
        return source
    inside, folder = PurePosixPath(canonical(str(place.parent))), canonical(str(output_dir))
    if inside.is_relative_to(folder):
        return str(output_dir / inside.relative_to(folder) / place.name)
    return source


def _is_usable(pin: Pin) -> bool:
    try:
        is_sound = _is_sound(pin)
    except Exception as error:  # noqa: BLE001 - one pin must not keep the watcher from starting
        log.warning("cannot read the pin %s, leaving it unchanged: %s", pin.folder, error_text(error))
        return False
    if not is_sound:
        log.warning("removing the pin %s of step %d: its files changed after pinning", pin.folder, pin.step)
        remove_folder(Path(pin.folder))
    return is_sound


def _is_sound(pin: Pin) -> bool:
    if pin.released or is_unchanged(pin):
        return True
    if pin.checkpoint is None:
        return False
    # Times and inodes change when pins are moved or restored; the content decides.
    try:
        content = read_weights(Path(pin.folder) / name for name in pin.complete.weights)
    except (FileNotFoundError, CheckpointError):
        return False
    return content.digest == pin.checkpoint.digest
