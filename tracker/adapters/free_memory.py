"""Memory that this process never takes, or has freed and gives back to the machine."""

import ctypes
import gc
from contextlib import suppress

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
