"""Fingerprint of a model folder without its weight values: decides whether it can replace another one in an engine.

    resident = fingerprint_of(folder)                   # when an engine starts
    reason = never_swapped(resident, on_cpu=True)       # "": this kind of model can be swapped at all
    reason = obstacle(resident, fingerprint_of(next))   # "": these weights fit what the engine has built

An engine keeps everything but the weights from its start: the shapes, rope_theta, the tokenizer, the chat template.
If any of them differed, outputs would be silently wrong, so any difference requires a cold start. Reads headers and
small files only, in milliseconds.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from eval_jobs import limits
from eval_jobs.errors import CheckpointUnreadable
from eval_jobs.host.bounded.files import file_digest, open_regular, read_bytes
from eval_jobs.host.bounded.json_text import parse_json
from eval_jobs.records.served_files import is_served
from eval_jobs.serve.worker_extension.tracker_worker.weight_files import (
    BadWeights,
    TensorEntry,
    check_complete,
    read_entries,
    weight_names,
)

CONFIG = "config.json"

QUANTISED_BY = ("hf_quant_config.json", "quantize_config.json", "quant_config.json")
"""Files of ModelOpt, GPTQ and AWQ that describe the quantization."""

UNQUANTISED = frozenset({"F64", "F32", "F16", "BF16"})
"""Tensor types that an engine loads without dequantization."""

_NOT_SERVED = frozenset({"transformers_version", "_name_or_path"})
"""Keys of config.json that only describe its origin."""

_HYBRID_WORDS = re.compile(
    r"mamba|(?:^|_)ssm(?:_|$)|recurrent|linear_att|rwkv|short_?conv|conv_l_cache|deltanet|lightning_att"
    r"|hybrid_(?:override|layer|block)|moehybrid|nemotron_?h|falcon_?h1|jamba|zamba|bamba|lfm2|plamo2|phi4flash"
)
"""Not `hybrid` alone: Gemma uses the term for its sliding-window cache."""
_EXPERT_WORDS = re.compile(r"experts|(?:^|_)moe(?:_|$)")
_EXPERT_TENSOR = re.compile(r"\.(?:experts|block_sparse_moe|shared_expert)\.")
_HYBRID_TENSOR = re.compile(r"\.(?:A_log|dt_bias|conv1d|x_proj|dt_proj|time_mix)(?:\.|$)")


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """Content of one model folder, without the values of its weights."""

    tensors: Mapping[str, tuple[str, tuple[int, ...]]]
    """Type and shape of each tensor by name, over all shards."""
    files: Mapping[str, str]
    """Hex SHA-256 of each served file except the weights; config.json without the keys that describe its origin."""
    architecture: str
    """As in config.json, several joined by commas; empty if it names none."""
    quantisation: str
    """Name of the method, empty if not quantized."""
    dtype: str
    """Tensor types, joined by +: `BF16`, `BF16+F32`."""
    has_experts: bool
    is_hybrid: bool
    """Whether it has layers that keep a state instead of keys and values, such as Mamba's."""
    has_own_code: bool
    """Whether config.json refers to Python code for the model."""
    vocab_size: int


def fingerprint_of(folder: Path) -> Fingerprint:
    """Return the fingerprint of a model folder; reads headers and small files, no tensor data.

    Raises:
        CheckpointUnreadable: it is not a complete Hugging Face model folder with safetensors, or cannot be read.
    """
    try:
        entries = _tensors(folder)
        config = _config(folder)
        files = _files(folder, config)
        vocab_size = _vocab_size(config)
    except (BadWeights, OSError, ValueError, RecursionError) as error:
        raise CheckpointUnreadable(
            f"cannot read the model in {folder}: {error}", hint="the model folder is incomplete; evaluate another step"
        ) from error
    return Fingerprint(
        tensors={name: (entry.dtype, entry.shape) for name, entry in entries.items()},
        files=files,
        architecture=",".join(map(str, _list(config.get("architectures")))),
        quantisation=_quantisation(config, files, entries),
        dtype="+".join(sorted({entry.dtype for entry in entries.values()})),
        has_experts=_has_words(_normalised(config), _EXPERT_WORDS) or any(map(_EXPERT_TENSOR.search, entries)),
        is_hybrid=_has_words(_normalised(config), _HYBRID_WORDS) or any(map(_HYBRID_TENSOR.search, entries)),
        has_own_code="auto_map" in config,
        vocab_size=vocab_size,
    )


def obstacle(resident: Fingerprint, candidate: Fingerprint) -> str:
    """Return why `candidate` cannot be swapped into an engine that holds `resident`, "" if it can. Pure."""
    for name in sorted(resident.tensors.keys() | candidate.tensors.keys()):
        before, now = resident.tensors.get(name), candidate.tensors.get(name)
        if before != now:
            return f"the tensor {name} is {_tensor_words(now)}, was {_tensor_words(before)}"
    for name in sorted(resident.files.keys() | candidate.files.keys()):
        if name not in candidate.files:
            return f"{name} is missing"
        if name not in resident.files:
            return f"{name} is new"
        if resident.files[name] != candidate.files[name]:
            return f"{name} differs"
    return ""


def never_swapped(fingerprint: Fingerprint, *, on_cpu: bool) -> str:
    """Return why this kind of model always needs a cold start, "" if it may be swapped. Pure.

    Each kind is known to give wrong outputs silently after a reload, or is not known to reload correctly.
    """
    unknown = sorted({dtype for dtype, _ in fingerprint.tensors.values()} - UNQUANTISED)
    reasons = {
        f"it is quantized ({fingerprint.quantisation})": bool(fingerprint.quantisation),
        f"it has tensors of type {', '.join(unknown)}": bool(unknown),
        "it has stateful layers, such as Mamba's": fingerprint.is_hybrid,
        "it is a mixture of experts on an accelerator": fingerprint.has_experts and not on_cpu,
        "it has custom code": fingerprint.has_own_code,
        "its config.json does not list exactly one architecture": not fingerprint.architecture
        or "," in fingerprint.architecture,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _tensors(folder: Path) -> dict[str, TensorEntry]:
    found = {}
    for name in weight_names(folder):
        with open_regular(folder / name) as file:
            found[name] = read_entries(file, name)
    return check_complete(folder, found)


def _config(folder: Path) -> dict[str, object]:
    config = parse_json(read_bytes(folder / CONFIG, limits.DOCUMENT))
    if not isinstance(config, dict):
        raise BadWeights(f"{CONFIG} is not a JSON object")
    return config


def _files(folder: Path, config: Mapping[str, object]) -> dict[str, str]:
    paths = [*folder.iterdir(), *folder.glob("additional_chat_templates/*")]
    served = (path for path in paths if is_served(path.name) and path.is_file())
    digests = {str(path.relative_to(folder)): file_digest(path) for path in served}
    normalised = json.dumps(_normalised(config), sort_keys=True).encode()
    return digests | {CONFIG: hashlib.sha256(normalised).hexdigest()}


def _normalised(value: object) -> object:
    """Return config.json without the keys that describe its origin; `torch_dtype` is the older name of `dtype`."""
    if isinstance(value, dict):
        renamed = {("dtype" if key == "torch_dtype" else key): entry for key, entry in value.items()}
        return {key: _normalised(entry) for key, entry in renamed.items() if key not in _NOT_SERVED}
    if isinstance(value, list):
        return [_normalised(entry) for entry in value]
    return value


def _quantisation(config: Mapping[str, object], files: Mapping[str, str], entries: Mapping[str, TensorEntry]) -> str:
    for key in ("quantization_config", "compression_config"):
        settings = config.get(key)
        if settings:
            if isinstance(settings, dict):
                return str(settings.get("quant_method", key))
            return key
    named = [name for name in QUANTISED_BY if name in files]
    if named:
        return named[0]
    return next((e.dtype for e in entries.values() if e.dtype.startswith("F8")), "")


def _vocab_size(config: Mapping[str, object]) -> int:
    text = config.get("text_config")
    places = [config, text if isinstance(text, dict) else {}]
    sizes = [size for place in places if isinstance(size := place.get("vocab_size"), int) and size > 0]
    if not sizes:
        raise BadWeights(f"no vocab_size in {CONFIG}")
    return sizes[0]


def _has_words(config: object, words: re.Pattern[str]) -> bool:
    return any(words.search(text.lower()) for text in _words(config))


def _words(value: object) -> Iterator[str]:
    """Yield non-empty keys and all strings of config.json: `num_experts: 8`, `"model_type": "mamba"`."""
    if isinstance(value, dict):
        for key, entry in value.items():
            if entry not in (None, False, 0, [], {}):
                yield str(key)
                yield from _words(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from _words(entry)
    elif isinstance(value, str):
        yield value


def _tensor_words(tensor: tuple[str, tuple[int, ...]] | None) -> str:
    if tensor is None:
        return "missing"
    return f"{tensor[0]} {list(tensor[1])}"


def _list(value: object) -> list[object]:
    if isinstance(value, list):
        return value
    return []
