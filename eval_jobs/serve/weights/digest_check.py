"""Checks that the bytes of a checkpoint's weights are still those that were pinned.

    with DigestCheck(checkpoint) as check:     # hashes in a thread, while the engine imports its libraries
        ...
        check.demand()

A pin is a hard link: a write in place to the trainer's file changes the pinned file too.
"""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

from eval_jobs.errors import CheckpointUnreadable
from eval_jobs.serve.worker_extension.tracker_worker.weight_files import BadWeights, weight_names
from eval_jobs.types import Checkpoint, CheckpointFormat

ADAPTER_WEIGHTS = "adapter_model.safetensors"
CHUNK_BYTES = 8 << 20


class DigestCheck:
    """Hashes the weights in a background thread that ends with the context."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._found = ""
        self._state: tuple[tuple[int, ...], ...] = ()
        """State of the files before they were hashed."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._hash, name="digest check", daemon=True)

    def __enter__(self) -> DigestCheck:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def demand(self) -> None:
        """Wait for the hash, and compare it; a second call detects later writes.

        Raises:
            CheckpointUnreadable: the weights changed. Missing or unreadable weights are left to the engine to report.
        """
        self._thread.join()
        if self._found and _state(self._checkpoint) != self._state:
            self._hash()  # written to after they were hashed, and possibly before the engine read them
        if self._found and self._found != self._checkpoint.digest:
            raise CheckpointUnreadable(
                f"the weights in {self._checkpoint.uri} changed after the checkpoint was found: "
                f"SHA-256 is {self._found}, was {self._checkpoint.digest}",
                hint="have the trainer write each step to new files",
            )

    def _hash(self) -> None:
        digest = hashlib.sha256()
        self._state = _state(self._checkpoint)
        try:
            for path in _files(self._checkpoint):
                with path.open("rb", buffering=0) as file:
                    while chunk := file.read(CHUNK_BYTES):
                        digest.update(chunk)
                        if self._over.is_set():
                            return
        except (BadWeights, OSError):
            return
        self._found = digest.hexdigest()


def demand_pinned_weights(checkpoint: Checkpoint) -> None:
    """Hash the weights now, and compare.

    Raises:
        CheckpointUnreadable: the weights are not those that were pinned.
    """
    with DigestCheck(checkpoint) as check:
        check.demand()


def _state(checkpoint: Checkpoint) -> tuple[tuple[int, ...], ...]:
    """Return what changes when the weights are written to or replaced; () if there are none."""
    try:
        states = [path.stat() for path in _files(checkpoint)]
    except (BadWeights, OSError):
        return ()
    return tuple((state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns) for state in states)


def _files(checkpoint: Checkpoint) -> list[Path]:
    folder = Path(checkpoint.uri)
    is_adapter = checkpoint.format is CheckpointFormat.LORA
    return [folder / name for name in ((ADAPTER_WEIGHTS,) if is_adapter else weight_names(folder))]
