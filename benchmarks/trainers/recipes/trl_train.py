"""An ordinary script with TRL: SFT, SFT with LoRA, DPO or GRPO on a tiny model."""

import argparse
from pathlib import Path
from typing import Any

from datasets import load_dataset

STEPS, SAVE_STEPS = 200, 40


def main() -> None:
    """Train, from the newest whole checkpoint if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["SFT", "SFT LoRA", "DPO", "GRPO"])
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--report-to", default="none")
    options = parser.parse_args()
    common = {
        "output_dir": "out",
        "max_steps": STEPS,
        "save_steps": SAVE_STEPS,
        "save_total_limit": 2,
        "logging_steps": 10,
        "learning_rate": 1.5e-3,
        "use_cpu": True,
        "bf16": False,
        "report_to": options.report_to,
    }
    states = [path.parent for path in Path("out").glob("checkpoint-*/trainer_state.json")]
    newest = max(states, key=lambda folder: int(folder.name.rpartition("-")[2]), default=None)
    trainer = _trainer(options.kind, common)
    trainer.train(resume_from_checkpoint=str(newest) if options.resume and newest else None)
    trainer.save_model()


def _trainer(kind: str, common: dict[str, Any]) -> Any:  # noqa: ANN401 - TRL has no common base
    if kind == "DPO":
        from trl import DPOConfig, DPOTrainer

        data = load_dataset("json", data_files="preferences.jsonl", split="train")
        return DPOTrainer("base", args=DPOConfig(per_device_train_batch_size=8, **common), train_dataset=data)
    if kind == "GRPO":
        from trl import GRPOConfig, GRPOTrainer

        def is_high(completions: list[list[dict[str, str]]], **_: object) -> list[float]:
            return [sum(map(ord, one[0]["content"])) / 1000 for one in completions]

        data = load_dataset("json", data_files="prompts.jsonl", split="train")
        args = GRPOConfig(per_device_train_batch_size=4, num_generations=4, max_completion_length=4, **common)
        return GRPOTrainer("base", args=args, train_dataset=data, reward_funcs=is_high)
    from trl import SFTConfig, SFTTrainer

    adapter = None
    if kind == "SFT LoRA":
        from peft import LoraConfig

        adapter = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear")
    data = load_dataset("json", data_files="chats.jsonl", split="train")
    args = SFTConfig(per_device_train_batch_size=8, **common)
    return SFTTrainer("base", args=args, train_dataset=data, peft_config=adapter)


if __name__ == "__main__":
    main()
