"""Safetensors files without torch: the header, and one pass over the weights for their digest, NaN and zeros.

A file is the length of the header (8 bytes, little-endian), the header in JSON, then the tensors without gaps
(https://huggingface.co/docs/safetensors/index#format).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

import numpy as np

from eval_jobs.errors import CheckpointIncomplete, CheckpointUnreadable
from eval_jobs.host.bounded.files import open_regular
from eval_jobs.serve.worker_extension.tracker_worker.weight_files import MAX_HEADER_BYTES, parse_header
from tracker.adapters.checkpoints.files.zero_blocks import ZeroScan, is_zero
from tracker.domain.checkpoints.listing import Broken, Header
from tracker.domain.checkpoints.raw.tensors import BLOCK_BYTES, TensorFact, WeightsContent, ZeroRun

CHUNK_BYTES = 8 << 20
"""Memory of a pass over the weights; a multiple of every item size."""


_NOT_FINITE = {
    "F64": ("<u8", 0x7FFF_FFFF_FFFF_FFFF, 0x7FF0_0000_0000_0000),
    "F32": ("<u4", 0x7FFF_FFFF, 0x7F80_0000),
    "C64": ("<u4", 0x7FFF_FFFF, 0x7F80_0000),
    "F16": ("<u2", 0x7FFF, 0x7C00),
    "BF16": ("<u2", 0x7FFF, 0x7F80),
    "F8_E5M2": ("u1", 0x7F, 0x7C),
    "F8_E4M3": ("u1", 0x7F, 0x7F),
}
"""Of a dtype: type of an item, the mask of its bits without the sign, and the value from which these are NaN or Inf.

Other dtypes hold integers or scales and cannot be NaN, or are packed.
"""


def read_header(path: Path) -> Header | Broken:
    """Return the header of a file, or why it is invalid. Reads only the header.

    Raises:
        OSError: the file cannot be read.
    """
    with open_regular(path) as file:
        return header_in(file, path.name)


def header_end(head: bytes) -> int:
    """Return where the header of a file ends that begins with `head`; 0: it has none."""
    length = int.from_bytes(head[:8], "little")
    if length <= MAX_HEADER_BYTES:
        return 8 + length
    return 0


def header_in(file: BinaryIO, name: str) -> Header | Broken:
    """Return the header of an open file called `name`, positioned at its start, or why it is invalid.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        start, tensors = _read_tensors(file, name)
    except (CheckpointIncomplete, CheckpointUnreadable) as error:
        return Broken(code=error.code, text=error.message.removeprefix(f"{name} "))
    end = max((t.end for t in tensors), default=start)
    return Header(end=end, tensors=frozenset(t.name for t in tensors))


def read_tensors(paths: Iterable[Path]) -> tuple[TensorFact, ...]:
    """Return all tensors of some files in the order of the files and of their bytes. Reads only the headers.

    Raises:
        CheckpointUnreadable, CheckpointIncomplete: a header is invalid.
        OSError: a file cannot be read.
    """
    found: list[TensorFact] = []
    for path in paths:
        with open_regular(path) as file:
            found += _read_tensors(file, path.name)[1]
    return tuple(found)


def read_weights(paths: Iterable[Path]) -> WeightsContent:
    """Return the digest of the files' bytes in the order given, their tensors, and where they hold only zeros.

    The digest is the hex SHA-256 that `cat FILES | sha256sum` prints.
    The same pass checks every floating-point number, so each file is read once, in chunks.

    Raises:
        CheckpointUnreadable: a tensor holds NaN or Inf, or a header is invalid.
        CheckpointIncomplete: a file is shorter or longer than its header declares.
        OSError: a file cannot be read.
    """
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(CHUNK_BYTES))
    found: list[TensorFact] = []
    runs: list[ZeroRun] = []
    small: set[str] = set()
    for path in paths:
        with path.open("rb", buffering=0) as file:
            start, tensors = _read_tensors(file, path.name)
            _digest_head(file, digest)
            zeros = ZeroScan(start)
            for tensor in tensors:
                if _digest_tensor(file, tensor, digest, buffer, zeros):
                    small.add(tensor.name)
            if file.read(1):
                raise CheckpointIncomplete(f"{path.name} is longer than its header declares", hint=_SAVE_AGAIN)
            runs += zeros.runs(file, path.name)
        found += tensors
    whole = {t.name for t in found for run in runs if _holds(run, t)} if runs else set()
    return WeightsContent(
        digest=digest.hexdigest(), tensors=tuple(found), zero_runs=tuple(runs), zeros=frozenset(small | whole)
    )


_SAVE_AGAIN = "save the checkpoint again; this file is damaged or still being written"


def _read_tensors(file: BinaryIO, name: str) -> tuple[int, list[TensorFact]]:
    """Return where the tensors' bytes start and the tensors in their order in the file."""
    head = file.read(8)
    if len(head) < 8:
        raise CheckpointIncomplete(f"{name} is {len(head)} bytes long, too short for a header", hint=_SAVE_AGAIN)
    length = int.from_bytes(head, "little")
    if length > MAX_HEADER_BYTES:
        raise CheckpointUnreadable(f"{name} has no safetensors header (length {length})", hint=_SAVE_AGAIN)
    raw = file.read(length)
    if len(raw) < length:
        raise CheckpointIncomplete(f"{name} ends inside its header", hint=_SAVE_AGAIN)
    try:
        entries = parse_header(raw, may_be_unknown=True)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CheckpointUnreadable(f"{name} has an invalid header: {error}", hint=_SAVE_AGAIN) from error
    return 8 + length, [TensorFact(**asdict(entry), file=name) for entry in entries]


def _digest_head(file: BinaryIO, digest: hashlib._Hash) -> None:
    length = file.tell()
    file.seek(0)
    digest.update(file.read(length))


def _digest_tensor(
    file: BinaryIO, tensor: TensorFact, digest: hashlib._Hash, buffer: memoryview, zeros: ZeroScan
) -> bool:
    """Return whether the tensor is too small to fill a block and holds only zeros."""
    left = tensor.end - tensor.begin
    is_small = 0 < left < 2 * BLOCK_BYTES
    while left:
        chunk = buffer[: min(left, len(buffer))]
        _read_exactly(file, chunk)
        digest.update(chunk)
        _check_finite(chunk, tensor, Path(file.name).name)
        zeros.feed(chunk)
        is_small = is_small and is_zero(chunk)
        left -= len(chunk)
    return is_small


def _holds(run: ZeroRun, tensor: TensorFact) -> bool:
    return run.file == tensor.file and run.begin <= tensor.begin < tensor.end <= run.end


def _read_exactly(file: BinaryIO, chunk: memoryview) -> None:
    done = 0
    while done < len(chunk):
        count = file.readinto(chunk[done:])  # type: ignore[attr-defined]
        if not count:
            raise CheckpointIncomplete(f"{Path(file.name).name} was truncated while being read", hint=_SAVE_AGAIN)
        done += count


def _check_finite(chunk: memoryview, tensor: TensorFact, file_name: str) -> None:
    if tensor.dtype not in _NOT_FINITE:
        return
    item, mask, limit = _NOT_FINITE[tensor.dtype]
    items = np.frombuffer(chunk, dtype=item) & mask
    if items.max() >= limit:
        raise CheckpointUnreadable(
            f"tensor {tensor.name} in {file_name} contains NaN or Inf",
            hint="check the loss and gradient norm before this step: the training diverged",
        )
