"""The manifest that describes a pin, in its folder. Written last: a folder without it is incomplete."""

import logging
import os
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter

from eval_jobs import limits
from eval_jobs.codec import from_document, to_document
from eval_jobs.errors import OtherSchema, StoreError
from eval_jobs.host.bounded.files import read_bytes
from eval_jobs.host.bounded.json_text import TooLarge
from tracker.adapters.checkpoints.files.listing import facts_of_folder
from tracker.domain.checkpoints.pin import Pin
from tracker.domain.checkpoints.watching import FileChange, change_of

log = logging.getLogger(__name__)

MANIFEST = ".pin.json"


_PIN = TypeAdapter(Pin)


def read_pin(folder: Path) -> Pin | None:
    """Return the pin in `folder`, or None if it has no manifest that this version can read."""
    try:
        text = read_bytes(folder / MANIFEST, limits.DOCUMENT)
        pin = from_document(text, lambda document: _PIN.validate_python(document["pin"]), what=f"the pin {folder}")
    except OtherSchema as error:
        log.warning("%s; leaving it unchanged", error.message)
        return None
    except (OSError, TooLarge, StoreError):
        return None
    return replace(pin, folder=str(folder))


def is_unchanged(pin: Pin) -> bool:
    """Return whether the files of the pin are unchanged since they were held."""
    facts = facts_of_folder(Path(pin.folder))
    return facts is not None and change_of(pin.own_files, facts) is FileChange.SAME


def overwrite_manifest(pin: Pin, folder: Path) -> None:
    """Write the manifest of `pin` over the one in `folder`, which takes no space; a crash may destroy it."""
    with (folder / MANIFEST).open("r+", encoding="utf-8") as file:
        file.write(_document_of(pin))
        file.truncate()


def write_manifest(pin: Pin, folder: Path, *, is_durable: bool) -> None:
    """Write the manifest of `pin` to `folder` atomically; with `is_durable` it survives a power loss."""
    document = _document_of(pin)
    temporary = folder / f"{MANIFEST}.tmp"
    with temporary.open("w", encoding="utf-8") as file:
        file.write(document)
        if is_durable:
            file.flush()
            os.fsync(file.fileno())
    temporary.replace(folder / MANIFEST)


def _document_of(pin: Pin) -> str:
    return to_document({"pin": _PIN.dump_python(pin, mode="json")})
