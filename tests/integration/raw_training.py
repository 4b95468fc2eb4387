"""Training states of every kind, made by the frameworks themselves on CPU with two ranks.

RANK=0 python -m tests.integration.raw_training FOLDER        and the same with RANK=1

FOLDER/base                     the model that training began with, with its tokenizer
FOLDER/out-fsdp/checkpoint-10   accelerate's save_fsdp_model of a model under fully_shard, as Trainer calls it
FOLDER/out-dcp/step-10          torch.distributed.checkpoint: model (tied embeddings) and optimizer in one state
FOLDER/out-zero<N>/...          DeepSpeed ZeRO 1 and 2 (tied) by the engine alone
FOLDER/out-zero3/checkpoint-2   a stock Trainer under ZeRO 3, which gathers no weights
FOLDER/out-bin/checkpoint-<N>   pytorch_model.bin: 1 whole (tied), 2 in shards; 3 an adapter
FOLDER/out-hostile/checkpoint-1 DeepSpeed ZeRO 1 with an object that makes the folder `ran` when it is unpickled
FOLDER/merged                   what accelerate's merge_fsdp_weights makes of out-fsdp
FOLDER/expected/<kind>.safetensors   the trained weights, gathered by other means than those that are tested
"""

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.state import AcceleratorState
from accelerate.utils import merge_fsdp_weights, save_fsdp_model, save_fsdp_optimizer
from deepspeed.utils import safe_get_full_fp32_param
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

from tests import trainer
from tests.tiny_model import VOCABULARY, write_checkpoint, write_lora

# Compiling this kernel takes most of a minute, and gloo does its work.
deepspeed.ops.__compatible_ops__.update(dict.fromkeys(("deepspeed_shm_comm", "deepspeed_shm_comm_op"), False))

SIZE = 2


def main() -> None:
    folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=SIZE)
    (folder / "expected").mkdir(exist_ok=True)
    if rank == 0:
        write_checkpoint(folder / "base", seed=3)
    dist.barrier()
    fsdp(folder, rank)
    for stage in (1, 2):
        zero(folder, stage, rank)
    merge_fsdp_weights(str(folder / "out-fsdp/checkpoint-10/pytorch_model_fsdp_0"), str(folder / "merged"))
    if rank == 0:
        pickles(folder)
        hostile(folder)
    zero_by_trainer(folder, rank)  # last: from here on transformers shards every model that it loads
    dist.barrier()
    dist.destroy_process_group()


def fsdp(folder: Path, rank: int) -> None:
    """Shard a model over both ranks, train it one step and save it in two ways."""
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, state_dict_type="SHARDED_STATE_DICT", cpu_offload=False)
    accelerator = Accelerator(cpu=True, fsdp_plugin=plugin)
    for kind, is_tied in (("fsdp", False), ("dcp", True)):
        model = load(folder, is_tied=is_tied)
        mesh = init_device_mesh("cpu", (SIZE,))
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        model(input_ids=tokens(), labels=tokens()).loss.backward()
        optimizer.step()
        if kind == "fsdp":
            out = folder / "out-fsdp" / "checkpoint-10"
            save_fsdp_model(plugin, accelerator, model, str(out))
            save_fsdp_optimizer(plugin, accelerator, optimizer, model, str(out))
            finish(out, rank, step=10)
        else:
            state = {
                "model": get_model_state_dict(model),
                "optimizer": get_optimizer_state_dict(model, optimizer),
                "step": 10,
            }
            dcp.save(state, checkpoint_id=folder / "out-dcp" / "step-10")
        whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        expect(folder, kind, whole, rank)


def zero(folder: Path, stage: int, rank: int) -> None:
    """Train one step under DeepSpeed's engine alone."""
    model = load(folder, is_tied=stage == 2)
    settings = {**DEEPSPEED, "zero_optimization": {"stage": stage}}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
    engine.backward(engine(input_ids=tokens(), labels=tokens()).loss)
    engine.step()
    engine.save_checkpoint(str(folder / f"out-zero{stage}" / "checkpoint-1"))
    expect(folder, f"zero{stage}", {n: safe_get_full_fp32_param(p) for n, p in model.named_parameters()}, rank)


def zero_by_trainer(folder: Path, rank: int) -> None:
    """Let a stock Trainer save under ZeRO 3 as it does by default: the ranks' states and no weights."""
    AcceleratorState._reset_state(reset_partial_state=True)  # one process has one kind of training otherwise
    arguments = TrainingArguments(
        output_dir=str(folder / "out-zero3"),
        max_steps=2,
        save_steps=2,
        per_device_train_batch_size=2,
        deepspeed={"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3}},
        optim="adamw_torch",
        report_to=[],
        disable_tqdm=True,
    )
    model = AutoModelForCausalLM.from_pretrained(folder / "base")
    run = Trainer(
        model=model,
        args=arguments,
        train_dataset=[{"input_ids": row, "labels": row} for row in tokens().repeat(4, 1)],
        processing_class=AutoTokenizer.from_pretrained(folder / "base"),
    )
    run.train()
    expect(folder, "zero3", {n: safe_get_full_fp32_param(p) for n, p in model.named_parameters()}, rank)


def pickles(folder: Path) -> None:
    """Write weights with torch.save, beside the small files of the base model."""
    for number, is_tied in ((1, True), (2, False)):
        out = folder / "out-bin" / f"checkpoint-{number}"
        shutil.copytree(folder / "base", out, ignore=shutil.ignore_patterns("*.safetensors"))
        state = load(folder, is_tied=is_tied).state_dict()
        if is_tied:
            trainer.write_json(out / "config.json", {**json.loads((out / "config.json").read_text()), **TIED})
            torch.save(state, out / "pytorch_model.bin")
        else:
            names = sorted(state)
            shards = {f"pytorch_model-0000{n + 1}-of-00002.bin": names[n::2] for n in range(2)}
            for file, part in shards.items():
                torch.save({name: state[name] for name in part}, out / file)
            weight_map = {name: file for file, part in shards.items() for name in part}
            trainer.write_json(out / "pytorch_model.bin.index.json", {"weight_map": weight_map})
        expect(folder, f"bin{number}", state, 0)
    adapter = write_lora(folder / "base", folder / "out-bin" / "checkpoint-3")
    state = load_file(adapter / "adapter_model.safetensors")
    torch.save(state, adapter / "adapter_model.bin")
    (adapter / "adapter_model.safetensors").unlink()
    expect(folder, "bin3", state, 0)


class Hostile:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.makedirs, (self.folder, 0o700, True))


def hostile(folder: Path) -> None:
    """Put an object that runs code into one rank's optimizer state."""
    shutil.copytree(folder / "out-zero1", folder / "out-hostile")
    path = next((folder / "out-hostile").rglob("*rank_1*_optim_states.pt"))
    state = torch.load(path, weights_only=False)
    torch.save({**state, "extra": Hostile(str(folder / "ran"))}, path)


# --- private

TIED = {"tie_word_embeddings": True}

DEEPSPEED: Mapping[str, Any] = {
    "train_micro_batch_size_per_gpu": 2,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
}


def load(folder: Path, *, is_tied: bool) -> Any:
    if not is_tied:
        return AutoModelForCausalLM.from_pretrained(folder / "base")
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder / "base", tie_word_embeddings=True))


def tokens() -> torch.Tensor:
    return torch.arange(24).remainder(len(VOCABULARY)).reshape(2, 12)


def finish(out: Path, rank: int, *, step: int) -> None:
    """Write what Trainer writes after the states."""
    torch.save(torch.get_rng_state(), out / f"rng_state_{rank}.pth")
    dist.barrier()
    if rank == 0:
        (out / "trainer_state.json").write_text(json.dumps(trainer.trainer_state(step)), encoding="utf-8")


def expect(folder: Path, kind: str, state: Mapping[str, torch.Tensor], rank: int) -> None:
    if rank == 0:
        tensors = {name: tensor.detach().clone().contiguous() for name, tensor in state.items()}
        save_file(tensors, folder / "expected" / f"{kind}.safetensors")


if __name__ == "__main__":
    main()
