"""Tiny random Llama checkpoints, as a Hugging Face trainer writes them: real files for real engines, in milliseconds.

    folder = write_checkpoint(tmp_path / "checkpoint-100", seed=1)
    adapter = write_lora(folder, tmp_path / "adapter", rank=4, seed=2)

Two layers of 64 in fp32 with untied embeddings and a character-level tokenizer over printable ASCII. The weights are
drawn widely enough that two seeds answer differently. Written by hand: importing torch takes longer than all the rest.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from eval_jobs.types import Checkpoint, CheckpointFormat

HIDDEN = 64
INTERMEDIATE = 128
LAYERS = 2
HEADS = 2
MAX_POSITIONS = 512
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")
VOCABULARY = (*SPECIAL, "\n", "\t", *map(chr, range(32, 127)))

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)

Tensors = dict[str, NDArray[np.float32]]


def write_checkpoint(folder: Path, *, seed: int = 0) -> Path:
    """Write a complete checkpoint in one safetensors file and return `folder`."""
    _write_model_files(folder)
    save_file(random_tensors(seed), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def write_sharded_checkpoint(folder: Path, *, seed: int = 0, shards: int = 2) -> Path:
    """Write the checkpoint of `seed` in `shards` files with an index; the same weights as `write_checkpoint`."""
    _write_model_files(folder)
    tensors = random_tensors(seed)
    weight_map: dict[str, str] = {}
    for number in range(shards):
        name = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        part = {key: tensors[key] for key in sorted(tensors)[number::shards]}
        save_file(part, folder / name, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, name)
    total = sum(tensor.nbytes for tensor in tensors.values())
    _write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": weight_map})
    return folder


def write_lora(base: Path, folder: Path, *, rank: int = 4, seed: int = 0) -> Path:
    """Write a PEFT adapter on the attention of `base`, strong enough to change its answers, and return `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    tensors: Tensors = {}
    for layer in range(LAYERS):
        for module in ("q_proj", "v_proj"):
            prefix = f"base_model.model.model.layers.{layer}.self_attn.{module}"
            tensors[f"{prefix}.lora_A.weight"] = _normal(generator, rank, HIDDEN, std=0.5)
            tensors[f"{prefix}.lora_B.weight"] = _normal(generator, HIDDEN, rank, std=0.5)
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    _write_json(
        folder / "adapter_config.json",
        {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": str(base),
            "r": rank,
            "lora_alpha": 2 * rank,
            "lora_dropout": 0.0,
            "bias": "none",
            "fan_in_fan_out": False,
            "inference_mode": True,
            "target_modules": ["q_proj", "v_proj"] if seed % 2 else ["v_proj", "q_proj"],  # PEFT writes a set
        },
    )
    return folder


def checkpoint_record(
    folder: Path, *, step: int = 100, run_id: str = "tiny", base: Path | None = None, digest: str = ""
) -> Checkpoint:
    """Return the record of a written checkpoint; with `base` it is an adapter's. By default with its real digest."""
    return Checkpoint(
        run_id=run_id,
        step=step,
        uri=str(folder),
        source_uri=str(folder),
        format=CheckpointFormat.FULL if base is None else CheckpointFormat.LORA,
        digest=digest or _weights_digest(folder) or f"{step:064x}",
        ready_at=datetime(2026, 1, 1, tzinfo=UTC),
        base_model=None if base is None else str(base),
    )


def random_tensors(seed: int) -> Tensors:
    """Return the weights of `seed` by their Hugging Face names."""
    generator = np.random.default_rng(seed)
    vocabulary = len(VOCABULARY)
    tensors: Tensors = {
        "model.embed_tokens.weight": _normal(generator, vocabulary, HIDDEN),
        "lm_head.weight": _normal(generator, vocabulary, HIDDEN),
        "model.norm.weight": np.ones(HIDDEN, dtype=np.float32),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        for module in ("q_proj", "k_proj", "v_proj", "o_proj"):
            tensors[f"{prefix}.self_attn.{module}.weight"] = _normal(generator, HIDDEN, HIDDEN)
        for module in ("gate_proj", "up_proj"):
            tensors[f"{prefix}.mlp.{module}.weight"] = _normal(generator, INTERMEDIATE, HIDDEN)
        tensors[f"{prefix}.mlp.down_proj.weight"] = _normal(generator, HIDDEN, INTERMEDIATE)
        for module in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{prefix}.{module}.weight"] = np.ones(HIDDEN, dtype=np.float32)
    return tensors


# --- private


def _weights_digest(folder: Path) -> str:
    """Return the digest as a pin has it, "" where nothing is written yet."""
    found = [path.read_bytes() for path in sorted(folder.glob("*.safetensors"))]
    return hashlib.sha256(b"".join(found)).hexdigest() if found else ""


def _normal(generator: np.random.Generator, rows: int, columns: int, *, std: float = 0.15) -> NDArray[np.float32]:
    return generator.normal(0.0, std, (rows, columns)).astype(np.float32)


def _write_model_files(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", _config())
    _write_json(folder / "tokenizer.json", _tokenizer())
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "pad_token": "<pad>",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "model_max_length": MAX_POSITIONS,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    )
    _write_json(folder / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0})


def _config() -> Mapping[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(VOCABULARY),
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HIDDEN // HEADS,
        "hidden_act": "silu",
        "max_position_embeddings": MAX_POSITIONS,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "dtype": "float32",
    }


def _tokenizer() -> Mapping[str, object]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    bos = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": index, "content": token, **flags} for index, token in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[\\s\\S]"}, "behavior": "Isolated", "invert": False},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [bos, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [bos, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        },
        "decoder": {"type": "Fuse"},
        "model": {
            "type": "WordLevel",
            "vocab": {token: index for index, token in enumerate(VOCABULARY)},
            "unk_token": "<unk>",
        },
    }


def _write_json(path: Path, value: Mapping[str, object]) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")
