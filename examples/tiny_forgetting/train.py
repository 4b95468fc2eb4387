"""An ordinary training run: a small Llama, the stock Hugging Face Trainer, CPU only.

Nothing here knows that anybody watches. It writes `out/checkpoint-N` and, as `save_total_limit` says, deletes old ones.

    python train.py --output-dir out
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from chat_tokenizer import MAX_LENGTH, build_tokenizer, encode_turn
from data import BATCH_SIZE, SAVE_EVERY_STEPS, SEED, Row, curriculum
from datasets import Dataset
from transformers import (
    DataCollatorForSeq2Seq,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainerState,
    TrainingArguments,
    set_seed,
)


def main() -> None:
    """Train phase 1, then phase 2, in one run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output-dir", type=Path, default=Path("out"))
    parser.add_argument("--crash-at", type=int, metavar="STEP", help="run out of memory at STEP")
    given = parser.parse_args()
    output_dir = given.output_dir
    set_seed(SEED)
    tokenizer = build_tokenizer()
    trainer = Trainer(
        model=build_model(tokenizer),
        args=training_arguments(output_dir),
        train_dataset=tokenised(curriculum(), tokenizer),
        processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer),
        callbacks=[] if given.crash_at is None else [OutOfMemory(given.crash_at)],
    )
    trainer.train()


class OutOfMemory(TrainerCallback):
    """Asks for more memory than any machine has."""

    def __init__(self, step: int) -> None:
        self._step = step

    def on_step_end(self, _args: TrainingArguments, state: TrainerState, *_: object, **__: object) -> None:
        """Fail as a batch does that is too large."""
        if state.global_step >= self._step:
            torch.empty(10**15)


def build_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Return an untrained Llama of 0.8 million parameters."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=MAX_LENGTH,
        tie_word_embeddings=False,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)


def training_arguments(output_dir: Path) -> TrainingArguments:
    """Return the settings of the run: 10 checkpoints, of which the newest two are kept."""
    return TrainingArguments(
        output_dir=str(output_dir),
        per_device_train_batch_size=BATCH_SIZE,
        num_train_epochs=1,
        train_sampling_strategy="sequential",  # the curriculum's order is the whole point
        learning_rate=1.5e-3,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=30,
        weight_decay=0.0,
        save_steps=SAVE_EVERY_STEPS,
        save_total_limit=2,
        logging_steps=10,
        use_cpu=True,
        seed=SEED,
        report_to="none",
    )


def tokenised(rows: list[Row], tokenizer: PreTrainedTokenizerFast) -> Dataset:
    """Return the rows as token ids and labels, in their order."""
    return Dataset.from_list([encode_turn(tokenizer, row.question, row.answer) for row in rows])


if __name__ == "__main__":
    main()
