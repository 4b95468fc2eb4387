"""Two stock Hugging Face trainings on CPU, one after the other, as a process of its own.

    python -m tests.integration.hf_training OUTPUT_DIR

The first saves its whole state into `v0-whole`, the second only the model, in shards, into `v1-shards`.
"""

from __future__ import annotations

import argparse
import functools
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

STEPS = 40
SAVE_STEPS = 5


class Tokens:
    """Random token sequences."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(0, 128, (96,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


def train(output_dir: Path, *, model_only: bool, shard_size: str) -> None:
    """Train for STEPS steps; the trainer keeps the newest two checkpoints."""
    config = LlamaConfig(
        vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2
    )
    model = LlamaForCausalLM(config)
    model.save_pretrained = functools.partial(model.save_pretrained, max_shard_size=shard_size)
    arguments = TrainingArguments(
        output_dir=str(output_dir),
        max_steps=STEPS,
        per_device_train_batch_size=64,
        save_steps=SAVE_STEPS,
        save_total_limit=2,
        save_only_model=model_only,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        seed=0,
    )
    Trainer(model=model, args=arguments, train_dataset=Tokens()).train()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("output_dir", type=Path)
    output_dir: Path = parser.parse_args().output_dir
    train(output_dir / "v0-whole", model_only=False, shard_size="5GB")
    train(output_dir / "v1-shards", model_only=True, shard_size="100KB")


if __name__ == "__main__":
    main()
