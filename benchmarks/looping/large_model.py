"""A random Llama of 543 MB in fp32: large enough that reading it takes time, small enough for two cores."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from tests.tiny_model import VOCABULARY, write_checkpoint

HIDDEN, INTERMEDIATE, LAYERS, HEADS = 1024, 2304, 12, 8


def write_large(folder: Path) -> Path:
    """Write the model folder and return it."""
    write_checkpoint(folder)
    config = folder / "config.json"
    size = {"hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE, "num_hidden_layers": LAYERS}
    heads = {"num_attention_heads": HEADS, "num_key_value_heads": HEADS, "head_dim": HIDDEN // HEADS}
    config.write_text(json.dumps(json.loads(config.read_text()) | size | heads))
    generator = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return generator.standard_normal(shape, dtype=np.float32) * np.float32(0.02)

    tensors = {name: normal(len(VOCABULARY), HIDDEN) for name in ("model.embed_tokens.weight", "lm_head.weight")}
    tensors["model.norm.weight"] = np.ones(HIDDEN, dtype=np.float32)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            tensors[f"{prefix}.self_attn.{name}.weight"] = normal(HIDDEN, HIDDEN)
        for name in ("gate_proj", "up_proj"):
            tensors[f"{prefix}.mlp.{name}.weight"] = normal(INTERMEDIATE, HIDDEN)
        tensors[f"{prefix}.mlp.down_proj.weight"] = normal(HIDDEN, INTERMEDIATE)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{prefix}.{name}.weight"] = np.ones(HIDDEN, dtype=np.float32)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
