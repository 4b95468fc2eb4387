"""Which files of a folder are the weights, and in which form they are. Pure.

Forms that the tracker cannot read are known by name, so that a message can say what exports them; `watch.convert`
converts them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from eval_jobs.errors import CheckpointUnreadable, CheckpointUnsafe
from eval_jobs.types import CheckpointFormat
from tracker.domain.checkpoints.listing import (
    ADAPTER,
    ADAPTER_CONFIG,
    CONFIG,
    DCP_INDEX,
    INDEX,
    SINGLE,
    Facts,
    Listing,
    RawKind,
    StateIndex,
    base_model_of,
    is_temporary,
)
from tracker.domain.checkpoints.raw.state import RawLayout, find_raw
from tracker.domain.checkpoints.unusable import (
    NotYet,
    Rejected,
    no_weights,
    not_yet,
    rejected,
    two_saves,
    weight_map_of,
)

_SHARD = re.compile(r"(?:model|pytorch_model)-[0-9]+-of-[0-9]+\.safetensors$")
_PICKLE = re.compile(r"(?:pytorch_model.*|adapter_model|model.*|consolidated.*)\.(?:bin|pt|pth|ckpt)$")

_TORCHTITAN_TENSOR = "tok_embeddings.weight"
MEGATRON_COMMON = "common.pt"
"""Written first by Megatron-core; `.metadata`, as for other sharded states, is written last."""


@dataclass(frozen=True, kw_only=True)
class OtherForm:
    """A form that the tracker cannot read."""

    name: str
    export: str
    """What the framework offers to write a Hugging Face folder."""

    def refusal(self) -> Rejected:
        """Return why such a checkpoint cannot be served."""
        hint = f"export it with {self.export}, or set watch.convert to a command that does"
        return Rejected(
            code=CheckpointUnreadable.code, reason=f"{self.name}, which needs a converter", hint=hint, is_elsewhere=True
        )


LIGHTNING = OtherForm(name="PyTorch Lightning checkpoint", export="`save_pretrained` of the model in it")
MEGATRON = OtherForm(
    name="distributed checkpoint of Megatron-core", export="`AutoBridge.export_ckpt` of Megatron Bridge"
)
MEGATRON_LM = OtherForm(name="checkpoint of Megatron-LM", export="Megatron's `tools/checkpoint/convert.py`")
TORCHTITAN = OtherForm(
    name="checkpoint of torchtitan", export="torchtitan's `scripts/checkpoint_conversion/convert_to_hf.py`"
)
LITGPT = OtherForm(name="checkpoint of LitGPT", export="`litgpt convert_from_litgpt`")
NEMO = OtherForm(name="NeMo checkpoint", export="`nemo.collections.llm.export_ckpt`")


def other_form(listing: Listing) -> OtherForm | None:
    """Return the form of the checkpoint in a folder without safetensors; None: none of these, or still incomplete."""
    names, folders, index = listing.facts.names(), set(listing.facts.folders), listing.raw.index
    signs = {
        NEMO: {"weights", "context"} <= folders and f"weights/{DCP_INDEX}" in names,
        MEGATRON: {MEGATRON_COMMON, DCP_INDEX} <= names,
        MEGATRON_LM: any(name.startswith("mp_rank_") for name in folders),
        LIGHTNING: any(name.endswith(".ckpt") for name in names),
        TORCHTITAN: isinstance(index, StateIndex) and _TORCHTITAN_TENSOR in index.tensors,
        LITGPT: "lit_model.pth" in names,
    }
    for form, is_there in signs.items():
        if is_there:
            return form
    return None


@dataclass(frozen=True, kw_only=True)
class WeightsLayout:
    """Which files of a checkpoint are its weights, and in which form."""

    format: CheckpointFormat
    weights: tuple[str, ...]
    config: str
    tensors: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Tensors that the index maps to each shard."""
    raw: RawLayout | None = None


def layout_of(listing: Listing, *, allow_pickle: bool) -> WeightsLayout | NotYet | Rejected:
    """Decide which files are the weights."""
    raw = _raw(listing, allow_pickle=allow_pickle)
    if isinstance(raw, RawLayout):
        config = ADAPTER_CONFIG if raw.format is CheckpointFormat.LORA else CONFIG
        return WeightsLayout(format=raw.format, weights=raw.weights, config=config, raw=raw)
    if raw is not None:
        return raw
    is_full = not listing.facts.names().isdisjoint((SINGLE, INDEX))
    if _is_adapter(listing, is_full=is_full):
        return WeightsLayout(format=CheckpointFormat.LORA, weights=(ADAPTER,), config=ADAPTER_CONFIG)
    if is_full:
        return _full(listing, listing.facts.names())
    return _without_weights(listing.facts, listing.facts.names())


def _raw(listing: Listing, *, allow_pickle: bool) -> RawLayout | NotYet | Rejected | None:
    """Return what must be converted in a folder without safetensors; None: nothing."""
    names = listing.facts.names()
    if not names.isdisjoint((SINGLE, INDEX, ADAPTER)) or any(map(_SHARD.match, names)):
        return None
    if other_form(listing) is None:
        return find_raw(listing, allow_pickle=allow_pickle)
    files = tuple(name for name in sorted(names) if not is_temporary(name))  # only its framework knows which it needs
    return RawLayout(kind=RawKind.OTHER, format=CheckpointFormat.FULL, weights=files)


def _is_adapter(listing: Listing, *, is_full: bool) -> bool:
    """Return whether the model is an adapter: beside whole weights, one without a base is a part of them."""
    if is_full:
        return ADAPTER in listing.facts.names() and base_model_of(listing.documents.get(ADAPTER_CONFIG)) != ""
    return not listing.facts.names().isdisjoint((ADAPTER, ADAPTER_CONFIG))


def _full(listing: Listing, names: frozenset[str]) -> WeightsLayout | NotYet | Rejected:
    if SINGLE in names and INDEX in names:
        return two_saves(SINGLE, INDEX)
    if SINGLE in names:
        return WeightsLayout(format=CheckpointFormat.FULL, weights=(SINGLE,), config=CONFIG)
    weight_map = weight_map_of(listing.documents.get(INDEX), INDEX)
    if isinstance(weight_map, NotYet):
        return weight_map
    tensors: dict[str, set[str]] = {}
    for tensor, shard in weight_map.items():
        if not isinstance(shard, str) or "/" in shard or not shard.endswith(".safetensors"):
            return rejected(
                f"{INDEX} maps tensor {tensor} to {shard!r}, which is not a safetensors file in the folder",
                code=CheckpointUnreadable.code,
                hint="save the checkpoint again with save_pretrained(safe_serialization=True)",
            )
        tensors.setdefault(shard, set()).add(str(tensor))
    return WeightsLayout(
        format=CheckpointFormat.FULL,
        weights=tuple(sorted(tensors)),
        config=CONFIG,
        tensors={shard: frozenset(own) for shard, own in tensors.items()},
    )


def _without_weights(facts: Facts, names: frozenset[str]) -> NotYet | Rejected:
    if any(_SHARD.match(name) for name in names):
        return not_yet(f"{INDEX} is missing, so the number of shards is unknown")
    if any(is_temporary(name) for name in names):
        return not_yet("weights are still being written to a temporary file")
    pickles = sorted(name for name in names if _PICKLE.match(name))
    if pickles:
        hint = "save as safetensors: save_safetensors=True in TrainingArguments, or convert the file once"
        reason = f"weights are a pickle ({pickles[0]}), and unpickling can execute code"
        return rejected(reason, code=CheckpointUnsafe.code, hint=hint)
    return no_weights(facts.folders, names)
