"""Memory that this process never takes, or has freed and gives back to the machine."""

import ctypes
import gc
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
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


@contextmanager
def without(*packages: str) -> Iterator[None]:
    """Let what is imported in the block find that `packages` are not installed; afterwards anybody can import them.

    For libraries that load a package wherever it is there, and need not.
    """
    absent = _Absent(packages)
    sys.meta_path.insert(0, absent)
    try:
        yield
    finally:
        sys.meta_path.remove(absent)


# --- private


class _Absent(MetaPathFinder):
    def __init__(self, packages: Collection[str]) -> None:
        self._packages = packages

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Find nothing, and keep others from finding it."""
        del path, target
        if fullname in self._packages:
            raise ModuleNotFoundError(f"{fullname} is done without here", name=fullname)
