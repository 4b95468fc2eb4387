"""An ordinary script with TRL: SFT, SFT with LoRA, DPO or GRPO on a tiny model.

FSDP2 and DeepSpeed are trained on two processes without an accelerator, which accelerate and DeepSpeed do not expect:
see `_pretend`.
"""

import argparse
from pathlib import Path
from typing import Any

from datasets import load_dataset

STEPS, SAVE_STEPS = 200, 40
SHARDED: dict[str, dict[str, Any]] = {
    "fsdp2": {
        "ddp_backend": "gloo",
        "fsdp": True,
        "fsdp_config": {
            "version": 2,
            "state_dict_type": "SHARDED_STATE_DICT",
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        },
    },
    "zero2": {
        "use_cpu": False,
        "deepspeed": {
            "zero_optimization": {"stage": 2},
            "train_micro_batch_size_per_gpu": 8,
            "optimizer": {"type": "AdamW", "params": {"lr": 1.5e-3, "torch_adam": True}},
        },
    },
}


def main() -> None:
    """Train, from the newest whole checkpoint if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["SFT", "SFT LoRA", "DPO", "GRPO"])
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--report-to", default="none")
    parser.add_argument("--output-dir", default="out")
    parser.add_argument("--sharded", choices=["fsdp2", "zero2"])
    options = parser.parse_args()
    common = {
        "output_dir": options.output_dir,
        "max_steps": STEPS,
        "save_steps": SAVE_STEPS,
        "save_total_limit": 2,
        "logging_steps": 10,
        "learning_rate": 1.5e-3,
        "use_cpu": True,
        "bf16": False,
        "report_to": options.report_to,
    } | SHARDED.get(options.sharded, {})
    states = [path.parent for path in Path("out").glob("checkpoint-*/trainer_state.json")]
    newest = max(states, key=lambda folder: int(folder.name.rpartition("-")[2]), default=None)
    trainer = _trainer(options.kind, common, sharded=options.sharded)
    trainer.train(resume_from_checkpoint=str(newest) if options.resume and newest else None)
    trainer.save_model()


def _trainer(kind: str, common: dict[str, Any], *, sharded: str | None) -> Any:
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
    if sharded and args.device.type == "cpu":
        _pretend(sharded)
    return SFTTrainer("base", args=args, train_dataset=data, peft_config=adapter)


def _pretend(sharded: str) -> None:
    """Let accelerate shard on a CPU: it reads these once more when the trainer is made."""
    from accelerate.state import DistributedType, PartialState
    from torch import distributed

    rank = distributed.get_rank()
    found = {"num_processes": distributed.get_world_size(), "process_index": rank, "local_process_index": rank}
    if sharded == "fsdp2":
        found["distributed_type"] = DistributedType.MULTI_XPU
    PartialState._shared_state |= found


if __name__ == "__main__":
    main()
