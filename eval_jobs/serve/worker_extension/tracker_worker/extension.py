"""Replaces the weights of the model in a running vLLM worker (`--worker-extension-cls`), with checks before and after.

`tracker_check` checks everything and changes nothing. `tracker_load` reads the files that the check opened, and hashes
the same bytes that it passes to the model. Both are called through POST /collective_rpc.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch

from .weight_files import BadWeights, TensorEntry, check_complete, layout_digest, read_entries, weight_names

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}

CHUNK_BYTES = 8 << 20
"""A multiple of every item size."""

# vLLM's attention on a CPU with AMX uses its tiles, but Linux kills a process (SIGILL) that did not request them first.
# oneDNN requests them before its first large product; a small model gets to the attention without one.
if hasattr(torch.cpu, "_init_amx"):  # an older torch lacks it
    torch.cpu._init_amx()  # noqa: SLF001 - torch has no public function for it


@dataclass(frozen=True, kw_only=True)
class _OpenFile:
    file: BinaryIO
    name: str
    entries: tuple[TensorEntry, ...]
    state: tuple[int, ...]

    def demand_unchanged(self) -> None:
        if _state(self.file) != self.state:
            raise BadWeights(f"{self.name} changed while being read")


class StrictLoading:
    """Methods that vLLM adds to its worker."""

    _tracker_files: tuple[_OpenFile, ...] = ()

    def tracker_check(self, path: str, digest: str, layout: str) -> dict[str, Any]:
        """Check the weights in the folder `path`, and keep its files open for `tracker_load`.

        Args:
            path: absolute path of a model folder.
            digest: expected hex SHA-256 of the concatenated bytes of its files.
            layout: expected `layout_digest` of its tensors.

        Returns:
            `refused`: why the weights must not be loaded, "" if they may.
        """
        self._tracker_close()
        try:
            self._tracker_files = _opened(Path(path), layout)
            found = _checked_digest(self._tracker_files)
            if found != digest:
                raise BadWeights(f"the weights in {path} changed: SHA-256 is {found} (expected {digest})")
        except (BadWeights, OSError) as error:
            self._tracker_close()
            return {"refused": str(error)}
        return {"refused": ""}

    def tracker_load(self) -> dict[str, Any]:
        """Load the weights that `tracker_check` accepted, and return the digest of the bytes that were loaded.

        Raises:
            BadWeights: the files changed after the check, or a part of the model kept its old weights.
        """
        files, self._tracker_files = self._tracker_files, ()
        digest, count = hashlib.sha256(), 0

        def weights() -> Iterator[tuple[str, torch.Tensor]]:
            nonlocal count
            for opened in files:
                for name, tensor in _read(opened, digest):
                    count += 1
                    yield name, tensor

        try:
            for opened in files:
                opened.demand_unchanged()
            model = self.model_runner.get_model()  # type: ignore[attr-defined]
            packed = _packed(model)
            self.reload_weights(weights_iterator=weights())  # type: ignore[attr-defined]
            repacked = _pack_again(model, packed)
        finally:
            for opened in files:
                opened.file.close()
        return {"digest": digest.hexdigest(), "tensors": count, "repacked": repacked}

    def _tracker_close(self) -> None:
        files, self._tracker_files = self._tracker_files, ()
        for opened in files:
            opened.file.close()


# --- private: files


def _opened(folder: Path, layout: str) -> tuple[_OpenFile, ...]:
    """Open all weight files, or none."""
    files: list[_OpenFile] = []
    with ExitStack() as closing:
        for name in weight_names(folder):
            file = closing.enter_context((folder / name).open("rb"))
            state = _state(file)
            files.append(_OpenFile(file=file, name=name, entries=read_entries(file, name), state=state))
        tensors = check_complete(folder, {f.name: f.entries for f in files})
        if layout_digest({name: (entry.dtype, entry.shape) for name, entry in tensors.items()}) != layout:
            raise BadWeights(f"the tensors in {folder} changed since they were compared")
        unknown = sorted({entry.dtype for entry in tensors.values()} - set(DTYPES))
        if unknown:
            raise BadWeights(f"unsupported tensor types in {folder}: {', '.join(unknown)}")
        closing.pop_all()  # without an error, they stay open
    return tuple(files)


def _state(file: BinaryIO) -> tuple[int, ...]:
    # Not the inode's change time (ctime): it changes when a trainer deletes its own name of a hard-linked file.
    found = os.fstat(file.fileno())
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _checked_digest(files: tuple[_OpenFile, ...]) -> str:
    digest = hashlib.sha256()
    buffer = bytearray(CHUNK_BYTES)
    for opened in files:
        _digest_header(opened, digest)
        for entry in opened.entries:
            left = entry.end - entry.begin
            while left:
                chunk = memoryview(buffer)[: min(left, CHUNK_BYTES)]
                _read_exactly(opened, chunk)
                digest.update(chunk)
                if not torch.isfinite(torch.frombuffer(chunk, dtype=DTYPES[entry.dtype])).all():
                    raise BadWeights(f"the tensor {entry.name} in {opened.name} contains NaN or Inf")
                left -= len(chunk)
        opened.demand_unchanged()
    return digest.hexdigest()


def _read(opened: _OpenFile, digest: hashlib._Hash) -> Iterator[tuple[str, torch.Tensor]]:
    _digest_header(opened, digest)
    for entry in opened.entries:
        data = bytearray(entry.end - entry.begin)
        _read_exactly(opened, memoryview(data))
        digest.update(data)
        dtype = DTYPES[entry.dtype]
        flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
        yield entry.name, flat.view(entry.shape)


def _digest_header(opened: _OpenFile, digest: hashlib._Hash) -> None:
    """Seek to the first tensor, and hash the bytes before it."""
    opened.file.seek(0)
    head = opened.file.read(8)
    digest.update(head)
    digest.update(opened.file.read(int.from_bytes(head, "little")))


def _read_exactly(opened: _OpenFile, chunk: memoryview) -> None:
    done = 0
    while done < len(chunk):
        count = opened.file.readinto(chunk[done:])  # type: ignore[attr-defined]
        if not count:
            raise BadWeights(f"{opened.name} was truncated while being read")
        done += count


# --- private: second copies of weights

# On a CPU, vLLM packs the weights of a layer into `cpu_linear`. Reloading repacks only layers whose tensors it loads.
# An output layer that is tied to the embedding has no tensors of its own, so it would keep using the old weights.


def _packed(model: torch.nn.Module) -> dict[str, Any]:
    found = {name: getattr(module, "cpu_linear", None) for name, module in model.named_modules()}
    return {name: packed for name, packed in found.items() if packed not in (None, torch.nn.functional.linear)}


def _pack_again(model: torch.nn.Module, before: dict[str, Any]) -> list[str]:
    """Repack the copies that reloading left unchanged, and return the names of their modules."""
    old = [name for name, packed in _packed(model).items() if before.get(name) is packed]
    for name in old:
        module = model.get_submodule(name)
        weight = getattr(module, "weight", None)
        if weight is None or not weight.numel():
            raise BadWeights(f"the module {name} still has a copy of its old weights")
        module.quant_method.process_weights_after_loading(module)
    return old
