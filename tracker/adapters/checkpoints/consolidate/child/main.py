"""Converts a sharded or pickled training state to safetensors. A separate program, run by `consolidator`.

    PYTHON -P child/main.py  <  one line of JSON, then nothing; the end of its input ends it

The interpreter may be of another environment, so nothing of this package is imported. The frameworks' own tools read
the state: torch.distributed.checkpoint, DeepSpeed's zero_to_fp32, torch.load. Unless `allow_pickle` is set, torch.load
accepts only torch's list of harmless types (TORCH_FORCE_WEIGHTS_ONLY_LOAD, set by the parent). The index of a DCP
folder may contain only the parent's list of names. Weights are written shard by shard, so that memory holds one shard
and not the model, as far as the tool allows. Responses are lines of JSON on the original standard output; the output
of the libraries goes to the log.
"""

from __future__ import annotations

import enum
import gc
import json
import os
import pickle
import re
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

NICENESS = 10
SHARD_SIZE = "5GB"

Answer = dict[str, Any]


class ConsolidationRefused(Exception):
    """A failure, with the kind that the parent maps to an error."""

    def __init__(self, kind: str, message: str, *, needed_bytes: int = 0) -> None:
        super().__init__(message)
        self.kind = kind
        self.needed_bytes = needed_bytes


@dataclass(frozen=True)
class Weight:
    """One tensor that is loaded on demand."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    load: Callable[[], torch.Tensor]


def main() -> None:
    """Process one request."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    os.nice(NICENESS)
    try:
        answer = consolidate(request, lambda note: _send(answers, {"type": "progress", "note": note}))
    except BaseException as error:  # noqa: BLE001 - the parent is told whatever it was
        traceback.print_exc()
        answer = _failure(error, request["no_space"])
    _send(answers, answer)


def consolidate(request: Mapping[str, Any], progress: Callable[[str], None]) -> Answer:
    """Write the safetensors files to `request["out"]` and return the response.

    Args:
        request: `kind`, `state` (folder with the state), `files` (torch: its files), `keys` (dcp: model's name -> name
            in the state), `allowed` (dcp: names that its index may contain), `out`, `stem` (of the files to write),
            `config` (content of config.json), `allow_pickle`, `no_space` (error numbers of a full disk).
        progress: called with a note on the current phase.
    """
    _demand_torch()
    progress("loading")
    weights = _without_tied(_READERS[request["kind"]](request), request["config"])
    if not weights:
        raise ConsolidationRefused("unreadable", "no tensors found")
    dtype, source = _dtype(request["config"])
    targets = {name: _target(weight.dtype, dtype) for name, weight in weights.items()}
    files = _write(weights, targets, request, progress)
    kinds = sorted({str(targets[name]).removeprefix("torch.") for name in weights})
    # Torch reads a `.bin` under weights_only. It counts as unpickled all the same, because it needs `allow_pickle`.
    unpickled = request["kind"] == "torch" or "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ
    dtypes = f"{', '.join(kinds)} ({source})"
    return {"type": "done", "files": files, "dtype": dtypes, "tensors": len(weights), "unpickled": unpickled}


def _demand_torch() -> None:
    """Require torch 2.6: before it, a file could run code even under weights_only (CVE-2025-32434)."""
    import torch

    if tuple(int(part) for part in re.findall(r"[0-9]+", torch.__version__)[:2]) < (2, 6):
        raise ConsolidationRefused("missing", f"torch {torch.__version__} is too old (2.6 or newer required)")


def _read_torch(request: Mapping[str, Any]) -> dict[str, Weight]:
    import torch

    weights: dict[str, Weight] = {}
    for name in request["files"]:
        path = Path(request["state"], name)
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        if not isinstance(state, Mapping) or not all(torch.is_tensor(value) for value in state.values()):
            raise ConsolidationRefused("unreadable", f"{name} contains values that are not named tensors")
        weights |= {_model_name(key): _of_tensor(tensor) for key, tensor in state.items()}
    return weights


def _read_dcp(request: Mapping[str, Any]) -> dict[str, Weight]:
    import torch
    import torch.distributed.checkpoint as dcp

    allowed = frozenset(request["allowed"])

    class Index(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - as in the base class
            if f"{module}.{name}" not in allowed:
                raise pickle.UnpicklingError(f"Unsupported global: GLOBAL {module}.{name}")
            if (module, name) == ("builtins", "getattr"):
                return _member
            return super().find_class(module, name)

    class Reader(dcp.FileSystemReader):  # type: ignore[misc]
        """Torch's reader with a restricted index: torch itself would unpickle any name in it."""

        known: Any = None

        def read_metadata(self, *_: object, **__: object) -> Any:  # noqa: ANN401 - torch's own type
            if self.known is None:
                with Path(request["state"], ".metadata").open("rb") as file:
                    self.known = Index(file).load()
                self.known.storage_meta = dcp.metadata.StorageMeta(load_id=self.load_id)
            return self.known

    reader = Reader(request["state"])
    entries = reader.read_metadata().state_dict_metadata

    def loader(key: str) -> Callable[[], Any]:
        def load() -> Any:  # noqa: ANN401 - a tensor
            state = {key: torch.empty(entries[key].size, dtype=entries[key].properties.dtype)}
            dcp.load(state, storage_reader=reader, no_dist=True)
            return state[key]

        return load

    return {
        name: Weight(tuple(entries[key].size), entries[key].properties.dtype, loader(key))
        for name, key in request["keys"].items()
    }


def _member(owner: object, name: str) -> object:
    """Return a member of an enum, the only allowed use of getattr. Python before 3.11.4 pickles members this way."""
    if not isinstance(owner, enum.EnumMeta) or name not in owner.__members__:
        raise pickle.UnpicklingError("Unsupported global: GLOBAL builtins.getattr")
    return owner[name]


def _read_zero(request: Mapping[str, Any]) -> dict[str, Weight]:
    import torch
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils import zero_to_fp32
    from deepspeed.utils.tensor_fragment import fragment_address

    torch.serialization.add_safe_globals(
        [ZeroStageEnum, fragment_address, LossScaler, DynamicLossScaler, (_member, "builtins.getattr")]
    )
    folder = Path(request["state"])

    def read() -> Mapping[str, Any]:
        found: Mapping[str, Any] = zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(
            str(folder.parent), tag=folder.name, lazy_mode=True
        )
        return found

    try:
        state = read()
    except pickle.UnpicklingError:
        if not request["allow_pickle"]:
            raise
        os.environ.pop("TORCH_FORCE_WEIGHTS_ONLY_LOAD", None)
        state = read()
    return {_model_name(name): _of_tensor(tensor) for name, tensor in state.items()}


_READERS = {"torch": _read_torch, "dcp": _read_dcp, "zero": _read_zero}


def _of_tensor(tensor: Any) -> Weight:  # noqa: ANN401 - a tensor, or DeepSpeed's stand-in for one
    return Weight(tuple(tensor.shape), tensor.dtype, tensor.contiguous)


def _model_name(name: str) -> str:
    return re.sub(r"(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.", "", name).removeprefix("module.")


def _without_tied(weights: dict[str, Weight], config: Mapping[str, Any]) -> dict[str, Weight]:
    """Drop an output layer that is the embedding under a second name, as save_pretrained does.

    Only if config.json ties them: otherwise an engine looks for both tensors, and keeping both does no harm.
    """
    text = config.get("text_config") or {}
    dropped: set[str] = set()
    if config.get("tie_word_embeddings", text.get("tie_word_embeddings")):
        dropped = {name for name in weights if name.endswith("lm_head.weight") and _is_copied(name, weights)}
    return {name: weight for name, weight in sorted(weights.items()) if name not in dropped}


def _is_copied(name: str, weights: Mapping[str, Weight]) -> bool:
    import torch

    head = weights[name]
    others = [w for n, w in weights.items() if n != name and re.search(r"embed|wte", n) and w.shape == head.shape]
    return any(torch.equal(head.load(), other.load()) for other in others)


def _dtype(config: Mapping[str, Any]) -> tuple[Any, str]:
    import torch

    text = config.get("text_config") or {}
    for document in (config, text):
        for key in ("dtype", "torch_dtype"):
            name = str(document.get(key) or "").removeprefix("torch.")
            if name in ("float32", "float16", "bfloat16", "float64"):
                return getattr(torch, name), f"{key} in config.json"
    return None, "as stored"


def _target(stored: Any, wanted: Any) -> Any:  # noqa: ANN401 - types of torch
    """Return the dtype to write: integers, masks and 8-bit numbers, which have separate scales, keep theirs."""
    is_plain = str(stored) in {"torch.float64", "torch.float32", "torch.float16", "torch.bfloat16"}
    if wanted is not None and is_plain:
        return wanted
    return stored


def _write(
    weights: Mapping[str, Weight],
    targets: Mapping[str, Any],
    request: Mapping[str, Any],
    progress: Callable[[str], None],
) -> list[str]:
    import torch
    from huggingface_hub import split_torch_state_dict_into_shards
    from safetensors.torch import save_file

    out, stem = Path(request["out"]), request["stem"]
    empty = {name: torch.empty(weight.shape, dtype=targets[name], device="meta") for name, weight in weights.items()}
    split = split_torch_state_dict_into_shards(
        empty, filename_pattern=f"{stem}{{suffix}}.safetensors", max_shard_size=SHARD_SIZE
    )
    total = sum(tensor.numel() * tensor.element_size() for tensor in empty.values())
    free = shutil.disk_usage(out).free
    needed = total + (total >> 6) + (16 << 20)
    if free < needed:
        message = f"{needed >> 20} MiB required, {free >> 20} MiB free"
        raise ConsolidationRefused("disk", message, needed_bytes=needed)
    for number, (file, names) in enumerate(split.filename_to_tensors.items(), 1):
        progress(f"writing {number}/{len(split.filename_to_tensors)}")
        # Copies: two names may share memory, which the format does not support.
        shard = {name: weights[name].load().to(targets[name], copy=True).contiguous() for name in names}
        save_file(shard, out / file, metadata={"format": "pt"})
        with (out / file).open("rb") as written:
            os.fsync(written.fileno())
        del shard
        gc.collect()
    files = sorted(split.filename_to_tensors)
    if split.is_sharded:
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(split.tensor_to_filename.items()))}
        (out / f"{stem}.safetensors.index.json").write_text(json.dumps(index, indent=2), encoding="utf-8")
        files.append(f"{stem}.safetensors.index.json")
    return files


def _failure(error: BaseException, no_space: Sequence[int]) -> Answer:
    text = f"{type(error).__name__}: {error}".strip()
    kind = "failed"
    if isinstance(error, ConsolidationRefused):
        kind, text = error.kind, str(error)
    elif isinstance(error, ImportError):
        kind, text = "missing", str(error)
    elif isinstance(error, pickle.UnpicklingError):
        found = re.search(r"GLOBAL (\S+)", text)
        kind, text = "unsafe", found.group(1) if found else text[:300]
    elif isinstance(error, MemoryError) or "can't allocate memory" in text:
        kind = "memory"
    elif getattr(error, "errno", None) in no_space or _codes_in(text) & set(no_space):
        kind = "disk"
    elif isinstance(error, EOFError) or re.search(r"PytorchStreamReader|_optim_states|invalid load key", text):
        kind = "unreadable"
    needed = error.needed_bytes if isinstance(error, ConsolidationRefused) else 0
    return {"type": "error", "kind": kind, "message": text[:600], "needed_bytes": needed}


def _codes_in(text: str) -> set[int]:
    """Return the error numbers that the native parts of torch and safetensors write into their messages."""
    return {int(code) for code in re.findall(r"(?:code: |os error )(\d+)\b", text)}


def _send(answers: IO[str], answer: Answer) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _end_with_the_parent() -> None:
    """Kill the process group at the end of standard input: the system closes the pipe if the parent is killed."""
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
