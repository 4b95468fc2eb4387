"""The tracker's own pins of checkpoints, in a folder that the trainer does not use.

    hold (link and copy, check again) -> Pin, named .held-...     publish (digest, NaN, zeros) -> step-<N>-<digest>/

A hard link costs nothing and outlives the trainer's rotation. Small files are copied, because trainers overwrite them
in place, which a link would show. `.pin.json` is written last: a folder without it was left incomplete by a killed
process (see `recovery`).
"""

import errno
import logging
import os
import re
import shutil
import socket
import uuid
from collections.abc import Iterable, Set
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from eval_jobs.errors import CheckpointError, CheckpointIncomplete, CheckpointUnreadable, CheckpointUnsafe, StoreError
from eval_jobs.host import proc
from eval_jobs.host.bounded.files import file_digest
from eval_jobs.host.storage import write_error
from eval_jobs.identity import content_hash
from eval_jobs.records.served_files import is_served
from eval_jobs.types import Checkpoint
from tracker.adapters.checkpoints.files.listing import CheckpointLocation, facts_of_folder, path_in, read_listing
from tracker.adapters.checkpoints.files.safetensors_file import read_weights
from tracker.adapters.checkpoints.pins.manifest import is_unchanged, read_pin, write_manifest
from tracker.adapters.checkpoints.pins.soundness import PUBLISHED, demand_sound
from tracker.domain.checkpoints.completeness import Complete, assess_to_hold
from tracker.domain.checkpoints.listing import Facts, FileFact, RawKind, Site
from tracker.domain.checkpoints.pin import Pin
from tracker.domain.checkpoints.raw.tensors import WeightsContent
from tracker.domain.checkpoints.unusable import NotYet, Rejected
from tracker.domain.checkpoints.watching import FileChange, change_of, known_time, time_of_ns

log = logging.getLogger(__name__)

HELD = ".held-"
"""Prefix of the names of unpublished holds; `owner_mark` and a random part follow."""

_NO_LINK = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS}


def hold(
    place: CheckpointLocation, facts: Facts, complete: Complete, pins_dir: Path, *, copy_weights: bool = False
) -> Pin | None:
    """Hold a complete folder; return None if it was changed or deleted meanwhile.

    `facts` are those of the folder when it was found complete. `copy_weights`: do not link, because this trainer
    overwrites weights in place.

    Raises:
        DiskFull, StoreError: nothing can be written to `pins_dir`, or the trainer's files may not be read.
    """
    folder = new_hold(place.run_id, pins_dir)
    links = () if copy_weights else complete.weights
    try:
        _make_folders(folder, complete.held)
        linked = {n for n in complete.held if _take(path_in(place.path, n), folder / n, is_link=n in links)}
        pin = seal(place, facts, complete, folder, linked) if _is_as_seen(place, facts, complete) else None
    except OSError as error:
        remove_folder(folder)
        if isinstance(error, FileNotFoundError) and not _still_there(place, complete):
            return None
        raise store_error(error, f"cannot pin {place.path} in {pins_dir}") from error
    if pin is None:
        remove_folder(folder)
    return pin


def new_hold(run_id: str, pins_dir: Path) -> Path:
    """Return the path of a new hold for a checkpoint of `run_id`; its name marks this process as the owner."""
    return pins_dir.absolute() / _slug(run_id) / f"{HELD}{_own_mark(os.getpid())}-{uuid.uuid4().hex[:8]}"


def seal(place: Site, facts: Facts, complete: Complete, folder: Path, linked: Set[str] = frozenset()) -> Pin | None:
    """Make a pin of the files in `folder`; return None if they do not match `facts`.

    `folder` holds these files and nothing else; `linked` names those that are hard links to the trainer's files.

    Raises:
        OSError: the folder cannot be read or written.
    """
    pin = _checked(place, facts, complete, folder, linked)
    if pin is not None:
        # No fsync: while a trainer writes gigabytes it would take seconds, and rotation does not wait.
        write_manifest(pin, folder, is_durable=False)
    return pin


def publish(pin: Pin) -> Checkpoint:
    """Give a held checkpoint its identity and its final name. Safe to repeat after a kill.

    Raises:
        CheckpointUnreadable: its weights hold NaN or Inf.
        CheckpointIncomplete: its files were overwritten in place since they were held, parts of them were never
            written, or tensors are missing.
        DiskFull, StoreError: the pin cannot be written.
    """
    held = Path(pin.folder)
    try:
        demand_unchanged(pin)
        content = _content(pin)
        demand_unchanged(pin)
        notes = demand_sound(pin, content)
        final, earlier = _final(pin, content.digest)
        if earlier is not None:
            remove_folder(held)
            return earlier
        checkpoint = _checkpoint(pin, final, content.digest)
        zeros = tuple(sorted(content.zeros))
        published = replace(pin, folder=str(final), checkpoint=checkpoint, zeros=zeros, notes=notes)
        remove_folder(final)
        write_manifest(published, held, is_durable=True)
        held.rename(final)
    except OSError as error:
        raise store_error(error, f"cannot complete the pin {held} of {pin.source}") from error
    for note in notes:
        log.warning("%s step %d: %s", pin.run_id, pin.step, note)
    return checkpoint


def demand_unchanged(pin: Pin) -> None:
    """Raise if the files of a hold have changed.

    Raises:
        CheckpointIncomplete: a file was overwritten through a hard link.
        StoreError: the hold was deleted.
    """
    if not Path(pin.folder).exists():
        raise StoreError(f"the pin {pin.folder} of {pin.source} was deleted", hint="do not modify the pins folder")
    if not is_unchanged(pin):
        raise CheckpointIncomplete(
            f"the weights of {pin.source} were overwritten in place after pinning",
            hint="save this step again: the new content is then pinned",
        )


def store_error(error: OSError, what: str) -> StoreError:
    """Return the error for a failed file operation; `what` names the operation and the file."""
    return write_error(error, what, hint="check the file permissions and the disk")


def owner_mark(pid: int) -> str:
    """Return a unique mark of a running process, even if its pid is reused later; "" if there is no such process."""
    found = proc.stat(pid)
    if found is not None and found.alive:
        return f"{socket.gethostname()}-{pid}-{found.start_time}"
    return ""


def remove_folder(folder: Path) -> None:
    """Delete one of our folders, if it exists."""
    shutil.rmtree(folder, ignore_errors=True)


def refusal(place: str, readiness: NotYet | Rejected) -> CheckpointError:
    """Return the error for a named checkpoint that cannot be pinned."""
    kinds: tuple[type[CheckpointError], ...] = (CheckpointIncomplete, CheckpointUnreadable, CheckpointUnsafe)
    kind = next(kind for kind in kinds if kind.code == readiness.code)
    return kind(f"cannot evaluate {place}: {readiness.reason}", hint=readiness.hint)


# --- private: holding


_own_mark = lru_cache(maxsize=1)(owner_mark)
"""For the process ID of this process, whose mark never changes."""


def _make_folders(folder: Path, names: Iterable[str]) -> None:
    for parent in {(folder / name).parent for name in names}:
        parent.mkdir(parents=True, exist_ok=True)


def _take(source: Path, target: Path, *, is_link: bool) -> bool:
    """Link or copy one file, which may lie in a sub-folder; return whether it was linked."""
    if is_link:
        try:
            os.link(source.resolve(), target)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
        else:
            return True
    shutil.copyfile(source, target)
    return False


def _is_as_seen(place: CheckpointLocation, facts: Facts, complete: Complete) -> bool:
    """Return whether the trainer has not rewritten any held file; a deleted folder counts as unchanged."""
    now = facts_of_folder(place.path)
    return now is None or change_of(_files_of(facts, complete), now) is not FileChange.CHANGED


def _files_of(facts: Facts, complete: Complete) -> tuple[FileFact, ...]:
    return tuple(f for f in facts.files if f.name in complete.held)


def _checked(place: Site, facts: Facts, complete: Complete, folder: Path, linked: Set[str]) -> Pin | None:
    """Return the pin if it holds the expected files: links with the same inodes, and complete by the same rules."""
    source_files, own = _files_of(facts, complete), facts_of_folder(folder)
    if own is None:
        return None
    if [_expected(f, linked) for f in own.files] != [_expected(f, linked) for f in source_files]:
        return None
    listing = read_listing(own, place.step, config_from=complete.config_from)
    again = assess_to_hold(listing, allow_pickle=complete.raw is RawKind.TORCH, converts=True)
    if not isinstance(again, Complete) or again.weights != complete.weights:
        return None
    return Pin(
        folder=str(folder),
        run_id=place.run_id,
        step=place.step,
        source=place.uri,
        complete=complete,
        source_files=source_files,
        own_files=own.files,
        ready_ns=facts.newest_ns(),
    )


def _expected(file: FileFact, linked: Set[str]) -> tuple[str, int, int]:
    return (file.name, file.size, file.inode if file.name in linked else 0)


def _still_there(place: CheckpointLocation, complete: Complete) -> bool:
    return all(path_in(place.path, name).exists() for name in complete.held)


def _slug(run_id: str) -> str:
    """Return a folder name for a run; a changed name gets a hash, so that two runs never share one."""
    slug = re.sub(r"[^\w.-]+", "_", run_id).strip(".")[:80]
    if slug == run_id:
        return slug
    return f"{slug}-{content_hash(run_id)[:6]}"


# --- private: publishing


def _content(pin: Pin) -> WeightsContent:
    try:
        return read_weights(Path(pin.folder) / name for name in pin.complete.weights)
    except CheckpointError as error:
        # The user knows the trainer's folder, not ours.
        raise type(error)(f"cannot evaluate {pin.source}: {error.message}", hint=error.hint) from error


def _final(pin: Pin, digest: str) -> tuple[Path, Checkpoint | None]:
    """Return the final folder, and the existing checkpoint with the same weights and small files, if any.

    The same weights with another tokenizer or configuration are served differently, so they get a separate pin.
    """
    held = Path(pin.folder)
    usual = held.parent / f"{PUBLISHED}{pin.step:08d}-{digest[:12]}"
    earlier = _published(usual)
    if earlier is None or _is_alike(pin, earlier):
        return usual, None if earlier is None else earlier.checkpoint
    small = [[name, file_digest(held / name)] for name in sorted(pin.complete.small())]
    other = usual.with_name(f"{usual.name}-{content_hash(small)[:8]}")
    known = _published(other)
    return other, None if known is None else known.checkpoint


def _published(folder: Path) -> Pin | None:
    pin = read_pin(folder) if folder.exists() else None
    if pin is not None and pin.checkpoint is not None and is_unchanged(pin):
        return pin
    return None


def _is_alike(pin: Pin, earlier: Pin) -> bool:
    names = pin.complete.small()
    if names != earlier.complete.small():
        return False
    folders = (Path(pin.folder), Path(earlier.folder))
    return all(len({file_digest(folder / name) for folder in folders}) == 1 for name in names)


def _files_digest(pin: Pin) -> str:
    """Return the hash of the served files except the weights. The trainer's own state does not affect outputs."""
    held, served = Path(pin.folder), sorted(filter(is_served, pin.complete.small()))
    return content_hash([[name, file_digest(held / name)] for name in served])


def _checkpoint(pin: Pin, final: Path, digest: str) -> Checkpoint:
    held_at = time_of_ns(Path(pin.folder).stat().st_mtime_ns)
    return Checkpoint(
        run_id=pin.run_id,
        step=pin.step,
        uri=str(final),
        source_uri=pin.source,
        format=pin.complete.format,
        digest=digest,
        ready_at=known_time(pin.ready_ns, held_at) or held_at,
        base_model=pin.complete.base_model,
        unpickled=pin.unpickled,
        files_digest=_files_digest(pin),
    )
