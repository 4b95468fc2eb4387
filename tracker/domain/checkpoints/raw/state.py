"""Training states without safetensors: whether one is complete, and which of its files form the model. Pure.

    listing -> find_raw -> RawLayout | NotYet | Rejected | None (there is none)

- TORCH: `pytorch_model.bin`, in one file or in shards with an index, and `adapter_model.bin`.
- DCP: a folder of torch.distributed.checkpoint, `.metadata` and `*.distcp`; accelerate writes it to
  `pytorch_model_fsdp_0/` (FSDP with SHARDED_STATE_DICT). `.metadata` is written when every rank has finished, and
  contains the size of each file.
- ZERO: DeepSpeed's `global_step<N>/` with the optimizer states of every rank, which contain the weights. `latest`,
  written when every rank has finished, contains the name of that folder.

Such a state is pinned like any checkpoint and converted to safetensors later (`adapters.checkpoints.consolidate`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count

from eval_jobs.errors import CheckpointIncomplete, CheckpointUnreadable, CheckpointUnsafe
from eval_jobs.types import CheckpointFormat
from tracker.domain.checkpoints.listing import (
    ADAPTER_CONFIG,
    BIN_INDEX,
    CONFIG,
    DCP_INDEX,
    FSDP_FOLDER,
    LATEST,
    Broken,
    Document,
    Listing,
    RawFacts,
    RawKind,
    StateIndex,
)
from tracker.domain.checkpoints.unusable import NotYet, Rejected, not_yet, rejected, two_saves, weight_map_of
from tracker.domain.records.display import count_text

SINGLE_BINS = ("pytorch_model.bin", "adapter_model.bin", "pytorch_model_fsdp.bin")
"""Whole weights in one pickle; the last one is what accelerate writes for FSDP with FULL_STATE_DICT."""

PICKLE_HINT = (
    "save as safetensors; or, if no one else can write to that folder, set watch.allow_pickle = true to convert it"
)
CONFIG_HINT = (
    "the training state does not include it: set watch.config_from to a folder with this file and the tokenizer, "
    "such as that of the base model"
)

_OPTIM = re.compile(r"(?:bf16_|fp16_)?zero_pp_rank_([0-9]+)_mp_rank_([0-9]+)_optim_states\.pt$")
_STAGE3 = re.compile(r"zero_pp_rank_([0-9]+)_mp_rank_([0-9]+)_model_states\.pt$")
_STAGE12 = re.compile(r"mp_rank_([0-9]+)_model_states\.pt$")
_OTHER_PARALLEL = re.compile(r"layer_[0-9]+|expert")
_LAYER = re.compile(r"\.([0-9]+)\.")


@dataclass(frozen=True, kw_only=True)
class RawLayout:
    """A complete state."""

    kind: RawKind
    format: CheckpointFormat
    weights: tuple[str, ...]
    """Files with the weights, relative to the checkpoint, ordered."""
    extra: tuple[str, ...] = ()
    """Small files that are needed to read them."""


def find_raw(listing: Listing, *, allow_pickle: bool) -> RawLayout | NotYet | Rejected | None:
    """Return the state in a folder without safetensors, or why it cannot be used; None: there is no such state.

    Where pickled weights are allowed, they have priority. Otherwise they only count if there is nothing else, and are
    rejected.
    """
    names = listing.facts.names()
    has_torch_files = not names.isdisjoint((BIN_INDEX, *SINGLE_BINS))
    if has_torch_files and allow_pickle:
        return _torch(listing)
    is_marked = listing.raw.index is not None or FSDP_FOLDER in listing.facts.folders
    if is_marked or _has(names, ".distcp"):
        return _dcp(listing)
    if LATEST in names or _has(names, "_optim_states.pt"):
        return _zero(listing)
    if has_torch_files:
        return _refused_pickle(names)
    return None


def check_config(listing: Listing, name: str, *, is_raw: bool) -> NotYet | Rejected | None:
    """Return why there is no usable configuration `name`; None if there is one.

    `is_raw`: a training state, which never has one itself; other folders may still get one.
    """
    if name in listing.documents:
        return None
    raw = listing.raw
    found = raw.elsewhere.get(name)
    if isinstance(found, Broken):
        return not_yet(f"{name} in {raw.config_from} {found.text}", code=found.code, hint=CONFIG_HINT)
    if found is not None and (raw.is_given or (name == CONFIG and fits(found, raw))):
        return None
    if is_raw:
        where = f", and none in {raw.config_from}" if raw.is_given else ""
        if found is not None:
            where = f", and the one in {raw.config_from} may belong to another model"
        return replace(rejected(f"no {name}{where}", hint=CONFIG_HINT), is_elsewhere=True)
    return replace(not_yet(f"{name} is missing", hint=CONFIG_HINT), is_elsewhere=name == CONFIG)


def fits(config: Document, raw: RawFacts) -> bool:
    """Return whether a config.json belongs to the model in a DCP state: its sizes match those of the tensors."""
    if raw.index is None or isinstance(raw.index, Broken):
        return False
    text = config.get("text_config")
    sizes: Mapping[str, object] = text if isinstance(text, Mapping) else config
    layers = {int(match.group(1)) for name in raw.index.tensors if (match := _LAYER.search(name))}
    embedding = (sizes.get("vocab_size"), sizes.get("hidden_size"))
    return sizes.get("num_hidden_layers") == len(layers) and embedding in raw.index.tensors.values()


def _refused_pickle(names: frozenset[str]) -> Rejected:
    first = BIN_INDEX if BIN_INDEX in names else next(name for name in SINGLE_BINS if name in names)
    reason = f"weights are a pickle ({first}), and unpickling can execute code"
    return replace(rejected(reason, code=CheckpointUnsafe.code, hint=PICKLE_HINT), is_elsewhere=True)


def _missing(listing: Listing, wanted: tuple[str, ...]) -> NotYet | None:
    for name in wanted:
        if listing.facts.file(name) is None:
            return not_yet(f"{name} is missing")
        if name in listing.raw.broken:
            return not_yet(f"{name} {listing.raw.broken[name]}")
    return None


def _torch(listing: Listing) -> RawLayout | NotYet | Rejected:
    names = listing.facts.names()
    single = next((name for name in SINGLE_BINS if name in names), None)
    if single is not None and BIN_INDEX in names:
        return two_saves(single, BIN_INDEX)
    files = (single,) if single is not None else _shards(listing)
    if not isinstance(files, tuple):
        return files
    is_lora = single == "adapter_model.bin"
    layout = CheckpointFormat.LORA if is_lora else CheckpointFormat.FULL
    return _missing(listing, files) or RawLayout(kind=RawKind.TORCH, format=layout, weights=files)


def _shards(listing: Listing) -> tuple[str, ...] | NotYet | Rejected:
    weight_map = weight_map_of(listing.documents.get(BIN_INDEX), BIN_INDEX)
    if isinstance(weight_map, NotYet):
        return weight_map
    files = sorted({str(shard) for shard in weight_map.values()})
    for name in files:
        if "/" in name or not name.endswith(".bin"):
            return rejected(
                f"{BIN_INDEX} lists {name!r}, which is not a file in the folder",
                code=CheckpointUnreadable.code,
                hint="save the checkpoint again",
            )
    return tuple(files)


def _dcp(listing: Listing) -> RawLayout | NotYet | Rejected:
    raw = listing.raw
    prefix = f"{raw.folder}/" if raw.folder else ""
    if raw.index is None:
        where = f"{FSDP_FOLDER}/" if FSDP_FOLDER in listing.facts.folders else ""
        return not_yet(f"{where}{DCP_INDEX} is missing: not all ranks have finished saving")
    if isinstance(raw.index, Broken):
        return _broken_index(raw.index, f"{prefix}{DCP_INDEX}")
    is_lora = all("lora_" in name for name in raw.index.tensors)
    fault = _absent_files(listing, raw.index, prefix, is_lora=is_lora)
    if fault is not None:
        return fault
    return RawLayout(
        kind=RawKind.DCP,
        format=CheckpointFormat.LORA if is_lora else CheckpointFormat.FULL,
        weights=tuple(prefix + name for name in sorted(raw.index.files)),
        extra=(f"{prefix}{DCP_INDEX}",),
    )


def _broken_index(index: Broken, name: str) -> NotYet | Rejected:
    reason = f"{name} {index.text}"
    if index.code == CheckpointIncomplete.code:
        return not_yet(reason)
    return rejected(reason, code=index.code, hint="save the checkpoint again, as safetensors")


def _absent_files(listing: Listing, index: StateIndex, prefix: str, *, is_lora: bool) -> NotYet | Rejected | None:
    for name, end in sorted(index.files.items()):
        fact = listing.facts.file(prefix + name)
        if fact is None:
            return not_yet(f"{prefix}{name} is missing: that rank has not saved")
        if fact.size < end:
            return not_yet(f"{prefix}{name} has {count_text(fact.size, 'byte')}, expected at least {end} ({DCP_INDEX})")
    if ADAPTER_CONFIG in listing.documents and not is_lora:
        return rejected(
            "found adapter_config.json, but the state contains more than an adapter",
            hint="let the trainer save only the adapter (save_pretrained)",
        )
    return None


def _zero(listing: Listing) -> RawLayout | NotYet | Rejected:
    facts, latest, prefix = listing.facts, listing.raw.latest, ""
    extra: tuple[str, ...] = ()
    if LATEST in facts.names():
        prefix, extra = f"{latest}/", (LATEST,)
        if latest not in facts.folders:
            return not_yet(f"{LATEST} references {latest!r}, but that folder does not exist")
    if ADAPTER_CONFIG in listing.documents:
        return not_yet("found a DeepSpeed state and adapter_config.json, but no adapter_model.safetensors")
    states = (f.name for f in facts.files if f.name.endswith("_states.pt"))
    files = tuple(sorted(name for name in states if name.startswith(prefix)))
    names = [name.removeprefix(prefix) for name in files]
    fault = _unlike_zero(names) or _absent_ranks(listing, names, prefix) or _missing(listing, files)
    if fault is not None:
        return fault
    return RawLayout(kind=RawKind.ZERO, format=CheckpointFormat.FULL, weights=files, extra=extra)


def _has(names: frozenset[str], ending: str) -> bool:
    return any(name.endswith(ending) for name in names)


def _ranks_of(names: list[str], pattern: re.Pattern[str]) -> set[int]:
    return {int(match.group(1)) for match in map(pattern.match, names) if match}


def _unlike_zero(names: list[str]) -> Rejected | None:
    """Return why DeepSpeed's own tool could not read the state."""
    matches = (_OPTIM.match(name) or _STAGE3.match(name) or _STAGE12.match(name) for name in names)
    if len({match.group(match.lastindex or 0) for match in matches if match}) > 1:
        what = "tensor-parallel ranks"
    elif any(_OTHER_PARALLEL.match(name) for name in names):
        what = "pipeline stages or experts in separate files"
    else:
        return None
    return rejected(
        f"DeepSpeed state has {what}, which zero_to_fp32 cannot consolidate",
        hint="let the trainer save full weights (stage3_gather_16bit_weights_on_model_save, or save_pretrained)",
    )


def _absent_ranks(listing: Listing, names: list[str], prefix: str) -> NotYet | None:
    """Check ranks: each has an optimizer file; stage 3 has a model file per rank, stages 1 and 2 have one in all."""
    whole = _ranks_of(names, _OPTIM)
    seen, stage3 = set(whole), _ranks_of(names, _STAGE3)
    if stage3:
        seen |= stage3
        whole &= stage3
    elif not any(map(_STAGE12.match, names)):
        return not_yet(f"{prefix}mp_rank_00_model_states.pt is missing")
    # All ranks must exist up to the highest one with any file.
    world = max(listing.raw.world_size, max(seen | listing.facts.ranks(), default=0) + 1)
    absent = next(rank for rank in count() if rank not in whole)
    if absent < world:
        return not_yet(f"rank {absent} has not saved its part of {prefix or 'the state'}")
    return None
