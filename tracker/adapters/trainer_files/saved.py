"""How much a training has saved: a checkpoint that grows is progress although no step is logged.

Loggers write below the same folder while a training hangs: only what looks like weights or states counts.
"""

import os
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

NEWEST = 3
MAX_ENTRIES = 2_000
DEPTH = 3
LARGE_BYTES = 1 << 20
"""A file without an extension is a state, as those of Orbax and Megatron, from this size on."""
LOGGERS = frozenset(("runs", "logs", "log", "tensorboard", "wandb", "mlruns", "lightning_logs", "swanlog"))
"""Folders of TensorBoard, Weights & Biases, MLflow, Lightning and SwanLab."""
_TEMPORARY = re.compile(r"tmp|temp|checkpoint|ckpt|step|epoch|save", re.IGNORECASE)
"""In names of hidden folders that a checkpoint is written to before it gets its name."""
_WEIGHTS = re.compile(
    r"\.(?:safetensors|bin|pt|pth|ckpt|distcp|npz|npy|h5|gguf|msgpack|index|nemo)(?:[._~-]|$)"
    r"|\.(?:tmp|temp|part|partial|incomplete)$"
)
_LOG = re.compile(r"^events\.out\.tfevents\.|\.(?:log|out|err|jsonl|txt|csv|wandb|json)$")


def saved_bytes(folder: Path, skip: Collection[Path] = ()) -> int:
    """Return the size of the weights and states in a folder and its newest sub-folders, whatever their names are.

    A save may begin under another name. `skip`: folders of others.
    """
    skipped = frozenset(map(str, skip))
    total = sum(islice(_sizes(str(folder), 1, skipped), MAX_ENTRIES))
    for path in _newest(folder, skipped):
        total += sum(islice(_sizes(path, DEPTH, skipped), MAX_ENTRIES))
    return total


def _newest(folder: Path, skipped: Collection[str]) -> list[str]:
    found: list[tuple[float, str]] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in islice(entries, MAX_ENTRIES):
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False) and _may_be_saved(entry, skipped):
                    found.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    return [path for _, path in sorted(found)[-NEWEST:]]


def _sizes(path: str, depth: int, skipped: Collection[str]) -> Iterator[int]:
    """Yield the size of each entry, 0 of those that do not count."""
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            with suppress(OSError):
                if not entry.is_dir(follow_symlinks=False):
                    yield _size(entry)
                elif depth > 1 and _may_be_saved(entry, skipped):
                    yield from _sizes(entry.path, depth - 1, skipped)


def _may_be_saved(folder: os.DirEntry[str], skipped: Collection[str]) -> bool:
    if folder.path in skipped or folder.name.lower() in LOGGERS:
        return False
    return not folder.name.startswith(".") or _TEMPORARY.search(folder.name) is not None


def _size(entry: os.DirEntry[str]) -> int:
    name = entry.name.lower()
    if _LOG.search(name):
        return 0
    if _WEIGHTS.search(name):
        return entry.stat(follow_symlinks=False).st_size
    if "." in name:
        return 0
    size = entry.stat(follow_symlinks=False).st_size
    return size if size >= LARGE_BYTES else 0
