"""Memory that this process never takes, or has freed and gives back to the machine."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Collection
from contextlib import suppress
from importlib.abc import MetaPathFinder

import pyarrow as pa


def give_back() -> None:
    """Give back what the C library keeps for later; it does so by itself only at the end of its heap.

    Ten megabytes of a watcher, after its first pass has made MLflow's tables. Another C library has no such call.
    """
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def keep_no_pool() -> None:
    """Let PyArrow take memory from the C library: a pool of its own keeps megabytes that are never used again."""
    pa.set_memory_pool(pa.system_memory_pool())


def do_without(*packages: str) -> None:
    """Let every library that looks for `packages` find that they are not installed; what is imported already stays.

    For packages that others load where they are there, and need not: MLflow and PyArrow load pandas, 41 MB of a
    watcher, and Alembic colours its templates with Pygments, 6 MB.
    """
    sys.meta_path.insert(0, _Absent(packages))


# --- private


class _Absent(MetaPathFinder):
    def __init__(self, packages: Collection[str]) -> None:
        self._packages = packages

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Find nothing, and keep others from finding it."""
        del path, target
        if fullname in self._packages:
            raise ModuleNotFoundError(f"{fullname} is done without in this process", name=fullname)
