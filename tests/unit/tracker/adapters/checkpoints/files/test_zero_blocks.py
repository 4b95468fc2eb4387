"""The scan finds every run of zero blocks to the byte, however the bytes arrive."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.deep import sized
from tracker.adapters.checkpoints.files.zero_blocks import ZeroScan
from tracker.domain.checkpoints.raw.tensors import BLOCK_BYTES


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("zeros")


def runs_of(content: bytes, start: int, cuts: list[int], folder: Path) -> list[tuple[int, int]]:
    """Return the runs that the scan finds when the bytes after `start` come in the pieces that `cuts` make."""
    path = folder / "file"
    path.write_bytes(content)
    scan = ZeroScan(start)
    borders = sorted({start, len(content), *(c for c in cuts if start < c < len(content))})
    for begin, end in pairwise(borders):
        scan.feed(memoryview(bytearray(content[begin:end])))
    with path.open("rb", buffering=0) as file:
        return [(run.begin, run.end) for run in scan.runs(file, "file")]


def expected(content: bytes, start: int) -> list[tuple[int, int]]:
    """Return the same by looking at the whole content: zeros that fill a block, or the last one."""
    found = []
    for match in re.finditer(rb"\0+", content):
        first = -(-match.start() // BLOCK_BYTES) * BLOCK_BYTES
        fills = first + BLOCK_BYTES <= match.end() or (match.end() == len(content) and first < match.end())
        if fills and first >= start:
            found.append((match.start(), match.end()))
    return found


piece = st.tuples(st.booleans(), st.integers(1, 3 * BLOCK_BYTES))


@settings(deadline=None, max_examples=sized(40, 150))
@given(pieces=st.lists(piece, min_size=1, max_size=8), cuts=st.lists(st.integers(0, 60_000), max_size=8))
def test_every_run_is_found_to_the_byte_whatever_the_pieces(
    pieces: list[tuple[bool, int]], cuts: list[int], folder: Path
) -> None:
    content = b"header!!" + b"".join((b"\0" if zero else b"x") * length for zero, length in pieces)
    assert runs_of(content, 8, cuts, folder) == expected(content, 8)


def test_the_last_block_counts_although_it_is_not_full(folder: Path) -> None:
    content = b"x" * BLOCK_BYTES + b"\0" * 10
    assert runs_of(content, 8, [], folder) == [(BLOCK_BYTES, BLOCK_BYTES + 10)]


def test_zeros_that_fill_no_block_are_not_looked_at(folder: Path) -> None:
    content = b"x" + b"\0" * (2 * BLOCK_BYTES - 3) + b"x" * BLOCK_BYTES
    assert runs_of(content, 1, [], folder) == []
