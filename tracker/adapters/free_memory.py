"""Makes PyArrow hold less memory."""

import pyarrow as pa


def keep_no_pool() -> None:
    """Make PyArrow allocate from the C library: its own pool keeps megabytes that are never used again."""
    pa.set_memory_pool(pa.system_memory_pool())
