"""An ordinary LightningModule around a Hugging Face model, with ModelCheckpoint."""

import argparse
import json
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

STEPS, SAVE_STEPS = 200, 40


class Tuned(lightning.LightningModule):  # type: ignore[misc]
    """The model as its attribute `model`."""

    def __init__(self) -> None:
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained("base")

    def training_step(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the loss."""
        loss = self.model(**batch, labels=batch["input_ids"]).loss
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=1.5e-3)


def main() -> None:
    """Train, from the newest checkpoint if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained("base")
    rows = [json.loads(line)["messages"] for line in Path("chats.jsonl").read_text().splitlines()]
    texts = [tokenizer.apply_chat_template(row, tokenize=False) for row in rows]
    loader = DataLoader(
        texts,
        batch_size=8,
        collate_fn=lambda some: dict(tokenizer(some, return_tensors="pt", padding=True, return_token_type_ids=False)),
    )
    saving = ModelCheckpoint(every_n_train_steps=SAVE_STEPS, save_top_k=2, monitor="step", mode="max", save_last=True)
    trainer = lightning.Trainer(
        max_steps=STEPS,
        accelerator="cpu",
        default_root_dir="out",
        logger=CSVLogger("out", version=0),
        log_every_n_steps=10,
        callbacks=[saving],
    )
    found = sorted(Path("out").rglob("*step=*.ckpt"), key=lambda path: path.stat().st_mtime)
    trainer.fit(Tuned(), loader, ckpt_path=str(found[-1]) if options.resume and found else None)


if __name__ == "__main__":
    main()
