"""Safetensors files without torch: the header, and one pass over the weights for their digest and for NaN.

A file is 8 bytes little-endian length of the header, the header in JSON, then the tensors one after the other
(https://huggingface.co/docs/safetensors/index#format).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from eval_jobs.errors import CheckpointIncomplete, CheckpointUnreadable
from tracker.domain.listing import Broken, Header

MAX_HEADER_BYTES = 100_000_000
"""As in the reference implementation: a longer header is an attack or garbage."""

CHUNK_BYTES = 8 << 20
"""Memory that a pass over the weights takes; a multiple of every item size."""

ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _NotFinite:
    """How NaN and Inf look in the bits of a type: without its sign an item is at least `limit`."""

    item: str
    mask: int
    limit: int


_NOT_FINITE = {
    "F64": _NotFinite(item="<u8", mask=0x7FFF_FFFF_FFFF_FFFF, limit=0x7FF0_0000_0000_0000),
    "F32": _NotFinite(item="<u4", mask=0x7FFF_FFFF, limit=0x7F80_0000),
    "C64": _NotFinite(item="<u4", mask=0x7FFF_FFFF, limit=0x7F80_0000),
    "F16": _NotFinite(item="<u2", mask=0x7FFF, limit=0x7C00),
    "BF16": _NotFinite(item="<u2", mask=0x7FFF, limit=0x7F80),
    "F8_E5M2": _NotFinite(item="u1", mask=0x7F, limit=0x7C),
    "F8_E4M3": _NotFinite(item="u1", mask=0x7F, limit=0x7F),
}
"""Other types hold integers or scales and cannot be NaN, or are packed."""


@dataclass(frozen=True, kw_only=True)
class _Tensor:
    name: str
    dtype: str
    begin: int
    end: int


def read_header(path: Path) -> Header | Broken:
    """Return what the header says, or why it says nothing. Reads only the header.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            start, tensors = _read_tensors(file, path.name)
    except CheckpointIncomplete as error:
        return Broken(code=error.code, text=error.message.removeprefix(f"{path.name} "))
    except CheckpointUnreadable as error:
        return Broken(code=error.code, text=error.message.removeprefix(f"{path.name} "))
    end = start + max((t.end for t in tensors), default=0)
    return Header(end=end, tensors=frozenset(t.name for t in tensors))


def digest_weights(paths: Iterable[Path]) -> str:
    """Return the hex SHA-256 of the files' bytes in the order given, as `cat FILES | sha256sum` does.

    The same pass looks at every floating-point number, so the whole file is read once, in chunks.

    Raises:
        CheckpointUnreadable: a tensor holds NaN or Inf, or a header is none.
        CheckpointIncomplete: a file is shorter or longer than its header says.
        OSError: a file cannot be read.
    """
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(CHUNK_BYTES))
    for path in paths:
        with path.open("rb", buffering=0) as file:
            _, tensors = _read_tensors(file, path.name)
            _digest_head(file, digest)
            for tensor in tensors:
                _digest_tensor(file, tensor, digest, buffer)
            if file.read(1):
                raise CheckpointIncomplete(f"{path.name} is longer than its header says", hint=_SAVE_AGAIN)
    return digest.hexdigest()


# --- private

_SAVE_AGAIN = "save the checkpoint again; this file was damaged or is still being written"


def _read_tensors(file: BinaryIO, name: str) -> tuple[int, list[_Tensor]]:
    """Return where the tensors' bytes start and the tensors in their order in the file."""
    head = file.read(8)
    if len(head) < 8:
        raise CheckpointIncomplete(f"{name} is {len(head)} bytes long, too short for a header", hint=_SAVE_AGAIN)
    length = int.from_bytes(head, "little")
    if length > MAX_HEADER_BYTES:
        raise CheckpointUnreadable(f"{name} has no safetensors header: its length would be {length}", hint=_SAVE_AGAIN)
    raw = file.read(length)
    if len(raw) < length:
        raise CheckpointIncomplete(f"{name} ends inside its header", hint=_SAVE_AGAIN)
    try:
        return 8 + length, _parse(raw)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CheckpointUnreadable(f"{name} has a broken header: {error}", hint=_SAVE_AGAIN) from error


def _parse(raw: bytes) -> list[_Tensor]:
    document = json.loads(raw)
    if not isinstance(document, dict):
        raise TypeError("it is no JSON object")
    document.pop("__metadata__", None)
    tensors = sorted((_tensor(name, entry) for name, entry in document.items()), key=lambda t: (t.begin, t.end))
    expected = 0
    for tensor in tensors:
        if tensor.begin != expected:
            raise ValueError(f"tensor {tensor.name} begins at {tensor.begin} instead of {expected}")
        expected = tensor.end
    return tensors


def _tensor(name: str, entry: Mapping[str, object]) -> _Tensor:
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or not isinstance(shape, list) or not isinstance(offsets, list):
        raise TypeError(f"tensor {name} is described by other types than dtype, shape and data_offsets should have")
    begin, end = (int(offset) for offset in offsets)
    size = ITEM_BYTES.get(dtype)
    if end < begin or (size is not None and end - begin != size * math.prod(int(n) for n in shape)):
        raise ValueError(f"tensor {name} of shape {shape} and type {dtype} cannot fill bytes {begin} to {end}")
    return _Tensor(name=name, dtype=dtype, begin=begin, end=end)


def _digest_head(file: BinaryIO, digest: hashlib._Hash) -> None:
    length = file.tell()
    file.seek(0)
    digest.update(file.read(length))


def _digest_tensor(file: BinaryIO, tensor: _Tensor, digest: hashlib._Hash, buffer: memoryview) -> None:
    left = tensor.end - tensor.begin
    while left:
        chunk = buffer[: min(left, len(buffer))]
        _read_exactly(file, chunk)
        digest.update(chunk)
        _check_finite(chunk, tensor, Path(file.name).name)
        left -= len(chunk)


def _read_exactly(file: BinaryIO, chunk: memoryview) -> None:
    done = 0
    while done < len(chunk):
        count = file.readinto(chunk[done:])  # type: ignore[attr-defined]
        if not count:
            raise CheckpointIncomplete(f"{Path(file.name).name} became shorter while it was read", hint=_SAVE_AGAIN)
        done += count


def _check_finite(chunk: memoryview, tensor: _Tensor, file_name: str) -> None:
    bits = _NOT_FINITE.get(tensor.dtype)
    if bits is None:
        return
    items = np.frombuffer(chunk, dtype=bits.item) & bits.mask
    if items.max() >= bits.limit:
        raise CheckpointUnreadable(
            f"tensor {tensor.name} in {file_name} holds NaN or Inf",
            hint="the training has diverged: look at the loss and gradient norm before this step",
        )
