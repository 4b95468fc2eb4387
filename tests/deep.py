"""What `make test` takes a sample of and `make test-deep` does in full: kills at every moment, long simulations."""

import os
import zlib
from collections.abc import Iterator, Sequence
from itertools import count

DEEP = "TRACKER_TEST_DEEP"
"""Environment variable; set by `make test-deep`."""


def sized(sample: int, full: int) -> int:
    """Return how often something that takes long is done: `sample` times, and `full` times in a deep run."""
    return full if os.environ.get(DEEP) else sample


def moments_to_kill(*, every: int = 3) -> Iterator[int]:
    """Yield 1, 4, 7 and so on without an end, and all numbers in a deep run: at which change or line to kill."""
    return count(1, sized(every, 1))


def sampled(moments: Sequence[str], *, every: int = 5) -> list[int]:
    """Return at which of these moments to kill: at the first of each kind and at one in `every`; in a deep run at all.

    Args:
        moments: what an undisturbed run does, in order, each named by its kind.
        every: one in so many of the others; which ones follows from `moments`.
    """
    firsts = {kind: number for number, kind in reversed(list(enumerate(moments)))}
    step = sized(every, 1)
    offset = zlib.crc32("\n".join(moments).encode()) % step
    return sorted({*firsts.values(), *range(offset, len(moments), step)})
