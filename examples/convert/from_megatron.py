"""Writes a distributed checkpoint of Megatron-core or NeMo as a Hugging Face folder: Llama, Qwen2, Qwen3, Mistral.

    [watch]
    convert = ["python", "from_megatron.py", "{source}", "{target}", "BASE"]

BASE is the folder of the Hugging Face model that training started from: it has the configuration and the tokenizer.
Needs torch and safetensors, and neither Megatron nor a GPU. Mixtures of experts need `AutoBridge.export_ckpt`.
"""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

OF_LAYERS = {
    "self_attention.linear_proj.weight": "self_attn.o_proj.weight",
    "self_attention.q_layernorm.weight": "self_attn.q_norm.weight",
    "self_attention.k_layernorm.weight": "self_attn.k_norm.weight",
    "self_attention.linear_qkv.layer_norm_weight": "input_layernorm.weight",
    "input_layernorm.weight": "input_layernorm.weight",
    "mlp.linear_fc1.layer_norm_weight": "post_attention_layernorm.weight",
    "pre_mlp_layernorm.weight": "post_attention_layernorm.weight",
    "mlp.linear_fc2.weight": "mlp.down_proj.weight",
}
OF_THE_MODEL = {
    "embedding.word_embeddings.weight": "model.embed_tokens.weight",
    "decoder.final_layernorm.weight": "model.norm.weight",
    "output_layer.weight": "lm_head.weight",
}
LAYERS = "decoder.layers."


def main(source: str, target: str, base: str) -> None:
    """Convert the folder `source` into the folder `target`."""
    weights = Path(source, "weights")  # of NeMo
    state = _read(weights if weights.is_dir() else Path(source))
    config = json.loads(Path(base, "config.json").read_text(encoding="utf-8"))
    tensors = {OF_THE_MODEL[name]: tensor for name, tensor in state.items() if name in OF_THE_MODEL}
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        if name in tensors:
            tensors[name] = tensors[name][: config["vocab_size"]]  # Megatron pads the vocabulary
    for name, number, tensor in _layers(state):
        for ending, part in _parts(name, tensor, config):
            tensors[f"model.layers.{number}.{ending}"] = part
    folder = Path(target)
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    for file in Path(base).iterdir():
        if file.suffix in {".json", ".jinja", ".model"} and "index" not in file.name:
            shutil.copy(file, folder / file.name)


def _read(folder: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of the model by their names without the prefix of wrappers."""
    known = dcp.FileSystemReader(str(folder)).read_metadata().state_dict_metadata
    state = {}
    for name, found in known.items():
        if name.removeprefix("module.").startswith((*OF_THE_MODEL, LAYERS)) and hasattr(found, "size"):
            state[name] = torch.empty(found.size, dtype=found.properties.dtype)
    dcp.load(state, checkpoint_id=str(folder))
    return {name.removeprefix("module."): tensor for name, tensor in state.items()}


def _layers(state: dict[str, torch.Tensor]) -> Iterator[tuple[str, int, torch.Tensor]]:
    """Yield name, layer and tensor: Megatron stacks the layers in one tensor, or numbers them."""
    for key, tensor in state.items():
        name = key.removeprefix(LAYERS)
        first, _, rest = name.partition(".")
        if not key.startswith(LAYERS):
            continue
        if first.isdecimal():
            yield rest, int(first), tensor
        else:
            yield from ((name, number, one) for number, one in enumerate(tensor.unbind(0)))


def _parts(name: str, tensor: torch.Tensor, config: dict[str, int]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield what Hugging Face makes of a tensor of one layer."""
    kind = name.rpartition(".")[2]
    if name in OF_LAYERS:
        yield OF_LAYERS[name], tensor
    elif name.startswith("mlp.linear_fc1."):
        gate, up = tensor.chunk(2)
        yield from ((f"mlp.gate_proj.{kind}", gate), (f"mlp.up_proj.{kind}", up))
    elif name.startswith("self_attention.linear_qkv."):
        # Each group of query heads is followed by its key and its value.
        heads, groups = config["num_attention_heads"], config.get("num_key_value_heads", config["num_attention_heads"])
        head_size = tensor.shape[0] // (heads + 2 * groups)
        grouped = tensor.view(groups, heads // groups + 2, head_size, *tensor.shape[1:])
        for letter, part in (("q", grouped[:, :-2]), ("k", grouped[:, -2]), ("v", grouped[:, -1])):
            yield f"self_attn.{letter}_proj.{kind}", part.reshape(-1, *tensor.shape[1:])
    else:
        raise SystemExit(f"no Hugging Face name for {name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
