"""Finds the blocks of a file that hold only zeros, in chunks that the caller reads. As fast as memory."""

import os
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from tracker.domain.checkpoints.raw.tensors import BLOCK_BYTES, ZeroRun


class ZeroScan:
    """The blocks of one file that hold only zeros, found in consecutive chunks."""

    def __init__(self, start: int) -> None:
        """Start at offset `start`, where the header ends; the header itself is never zero."""
        self._at = start
        self._is_zero = start % BLOCK_BYTES == 0
        """Whether the current block is zero so far."""
        self._blocks: list[tuple[int, int]] = []
        """First and last block of each run, by number."""

    def feed(self, chunk: memoryview) -> None:
        """Scan the next bytes."""
        head = min(-self._at % BLOCK_BYTES, len(chunk))
        self._part(chunk[:head])
        whole = (len(chunk) - head) // BLOCK_BYTES * BLOCK_BYTES
        for number in _zero_blocks(chunk[head : head + whole]):
            self._add(self._at // BLOCK_BYTES + number)
        self._at += whole
        self._part(chunk[head + whole :])

    def runs(self, file: BinaryIO, name: str) -> Iterator[ZeroRun]:
        """Yield the runs with exact bounds in bytes, after the end of the file was reached."""
        size = self._at
        if size % BLOCK_BYTES and self._is_zero:
            self._add(size // BLOCK_BYTES)
        for first, last in self._blocks:
            begin, end = first * BLOCK_BYTES, min(size, (last + 1) * BLOCK_BYTES)
            before = os.pread(file.fileno(), BLOCK_BYTES, max(0, begin - BLOCK_BYTES))
            after = os.pread(file.fileno(), min(BLOCK_BYTES, size - end), end)
            begin -= len(before) - len(before.rstrip(b"\0"))
            end += len(after) - len(after.lstrip(b"\0"))
            yield ZeroRun(file=name, begin=begin, end=end, is_tail=end == size)

    def _part(self, part: memoryview) -> None:
        if not part:
            return
        if self._at % BLOCK_BYTES == 0:
            self._is_zero = True
        self._is_zero = self._is_zero and is_zero(part)
        self._at += len(part)
        if self._is_zero and self._at % BLOCK_BYTES == 0:
            self._add(self._at // BLOCK_BYTES - 1)

    def _add(self, block: int) -> None:
        if self._blocks and self._blocks[-1][1] == block - 1:
            self._blocks[-1] = (self._blocks[-1][0], block)
        else:
            self._blocks.append((block, block))


def is_zero(part: memoryview) -> bool:
    """Return whether all bytes are zero."""
    return not np.frombuffer(part, dtype="u1").any()


def _zero_blocks(chunk: memoryview) -> list[int]:
    blocks = np.frombuffer(chunk, dtype="<u8").reshape(-1, BLOCK_BYTES // 8)
    # The first number of nearly every block is not zero, so few blocks have to be checked in full.
    candidates = np.flatnonzero(blocks[:, 0] == 0)
    return [int(number) for number in candidates if not blocks[number].any()]
