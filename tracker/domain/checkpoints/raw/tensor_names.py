"""Which tensors a checkpoint must contain: by its config.json, and compared with an earlier one of the run. Pure.

An engine serves a checkpoint without its down_proj without an error, so no other check would detect it.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tracker.domain.checkpoints.listing import Document
from tracker.domain.checkpoints.raw.tensors import TensorFact, WeightsContent
from tracker.domain.records.display import names_text

_BUFFER = re.compile(
    r"(?:^|\.)(?:rotary_emb\.inv_freq|rotary_emb\.(?:cos|sin)_cached|attn\.bias|attention\.bias|(?:attn|attention)"
    r"\.masked_bias|position_ids|num_batches_tracked|_extra_state)$|^(?:v_head|score)\."
)
"""Not learned, or the head of a reward model: whether they are saved depends on the library version."""
_MTP = re.compile(r"(?:^|\.)mtp[._]")
_LAYER = re.compile(r"^(?P<stem>(?:model|transformer|gpt_neox)\.(?:layers|h))\.(?P<index>[0-9]+)\.(?P<rest>.+)$")
_OUTPUT = "lm_head.weight"
_EMBEDDING = "model.embed_tokens.weight"

_LLAMA_LAYER = frozenset(
    {f"self_attn.{name}_proj.weight" for name in "qkvo"}
    | {f"mlp.{name}_proj.weight" for name in ("gate", "up", "down")}
    | {"input_layernorm.weight", "post_attention_layernorm.weight"}
)
_LLAMA_LIKE = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Their layers always contain `_LLAMA_LAYER`; lm_head is separate unless config.json ties it."""
_UNIFORM = _LLAMA_LIKE | {
    "gemma",
    "gemma2",
    "olmo",
    "olmo2",
    "phi3",
    "granite",
    "starcoder2",
    "stablelm",
    "gpt_neox",
    "gpt2",
}
"""All layers of these contain the same tensors. This is not certain for mixtures of experts and hybrids."""

_VOLATILE = frozenset(
    {"transformers_version", "_name_or_path", "dtype", "torch_dtype", "use_cache", "_attn_implementation"}
    | {"base_model_name_or_path", "inference_mode", "auto_mapping", "revision", "peft_version"}
)
"""Settings that can change between saves without changing the set of tensors."""


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """An earlier checkpoint of the same run and format."""

    step: int
    tensors: Mapping[str, TensorFact]
    config: Document
    zeros: frozenset[str]
    """Tensors that contain only zeros."""


@dataclass(frozen=True, kw_only=True)
class Soundness:
    """The result of checking weights whose files have the correct sizes."""

    fault: str = ""
    """Why the weights are rejected; empty: they are accepted."""
    notes: tuple[str, ...] = ()
    """What is unusual without being a fault."""


def absent_by_config(names: Collection[str], config: Document) -> tuple[str, ...]:
    """Return the tensors that config.json implies and that are not among `names`.

    Only for architectures where this is certain: every layer from 0 to num_hidden_layers - 1 has the same names, and
    layers of Llama-like models have known ones.
    """
    kind, count = config.get("model_type"), config.get("num_hidden_layers", config.get("n_layer"))
    if kind not in _UNIFORM or not isinstance(count, int) or "quantization_config" in config:
        return ()
    layers: defaultdict[int, set[str]] = defaultdict(set)
    stems: set[str] = set()
    for match in filter(None, map(_LAYER.match, names)):
        stems.add(match["stem"])
        layers[int(match["index"])].add(match["rest"])
    if len(stems) != 1:
        return ()  # a model wrapped in another one has different names
    (stem,) = stems
    known_layer: frozenset[str] = frozenset()
    whole: set[str] = set()
    if kind in _LLAMA_LIKE:
        known_layer, whole = _LLAMA_LAYER, _outside_layers(config)
    absent = _absent_of_layers([layers[layer] for layer in range(count)], known_layer)
    return (*(f"{stem}.{name}" for name in absent), *sorted(whole - set(names)))


def _outside_layers(config: Document) -> set[str]:
    names, kinds = {_EMBEDDING, "model.norm.weight"}, config.get("architectures")
    is_causal = isinstance(kinds, list) and any(str(kind).endswith("ForCausalLM") for kind in kinds)
    if is_causal and _has_own_output(config):
        names.add(_OUTPUT)
    return names


def _absent_of_layers(layers: Sequence[set[str]], known: frozenset[str]) -> Iterator[str]:
    """Yield `INDEX.REST` for each tensor that other layers or `known` have and the layer does not."""
    everywhere = set().union(*layers)
    expected = known | {rest for rest in everywhere if not _BUFFER.search(rest)}
    for index, rests in enumerate(layers):
        for rest in sorted(expected - rests):
            yield f"{index}.{rest}"


def compare_weights(content: WeightsContent, config: Document, earlier: Earlier) -> Soundness:
    """Compare weights with an earlier checkpoint, whose config.json (adapter_config.json) may differ."""
    names = {tensor.name for tensor in content.tensors}
    absent = sorted(earlier.tensors.keys() - names)
    missing = [name for name in absent if not _may_be_absent(name, config)]
    changed = changed_settings(config, earlier.config)
    if missing and not changed:
        return Soundness(fault=f"{tensors_text(missing)} missing, but present at step {earlier.step}")
    lost = _zeroed(content, earlier)
    if lost:
        return Soundness(fault=f"{tensors_text(lost)} all zeros, but not at step {earlier.step}")
    return Soundness(notes=tuple(_notes(content, earlier, absent, changed)))


def tensors_text(names: Collection[str]) -> str:
    """Return the first few names, how many more, and a verb: `tensor a is`, `tensors a, b and 3 more are`."""
    if len(names) == 1:
        return f"tensor {next(iter(names))} is"
    return f"tensors {names_text(list(names), at_most=6)} are"


def changed_settings(config: Document, earlier: Document) -> tuple[str, ...]:
    """Return the settings in which two configurations differ, except those in `_VOLATILE`."""
    keys = (config.keys() | earlier.keys()) - _VOLATILE
    return tuple(sorted(key for key in keys if _in_order(config.get(key)) != _in_order(earlier.get(key))))


def _zeroed(content: WeightsContent, earlier: Earlier) -> list[str]:
    """Return tensors that became all zeros; a bias may decay to zero, a matrix or a norm does not."""
    known = {t.name: t for t in content.tensors if t.name in earlier.tensors}
    return sorted(
        name
        for name in content.zeros & known.keys() - earlier.zeros
        if known[name].shape == earlier.tensors[name].shape
        and (known[name].is_matrix() or name.endswith("norm.weight"))
    )


def _may_be_absent(name: str, config: Document) -> bool:
    if _BUFFER.search(name) or _MTP.search(name):
        return True
    count, match = config.get("num_hidden_layers"), _LAYER.match(name)
    if match is not None and isinstance(count, int) and int(match["index"]) >= count:
        return True  # layers for multi-token prediction: transformers omits them when saving
    return name == _OUTPUT and not _has_own_output(config)


def _has_own_output(config: Document) -> bool:
    """Return whether lm_head is not the embedding for certain: config.json contains only non-default values."""
    tied = config.get("tie_word_embeddings")
    return tied is False or (tied is None and config.get("model_type") in _LLAMA_LIKE)


def _notes(content: WeightsContent, earlier: Earlier, absent: list[str], changed: tuple[str, ...]) -> Iterator[str]:
    tensors = {t.name: t for t in content.tensors}
    if changed:
        yield f"configuration differs from step {earlier.step} in {', '.join(changed[:5])}"
    both = [(tensors[name], earlier.tensors[name]) for name in sorted(tensors.keys() & earlier.tensors.keys())]
    found = {
        "missing, but present at": absent,
        "new since": sorted(tensors.keys() - earlier.tensors.keys()),
        "of a different shape than at": [now.name for now, then in both if now.shape != then.shape],
        "of a different dtype than at": [now.name for now, then in both if now.dtype != then.dtype],
    }
    for what, names in found.items():
        if names:
            yield f"{tensors_text(names)} {what} step {earlier.step}"


def _in_order(value: object) -> object:
    """Return lists sorted: PEFT writes its target modules in set order, which differs between processes."""
    if isinstance(value, list):
        return sorted(map(str, value))
    return value
