"""Memory that this process has freed, given back to the machine."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress


def give_back() -> None:
    """Give back what the C library keeps for later; it does so by itself only at the end of its heap.

    Ten megabytes of a watcher, after its first pass has made MLflow's tables. Another C library has no such call.
    """
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
