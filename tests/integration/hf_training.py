"""Two stock Hugging Face trainings on CPU, one after the other, as a process of its own.

    python -m tests.integration.hf_training OUTPUT_DIR PINS

The first saves its whole state into `v0-whole`, the second only the model, in shards, into `v1-shards`.
"""

import argparse
import functools
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

from tests.trainer import wait_until_held

STEPS = 40
SAVE_STEPS = 5


class Tokens:
    """Random token sequences: so short that it takes longer to save a model than to train it."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(0, 128, (8,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


class WaitUntilHeld(TrainerCallback):  # type: ignore[misc]
    """Goes on when a tracker holds what was saved."""

    def __init__(self, pins: Path) -> None:
        self._pins = pins
        self._saved = 0

    def on_save(self, *_: object, **__: object) -> None:
        """Wait; the Trainer has rotated before, and does so again after the next save."""
        self._saved += 1
        wait_until_held(self._pins, self._saved)


def train(output_dir: Path, waiting: WaitUntilHeld, *, model_only: bool, shard_size: str) -> None:
    """Train for STEPS steps; the trainer keeps the newest two checkpoints."""
    config = LlamaConfig(
        vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2
    )
    model = LlamaForCausalLM(config)
    model.save_pretrained = functools.partial(model.save_pretrained, max_shard_size=shard_size)
    arguments = TrainingArguments(
        output_dir=str(output_dir),
        max_steps=STEPS,
        per_device_train_batch_size=2,
        save_steps=SAVE_STEPS,
        save_total_limit=2,
        save_only_model=model_only,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        seed=0,
    )
    Trainer(model=model, args=arguments, train_dataset=Tokens(), callbacks=[waiting]).train()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("pins", type=Path)
    arguments = parser.parse_args()
    waiting = WaitUntilHeld(arguments.pins)
    train(arguments.output_dir / "v0-whole", waiting, model_only=False, shard_size="5GB")
    train(arguments.output_dir / "v1-shards", waiting, model_only=True, shard_size="100KB")


if __name__ == "__main__":
    main()
