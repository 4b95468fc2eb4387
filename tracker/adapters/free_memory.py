"""Reduces the memory that this process holds without using it."""

import ctypes
import gc
from contextlib import suppress

import pyarrow as pa


def give_back() -> None:
    """Return freed memory to the system; the C library itself returns only the end of its heap.

    This frees ten megabytes after a watcher's first pass, which creates MLflow's tables. Only glibc has this call.
    """
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def keep_no_pool() -> None:
    """Make PyArrow allocate from the C library: its own pool keeps megabytes that are never used again."""
    pa.set_memory_pool(pa.system_memory_pool())
