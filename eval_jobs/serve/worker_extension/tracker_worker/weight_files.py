"""Finds the files with a model's weights, and parses their headers. Standard library only; reads no tensor data.

A safetensors file is the length of the header in 8 bytes (little-endian), the header in JSON, then the tensors one
after another (https://huggingface.co/docs/safetensors/index#format).
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

MAX_HEADER_BYTES = 32 << 20
"""A longer header is malicious or corrupt: 200,000 tensors take some 25 MB."""
MAX_TENSORS = 200_000
MAX_NAME_CHARS = 1000
MAX_DIGITS = 20
"""As 2**64 has."""

ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}  # fmt: skip


class BadWeights(Exception):
    """The files are not a complete set of weights; the message names the file and the reason."""


@dataclass(frozen=True, kw_only=True)
class TensorEntry:
    """One tensor of a file."""

    name: str
    dtype: str
    """As in the safetensors header, such as `BF16`."""
    shape: tuple[int, ...]
    begin: int
    """Offset of its first byte in the file."""
    end: int


def weight_names(folder: Path) -> tuple[str, ...]:
    """Return the names of the weight files, in the order in which a checkpoint's digest covers them.

    Raises:
        BadWeights: files are missing or unexpected, or the index is invalid.
        OSError: the folder cannot be read.
    """
    present = {path.name for path in folder.iterdir() if path.suffix == ".safetensors"}
    meant = set(_indexed(folder / INDEX).values()) if (folder / INDEX).exists() else {SINGLE}
    if meant - present:
        raise BadWeights(f"no {min(meant - present)} in {folder}")
    if present - meant:
        # A cold start would load it too.
        raise BadWeights(f"unexpected weights file {min(present - meant)} in {folder}")
    return tuple(sorted(meant))


def read_entries(file: BinaryIO, name: str) -> tuple[TensorEntry, ...]:
    """Return the tensors of an open file in the order of their bytes, and check the length of the file.

    Raises:
        BadWeights: the header is invalid, or the file is shorter or longer than the header states.
        OSError: the file cannot be read.
    """
    size = file.seek(0, 2)
    file.seek(0)
    head = file.read(8)
    length = int.from_bytes(head, "little")
    if len(head) < 8 or length > size - 8:
        raise BadWeights(f"{name} ends inside its header")
    if length > MAX_HEADER_BYTES:
        raise BadWeights(f"{name} has no safetensors header (length {length})")
    try:
        entries = parse_header(file.read(length))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadWeights(f"{name} has an invalid header: {error}") from error
    end = max((entry.end for entry in entries), default=8 + length)
    if end != size:
        raise BadWeights(f"{name} is {size} bytes long (expected {end} from its header)")
    return entries


def parse_header(raw: bytes, *, may_be_unknown: bool = False) -> tuple[TensorEntry, ...]:
    """Return the tensors of a header in JSON, in the order of their bytes, with offsets in the file.

    Args:
        raw: the header, without its length.
        may_be_unknown: accept tensors of unknown types, whose size cannot be checked.

    Raises:
        ValueError, TypeError, KeyError, RecursionError: it is invalid.
    """
    if raw.count(b"{") > MAX_TENSORS + 2:
        raise ValueError("too many tensors")
    document = json.loads(raw, parse_int=_size)
    if not isinstance(document, dict):
        raise TypeError("not a JSON object")
    document.pop("__metadata__", None)
    start = 8 + len(raw)
    entries = sorted((_entry(name, value, start) for name, value in document.items()), key=lambda e: (e.begin, e.end))
    expected = start
    for entry in entries:
        if entry.dtype not in ITEM_BYTES and not may_be_unknown:
            raise ValueError(f"tensor {entry.name} has unknown type {entry.dtype}")
        if entry.begin != expected:
            raise ValueError(f"tensor {entry.name} begins at {entry.begin - start} instead of {expected - start}")
        expected = entry.end
    return tuple(entries)


def check_complete(folder: Path, found: Mapping[str, Iterable[TensorEntry]]) -> dict[str, TensorEntry]:
    """Return all tensors by name; `found` maps the files of `weight_names` to their tensors.

    Raises:
        BadWeights: there are no tensors, one is in two files, or the index does not match the files.
        OSError: the index cannot be read.
    """
    tensors: dict[str, TensorEntry] = {}
    places: dict[str, str] = {}
    for file, entries in found.items():
        for entry in entries:
            if entry.name in tensors:
                raise BadWeights(f"the tensor {entry.name} is in both {places[entry.name]} and {file}")
            tensors[entry.name], places[entry.name] = entry, file
    if not tensors:
        raise BadWeights(f"no tensors in {folder}")
    if (folder / INDEX).exists():
        _check_index(_indexed(folder / INDEX), places)
    return tensors


def layout_digest(tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> str:
    """Return the hex SHA-256 of names, types and shapes, independent of how they are split into files."""
    text = json.dumps(sorted((name, dtype, list(shape)) for name, (dtype, shape) in tensors.items()))
    return hashlib.sha256(text.encode()).hexdigest()


# --- private


def _indexed(path: Path) -> dict[str, str]:
    try:
        weight_map = json.loads(path.read_bytes())["weight_map"]
        pairs = {str(tensor): str(file) for tensor, file in weight_map.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadWeights(f"{path.name} has no valid weight map: {error!r}") from error
    if not pairs or any("/" in file or file.startswith(".") for file in pairs.values()):
        raise BadWeights(f"{path.name} does not list files of its folder")
    return pairs


def _check_index(indexed: Mapping[str, str], places: Mapping[str, str]) -> None:
    if indexed == places:
        return
    wrong = min(name for name in indexed.keys() | places.keys() if indexed.get(name) != places.get(name))
    raise BadWeights(
        f"{INDEX} lists {wrong} in {indexed.get(wrong, 'no file')}, but it is in {places.get(wrong, 'no file')}"
    )


def _entry(name: str, value: Mapping[str, object], start: int) -> TensorEntry:
    if len(name) > MAX_NAME_CHARS:
        raise ValueError(f"the name of a tensor has {len(name)} characters")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or not isinstance(shape, list) or not isinstance(offsets, list):
        raise TypeError(f"tensor {name} has a dtype, shape or data_offsets of the wrong type")
    begin, end = (_natural(offset) for offset in offsets)
    sizes = tuple(_natural(size) for size in shape)
    if end < begin or (dtype in ITEM_BYTES and end - begin != ITEM_BYTES[dtype] * math.prod(sizes)):
        raise ValueError(f"tensor {name} of shape {shape} and dtype {dtype} does not fit bytes {begin} to {end}")
    return TensorEntry(name=name, dtype=dtype, shape=sizes, begin=start + begin, end=start + end)


def _size(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a size has {len(digits)} digits")
    return int(digits)


def _natural(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"invalid size {value!r}")
    return value
