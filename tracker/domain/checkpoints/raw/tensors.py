"""The result of one pass over weights, and which zeros in them are due to a lost write. Pure.

Zeros alone are not a fault: LoRA's B is zero at step 0, biases and output projections may begin at zero, rows of an
embedding are padded with zeros. All of these begin and end at row boundaries. A lost write begins and ends at block
boundaries of the disk, in the middle of a row.
"""

import math
import re
from dataclasses import dataclass

BLOCK_BYTES = 4096
"""File systems lose whole blocks; larger block sizes are multiples of this."""

_SLACK_BYTES = 64
"""Numbers next to a hole may be zero, or end or begin with zero bytes themselves."""
_ROW_SLACK_BYTES = 8
"""The same at row boundaries: a smaller value misses fewer holes that end near one by chance."""

_MASK = re.compile(r"(?:^|[._])(?:mask|masked_bias|attn\.bias|attention\.bias)$")
"""Attention masks: zeros by design, in any shape."""


@dataclass(frozen=True, kw_only=True)
class TensorFact:
    """One tensor of a weight file."""

    name: str
    dtype: str
    """As in the safetensors header: `BF16`."""
    shape: tuple[int, ...]
    file: str
    begin: int
    """Offset of its first byte in the file."""
    end: int

    def row_bytes(self) -> int:
        """Return the bytes of one row: the last dimension; of a vector, all of it."""
        return (self.end - self.begin) // max(1, math.prod(self.shape[:-1]))

    def is_matrix(self) -> bool:
        """Return whether at least two dimensions are larger than one."""
        return sum(size > 1 for size in self.shape) > 1


@dataclass(frozen=True, kw_only=True)
class ZeroRun:
    """Consecutive zero bytes that fill at least one block of the file, or its last one."""

    file: str
    begin: int
    end: int
    is_tail: bool
    """Whether it reaches the end of the file."""


@dataclass(frozen=True, kw_only=True)
class WeightsContent:
    """The result of one pass over the weights."""

    digest: str
    """Hex SHA-256 of the concatenated bytes of the files."""
    tensors: tuple[TensorFact, ...]
    zero_runs: tuple[ZeroRun, ...] = ()
    zeros: frozenset[str] = frozenset()
    """Tensors that contain only zeros."""


def never_written(content: WeightsContent) -> str:
    """Return which bytes were certainly never written, or "".

    These are zeros that begin or end in the middle of a row at a block boundary of the disk, zeros from the middle of
    a row to the end of the file, and two or more whole matrices of zeros up to the end of the file.
    """
    by_file: dict[str, list[TensorFact]] = {}
    for tensor in content.tensors:
        by_file.setdefault(tensor.file, []).append(tensor)
    for run in content.zero_runs:
        if _is_lost(run, by_file[run.file]):
            where = "to the end of the file" if run.is_tail else f"to byte {run.end}"
            touched = [tensor.name for tensor in _touched(run, by_file[run.file])]
            parts = f"{touched[0]} to {touched[-1]}" if len(touched) > 1 else touched[0]
            return f"{run.file} has only zeros from byte {run.begin} {where} ({parts}): that range was never written"
    return ""


def _is_lost(run: ZeroRun, tensors: list[TensorFact]) -> bool:
    touched = _touched(run, tensors)
    if not touched or any(map(_may_be_zero, touched)):
        return False
    if run.is_tail:
        return _is_lost_tail(run, touched)
    torn: list[int] = []  # distances from a block boundary, modulo BLOCK_BYTES
    if _begins_in_row(run, touched[0]):
        torn.append(-run.begin)
    if _ends_in_row(run, touched[-1]):
        torn.append(run.end)
    return bool(torn) and all(distance % BLOCK_BYTES <= _SLACK_BYTES for distance in torn)


def _is_lost_tail(run: ZeroRun, touched: list[TensorFact]) -> bool:
    whole = [t for t in touched if t.begin >= run.begin and t.is_matrix()]
    if len(whole) > 1:
        return True
    if not _begins_in_row(run, touched[0]):
        return False
    at_block = -run.begin % BLOCK_BYTES <= _SLACK_BYTES
    return at_block or (touched[0].is_matrix() and run.end - run.begin >= BLOCK_BYTES)


def _touched(run: ZeroRun, tensors: list[TensorFact]) -> list[TensorFact]:
    return [t for t in tensors if t.begin < run.end and t.end > run.begin]


def _may_be_zero(tensor: TensorFact) -> bool:
    return tensor.dtype in ("BOOL", "U8") or _MASK.search(tensor.name) is not None


def _begins_in_row(run: ZeroRun, tensor: TensorFact) -> bool:
    to_next_row = -(run.begin - tensor.begin) % max(1, tensor.row_bytes())
    return run.begin > tensor.begin and to_next_row > _ROW_SLACK_BYTES


def _ends_in_row(run: ZeroRun, tensor: TensorFact) -> bool:
    since_row = (run.end - tensor.begin) % max(1, tensor.row_bytes())
    return run.end < tensor.end and since_row > _ROW_SLACK_BYTES
