"""What a pin is, and the manifest that says so in its folder. Written last: a folder without it is half-made."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from eval_jobs.codec import from_document, to_document
from eval_jobs.errors import SchemaTooNew, StoreError
from eval_jobs.types import Checkpoint
from tracker.adapters.checkpoints.files.listing import facts_of_folder
from tracker.domain.checkpoints.completeness import Complete
from tracker.domain.checkpoints.listing import FileFact
from tracker.domain.checkpoints.watching import FileChange, change_of

log = logging.getLogger(__name__)

MANIFEST = ".pin.json"


@dataclass(frozen=True, kw_only=True)
class Pin:
    """A complete copy of what serving needs, in our own folder."""

    folder: str
    run_id: str
    step: int
    source: str
    """Absolute path of the trainer's folder, or s3://bucket/prefix."""
    complete: Complete
    source_files: tuple[FileFact, ...]
    """The held files as they were in the trainer's folder; in a bucket the ETag stands in the inode's place."""
    own_files: tuple[FileFact, ...]
    """The same in our folder: a change means that somebody wrote through a hard link."""
    ready_ns: int
    """Newest modification time of the trainer's files."""
    checkpoint: Checkpoint | None = None
    """None: held, not yet published."""
    released: bool = False
    """Its files were given up to save space; what is left says that it was evaluated."""
    zeros: tuple[str, ...] = ()
    """Tensors that hold nothing but zeros; known of what is published."""
    notes: tuple[str, ...] = ()
    """What is unusual about its weights and no fault."""
    raw_weights: tuple[str, ...] = ()
    """Names of the trainer's files that the weights were made from; empty: they are the trainer's own files."""
    unpickled: bool = False
    """Whether those were pickles that only `watch.allow_pickle` lets in."""
    by_hand: bool = False
    """A person named it: it does not say that the run was watched when it was written."""

    def weights(self) -> tuple[FileFact, ...]:
        """Return the facts of the trainer's weights: what a checkpoint's identity rests on."""
        names = self.raw_weights or self.complete.weights
        return tuple(f for f in self.source_files if f.name in names)

    def is_linked(self) -> bool:
        """Return whether the weights take no space of their own."""
        own = {f.name: f.inode for f in self.own_files}
        return all(own.get(f.name) == f.inode for f in self.weights())


_PIN = TypeAdapter(Pin)


def read_pin(folder: Path) -> Pin | None:
    """Return the pin in `folder`, or None when it has no manifest of ours."""
    try:
        text = (folder / MANIFEST).read_bytes()
        pin = from_document(text, lambda document: _PIN.validate_python(document["pin"]), what=f"the pin {folder}")
    except SchemaTooNew as error:
        log.warning("%s; it is left alone", error.message)
        return None
    except (OSError, StoreError):
        return None
    return replace(pin, folder=str(folder))


def is_unchanged(pin: Pin) -> bool:
    """Return whether our files are still as they were when they were held."""
    facts = facts_of_folder(Path(pin.folder))
    return facts is not None and change_of(pin.own_files, facts) is FileChange.SAME


def write_manifest(pin: Pin, folder: Path, *, is_durable: bool) -> None:
    """Write the manifest of `pin` into `folder`, whole or not at all; `is_durable`: a power cut may follow."""
    document = to_document({"pin": _PIN.dump_python(pin, mode="json")}, indent=1)
    temporary = folder / f"{MANIFEST}.tmp"
    with temporary.open("w", encoding="utf-8") as file:
        file.write(document)
        if is_durable:
            file.flush()
            os.fsync(file.fileno())
    temporary.replace(folder / MANIFEST)
