"""Headers of known models without their weights: what is read to estimate a training.

write_headers(folder, MODELS[0].shapes())
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class KnownModel:
    """Numbers of a config.json, and the parameters that the model card states."""

    name: str
    hidden: int
    intermediate: int
    layers: int
    keys: int
    vocabulary: int
    parameters: int
    is_tied: bool
    has_bias: bool

    def shapes(self) -> dict[str, list[int]]:
        """Return the tensors of the architecture Llama, or Qwen2, which has biases."""
        hidden, inner, keys = self.hidden, self.intermediate, self.keys
        projections = {"q": hidden, "k": keys, "v": keys}
        found = {"model.embed_tokens.weight": [self.vocabulary, hidden], "model.norm.weight": [hidden]}
        if not self.is_tied:
            found["lm_head.weight"] = [self.vocabulary, hidden]
        for number in range(self.layers):
            layer = f"model.layers.{number}"
            for name, size in projections.items():
                found[f"{layer}.self_attn.{name}_proj.weight"] = [size, hidden]
                if self.has_bias:
                    found[f"{layer}.self_attn.{name}_proj.bias"] = [size]
            found[f"{layer}.self_attn.o_proj.weight"] = [hidden, hidden]
            found[f"{layer}.mlp.gate_proj.weight"] = [inner, hidden]
            found[f"{layer}.mlp.up_proj.weight"] = [inner, hidden]
            found[f"{layer}.mlp.down_proj.weight"] = [hidden, inner]
            found[f"{layer}.input_layernorm.weight"] = [hidden]
            found[f"{layer}.post_attention_layernorm.weight"] = [hidden]
        return found

    def largest_layer(self) -> int:
        """Return the parameters of the largest module."""
        return max(self.vocabulary, self.intermediate) * self.hidden


MODELS = (
    KnownModel(
        name="TinyLlama-1.1B",
        hidden=2048,
        intermediate=5632,
        layers=22,
        keys=256,
        vocabulary=32_000,
        parameters=1_100_048_384,
        is_tied=False,
        has_bias=False,
    ),
    KnownModel(
        name="Mistral-7B-v0.1",
        hidden=4096,
        intermediate=14336,
        layers=32,
        keys=1024,
        vocabulary=32_000,
        parameters=7_241_732_096,
        is_tied=False,
        has_bias=False,
    ),
    KnownModel(
        name="Llama-3.1-8B",
        hidden=4096,
        intermediate=14336,
        layers=32,
        keys=1024,
        vocabulary=128_256,
        parameters=8_030_261_248,
        is_tied=False,
        has_bias=False,
    ),
    KnownModel(
        name="Llama-3.1-70B",
        hidden=8192,
        intermediate=28672,
        layers=80,
        keys=1024,
        vocabulary=128_256,
        parameters=70_553_706_496,
        is_tied=False,
        has_bias=False,
    ),
    KnownModel(
        name="Qwen2.5-0.5B",
        hidden=896,
        intermediate=4864,
        layers=24,
        keys=128,
        vocabulary=151_936,
        parameters=494_032_768,
        is_tied=True,
        has_bias=True,
    ),
    KnownModel(
        name="Qwen2.5-1.5B",
        hidden=1536,
        intermediate=8960,
        layers=28,
        keys=256,
        vocabulary=151_936,
        parameters=1_543_714_304,
        is_tied=True,
        has_bias=True,
    ),
    KnownModel(
        name="Qwen2.5-7B",
        hidden=3584,
        intermediate=18944,
        layers=28,
        keys=512,
        vocabulary=152_064,
        parameters=7_615_616_512,
        is_tied=False,
        has_bias=True,
    ),
    KnownModel(
        name="Qwen2.5-72B",
        hidden=8192,
        intermediate=29568,
        layers=80,
        keys=1024,
        vocabulary=152_064,
        parameters=72_706_203_648,
        is_tied=False,
        has_bias=True,
    ),
)


def write_headers(folder: Path, shapes: dict[str, list[int]], *, is_tied: bool = False) -> Path:
    """Write a model whose weights are missing, and return `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    entries, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * math.prod(shape)
        entries[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    header = json.dumps(entries).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    (folder / "config.json").write_text(json.dumps({"tie_word_embeddings": is_tied}))
    return folder
