"""Reads the pickles that describe sharded states, without torch and without running anything.

`.metadata` is a pickle, and a pickle may call anything that it names. This reader accepts the few names that torch
itself writes, replaces each with an inert record, and refuses any other. A large index, whose objects could fill the
memory, is read by a process of its own: `python -m tracker.adapters.checkpoints.files.dcp_index PATH`.
"""

import io
import json
import os
import pickle
import re
import resource
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from eval_jobs import limits
from eval_jobs.errors import CheckpointIncomplete, CheckpointUnreadable, CheckpointUnsafe
from eval_jobs.host.bounded.files import open_regular, read_bytes
from eval_jobs.host.bounded.json_text import TooLarge, parse_json
from eval_jobs.host.secrets import passed_on
from tracker.domain.checkpoints.listing import Broken, StateIndex

_METADATA = "torch.distributed.checkpoint.metadata"

ALLOWED = (
    *(
        f"{_METADATA}.{name}"
        for name in (
            "Metadata",
            "MetadataIndex",
            "TensorStorageMetadata",
            "BytesStorageMetadata",
            "ChunkStorageMetadata",
            "TensorProperties",
            "StorageMeta",
            "_MEM_FORMAT_ENCODING",
        )
    ),
    "torch.distributed.checkpoint.filesystem._StorageInfo",
    "torch.serialization._get_layout",
    "torch.Size",
    *(f"torch.{name}" for name in ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")),
    *(f"torch.{name}" for name in ("int64", "int32", "int16", "int8", "uint8", "bool", "complex64")),
    "collections.OrderedDict",
    "pathlib.PosixPath",
    "builtins.getattr",  # of a member of an enum, as pickled by Python before 3.11.4; the readers allow no other use
)
"""All names that an index may contain; the conversion uses the same list."""

MAX_OBJECTS = 2_000_000
"""Of a pickle that is read in this process: each takes some 60 bytes, and most are written as a single byte."""
MAX_PICKLE_BYTES = 8 << 20
"""Of a pickle that is read in this process."""
_OBJECTS = b"]}\x8f\x85\x86\x87tldRb\x81"
"""Opcodes that make or fill an object."""

CHILD_TIMEOUT_S = 60.0

_FILE = re.compile(r"[\w.-]+\.distcp$")
_WRAPPERS = re.compile(r"(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
"""In names of tensors: what compilation and wrappers add."""
_ROOTS = (("model",), ("state_dict",), ("module",), ("app", "model"), ())
"""Where programs put the model's tensors in the state: `{"model": ..., "optimizer": ...}`, or at the top level."""


def read_world_size(path: Path) -> int:
    """Return the number of ranks in a model state of DeepSpeed; 0: unknown.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        with open_archive(path) as archive:
            (entry,) = (entry for entry in archive.infolist() if entry.filename.endswith("/data.pkl"))
            with archive.open(entry) as file:
                content = file.read(MAX_PICKLE_BYTES)
            if not _is_small(content):
                return 0
            state = _Blind(io.BytesIO(content)).load()
        size = state.get("dp_world_size")
    except OSError:
        raise
    except Exception:  # noqa: BLE001 - a damaged pickle raises nearly anything
        return 0
    if isinstance(size, int):
        return size
    return 0


def read_index(path: Path) -> StateIndex | Broken:
    """Return which files of the folder hold the model, and its tensors; or why the index cannot be used."""
    try:
        status = path.stat()
        return _read(path, status.st_size, status.st_mtime_ns)
    except OSError as error:
        return Broken(code=CheckpointIncomplete.code, text=f"cannot be read: {error.strerror}")


@contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a file of torch.save.

    Raises:
        TooLarge: it has too many parts.
        zipfile.BadZipFile, ValueError, NotImplementedError: it is not complete.
        OSError: it cannot be read.
    """
    with _Archive(open_regular(path).detach()) as file, zipfile.ZipFile(file) as archive:
        yield archive


def _is_small(content: bytes) -> bool:
    return len(content) < MAX_PICKLE_BYTES and sum(map(content.count, _OBJECTS)) <= MAX_OBJECTS


def _parsed(content: bytes) -> StateIndex | Broken:
    try:
        return _index(_Reader(io.BytesIO(content)).load())
    except _Foreign as error:
        return Broken(code=CheckpointUnsafe.code, text=f"references {error}, which may run code")
    except Exception as error:  # noqa: BLE001 - a damaged pickle raises nearly anything
        return Broken(code=CheckpointUnreadable.code, text=f"is not a DCP index: {error!r:.200}")


@lru_cache(maxsize=64)  # a damaged index is looked at again and again, and may take seconds
def _read(path: Path, size: int, mtime_ns: int) -> StateIndex | Broken:
    del mtime_ns  # a part of the key: the file has changed
    if size <= MAX_PICKLE_BYTES:
        content = read_bytes(path, limits.STATE_INDEX)
        if _is_small(content):
            return _parsed(content)
    return _read_by_child(path)


def _read_by_child(path: Path) -> StateIndex | Broken:
    command = [sys.executable, "-m", __name__, str(path)]
    environment = passed_on(os.environ)
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=CHILD_TIMEOUT_S, env=environment)
        found = parse_json(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return Broken(code=CheckpointUnreadable.code, text="takes too much memory or time")
    if "code" in found:
        return Broken(**found)
    tensors = {name: tuple(shape) for name, shape in found["tensors"].items()}
    return StateIndex(files=found["files"], tensors=tensors, keys=found["keys"])


def main() -> None:
    """Print the index of the file that is named on the command line, or why it cannot be used, as JSON."""
    with suppress(ValueError):  # a lower limit is set already
        resource.setrlimit(resource.RLIMIT_AS, (limits.STATE_MEMORY.most, limits.STATE_MEMORY.most))
    try:
        found = _parsed(read_bytes(Path(sys.argv[1]), limits.STATE_INDEX))
    except TooLarge as error:
        found = Broken(code=CheckpointUnreadable.code, text=str(error))
    text = json.dumps(asdict(found))
    if len(text) > limits.DOCUMENT.most:
        sys.exit("too many tensors")
    sys.stdout.write(text)


class _Archive(io.BufferedReader):
    """A file whose parts are read up to the size that a table of contents may have."""

    def read(self, size: int | None = -1, /) -> bytes:
        most = limits.ARCHIVE_INDEX.most
        if size is None or size < 0:
            size = most + 1
        content = super().read(min(size, most + 1))
        if len(content) > most:
            raise TooLarge(limits.ARCHIVE_INDEX)
        return content


class _Foreign(Exception):
    """A name that is not in `ALLOWED`, or a persistent object."""


class _Record:
    """Inert stand-in for an object of torch: keeps its arguments or state."""

    def __init__(self, *arguments: object) -> None:
        self.state: Any = arguments

    def __setstate__(self, state: object) -> None:
        self.state = state

    def get(self, name: str) -> Any:  # noqa: ANN401 - it holds what the file says; the caller checks
        if isinstance(self.state, dict):
            return self.state.get(name)
        return None


class _Mapping(dict[object, object]):
    """Stand-in for OrderedDict, which may have attributes."""

    def __setstate__(self, state: object) -> None:
        """Ignore the attributes."""


class _TensorRecord(_Record):
    """Stand-in for TensorStorageMetadata."""


_STANDS_FOR: Mapping[str, type[object]] = {
    "torch.Size": tuple,
    "collections.OrderedDict": _Mapping,
    f"{_METADATA}.TensorStorageMetadata": _TensorRecord,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - as in the base class
        known = f"{module}.{name}"
        if known not in ALLOWED:
            raise _Foreign(known)
        return _STANDS_FOR.get(known, _Record)

    def persistent_load(self, pid: object) -> Any:  # noqa: ANN401 - as in the base class
        raise _Foreign(f"the persistent object {pid!r:.50}")


class _Blind(pickle.Unpickler):
    """Replaces everything that is named with an inert record, and the data of tensors with None."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - as in the base class
        return _STANDS_FOR.get(f"{module}.{name}", _Record)

    def persistent_load(self, pid: object) -> None:
        """Skip the data of a tensor."""


def _index(metadata: _Record) -> StateIndex:
    entries, paths = metadata.get("state_dict_metadata"), metadata.get("planner_data") or {}
    shapes = {key: entry.get("size") for key, entry in entries.items() if isinstance(entry, _TensorRecord)}
    keys = _keys_of_model({key: tuple(paths.get(key, (key,))) for key in shapes})
    tensors = {name: tuple(map(int, shapes[key])) for name, key in keys.items()}
    return StateIndex(files=_files(metadata), tensors=tensors, keys=keys)


def _keys_of_model(places: Mapping[str, tuple[Any, ...]]) -> dict[str, str]:
    """Return the keys of the model's tensors, by tensor name in the model."""
    roots = {place[:-1] for place in places.values()}
    root = next((root for root in _ROOTS if root in roots), None)
    if root is None:
        raise ValueError(f"no model tensors among {sorted(places)[:3]}")
    keys: dict[str, str] = {}
    for key, place in places.items():
        if place[:-1] != root:
            continue
        name = _WRAPPERS.sub("", place[-1]).removeprefix("module.")
        if name in keys:
            raise ValueError("two tensors have the same name")
        keys[name] = key
    return keys


def _files(metadata: _Record) -> dict[str, int]:
    """Return the end of the last tensor of each file, in bytes."""
    files: dict[str, int] = {}
    for info in metadata.get("storage_data").values():
        name = info.get("relative_path")
        if not _FILE.match(name):
            raise ValueError(f"{name!r} is not a file in the folder")
        files[name] = max(files.get(name, 0), int(info.get("offset")) + int(info.get("length")))
    return files


if __name__ == "__main__":
    main()
