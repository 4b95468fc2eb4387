"""Variants of the tiny model that an engine may or may not take in place of another."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from tests.tiny_model import write_checkpoint

WEIGHTS = "model.safetensors"
INT8_MAX = 127

Arrays = dict[str, NDArray[np.float32]]


def write_tied(folder: Path, *, seed: int) -> Path:
    """Write a model of one layer whose output layer is its embedding."""
    write_one_layer(folder, seed=seed)
    edit_tensors(folder, lambda tensors: tensors.pop("lm_head.weight"))
    return edit_json(folder, "config.json", tie_word_embeddings=True)


def write_one_layer(folder: Path, *, seed: int) -> Path:
    """Write a model of one layer: each is compiled."""
    write_checkpoint(folder, seed=seed)

    def change(tensors: Arrays) -> None:
        for name in [name for name in tensors if ".layers.1." in name]:
            del tensors[name]

    edit_tensors(folder, change)
    return edit_json(folder, "config.json", num_hidden_layers=1)


def write_quantised(folder: Path, *, seed: int) -> Path:
    """Write a model whose linear layers are int8 (W8A8 of compressed-tensors): a scale a row and one for each token."""
    write_checkpoint(folder, seed=seed)
    linear = [name for name in load_file(folder / WEIGHTS) if name.endswith("_proj.weight")]

    def change(tensors: dict[str, NDArray[Any]]) -> None:
        for name in linear:
            scale = np.abs(tensors[name]).max(axis=1, keepdims=True) / INT8_MAX
            tensors[name] = np.rint(tensors[name] / scale).astype(np.int8)
            tensors[f"{name}_scale"] = scale

    edit_tensors(folder, change)
    eight_bits = {"num_bits": 8, "type": "int", "symmetric": True}
    group = {
        "targets": ["Linear"],
        "weights": {**eight_bits, "strategy": "channel", "dynamic": False},
        "input_activations": {**eight_bits, "strategy": "token", "dynamic": True},
    }
    settings = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": group},
    }
    return edit_json(folder, "config.json", quantization_config=settings)


def store_as_bf16(folder: Path) -> Path:
    """Store the weights of a model in bfloat16, cut off; also in its configuration."""
    tensors = {name: _upper_half(tensor) for name, tensor in load_file(folder / WEIGHTS).items()}
    header, offset = {}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "BF16", "shape": tensor.shape, "data_offsets": [offset, offset + tensor.nbytes]}
        offset += tensor.nbytes
    raw = json.dumps(header).encode()
    data = b"".join(tensor.tobytes() for tensor in tensors.values())
    (folder / WEIGHTS).write_bytes(len(raw).to_bytes(8, "little") + raw + data)
    return edit_json(folder, "config.json", dtype="bfloat16")


def edit_tensors(folder: Path, change: Callable[[dict[str, NDArray[Any]]], object]) -> Path:
    """Change the tensors of a model in one file."""
    tensors = dict(load_file(folder / WEIGHTS))
    change(tensors)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    return folder


def edit_json(folder: Path, name: str, **changes: object) -> Path:
    """Change entries of a JSON file."""
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder


def without(name: str) -> Callable[[Path], Path]:
    """Return what takes a tensor away."""
    return lambda folder: edit_tensors(folder, lambda tensors: tensors.pop(name))


def _upper_half(tensor: NDArray[np.float32]) -> NDArray[np.uint16]:
    return (tensor.view(np.uint32) >> 16).astype(np.uint16)


# --- what must not be swapped in


def _not_a_number(folder: Path) -> None:
    def change(tensors: Arrays) -> None:
        tensors["model.layers.0.mlp.up_proj.weight"][3, 5] = np.nan

    edit_tensors(folder, change)


def _other_hidden_size(folder: Path) -> None:
    edit_tensors(folder, lambda tensors: tensors.update({name: t[..., :32].copy() for name, t in tensors.items()}))
    edit_json(folder, "config.json", hidden_size=32)


def _one_layer_more(folder: Path) -> None:
    def change(tensors: Arrays) -> None:
        tensors |= {name.replace(".1.", ".2."): tensor for name, tensor in tensors.items() if ".layers.1." in name}

    edit_tensors(folder, change)
    edit_json(folder, "config.json", num_hidden_layers=3)


def _truncated(folder: Path) -> None:
    path = folder / WEIGHTS
    path.write_bytes(path.read_bytes()[:-1000])


def _chat_template(folder: Path) -> None:
    edit_json(folder, "tokenizer_config.json", chat_template="{{ messages[0]['content'] }}!")


def _tokenizer(folder: Path) -> None:
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    path.write_text(json.dumps(tokenizer))


DOWN, K = "model.layers.0.mlp.down_proj.weight", "model.layers.0.self_attn.k_proj.weight"

UNFIT: Mapping[str, tuple[Callable[[Path], object], str]] = {
    "down_proj missing": (without(DOWN), f"the tensor {DOWN} is missing"),
    "k_proj missing": (without(K), f"the tensor {K} is missing"),
    "NaN": (_not_a_number, r"model\.layers\.0\.mlp\.up_proj\.weight in model\.safetensors contains NaN or Inf"),
    "another hidden size": (_other_hidden_size, r"is F32 \[101, 32\], was F32 \[101, 64\]"),
    "one layer more": (_one_layer_more, r"the tensor model\.layers\.2\..*, was missing"),
    "one tensor more": (
        lambda folder: edit_tensors(folder, lambda tensors: tensors.update(more=np.ones(3, np.float32))),
        r"the tensor more is F32 \[3\], was missing",
    ),
    "truncated": (_truncated, r"model\.safetensors is .* bytes long \(expected .* from its header\)"),
    "no weights": (lambda folder: (folder / WEIGHTS).unlink(), r"no model\.safetensors in"),
    "nothing there": (shutil.rmtree, "No such file"),
    "tied": (
        lambda folder: [without("lm_head.weight")(folder), edit_json(folder, "config.json", tie_word_embeddings=True)],
        r"the tensor lm_head\.weight is missing",
    ),
    "stored in bfloat16": (store_as_bf16, "is BF16 .*, was F32"),
    "another rope_theta": (
        lambda folder: edit_json(folder, "config.json", rope_parameters={"rope_type": "default", "rope_theta": 500.0}),
        r"config\.json differs",
    ),
    "quantised": (
        lambda folder: edit_json(
            folder, "config.json", quantization_config={"quant_method": "compressed-tensors", "format": "int-quantized"}
        ),
        r"config\.json differs",
    ),
    "another chat template": (_chat_template, r"tokenizer_config\.json differs"),
    "another tokenizer": (_tokenizer, r"tokenizer\.json differs"),
    "another generation_config": (
        lambda folder: edit_json(folder, "generation_config.json", temperature=0.3, top_k=3),
        r"generation_config\.json differs",
    ),
}
"""What is done to a checkpoint, and how its refusal says it."""
