"""torchtitan with a tiny Llama on one process. It needs an accelerator; the first lines let it do without."""

from types import SimpleNamespace
from typing import Any

import torch
import torch._utils
import torch.distributed
from torch.nn.functional import scaled_dot_product_attention

torch._utils._get_available_device_type = lambda: "cpu"
torch.cpu.get_device_name = lambda _: "CPU"
torch.cpu.get_device_properties = lambda _: SimpleNamespace(total_memory=1 << 30)
torch.cpu.reset_peak_memory_stats = torch.cpu.empty_cache = lambda: None
torch.cpu.memory_stats = lambda _: {}
torch.cpu.current_device = lambda: 0
torch.distributed.set_timeout = lambda *_: None

from torchtitan.components.checkpoint import CheckpointManager  # noqa: E402
from torchtitan.components.loss import CrossEntropyLoss  # noqa: E402
from torchtitan.components.metrics import MetricsProcessor  # noqa: E402
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw  # noqa: E402
from torchtitan.config import TrainingConfig  # noqa: E402
from torchtitan.hf_datasets.text_datasets import ChatDataLoader  # noqa: E402
from torchtitan.models.common.attention import FlexAttention  # noqa: E402
from torchtitan.tools.logging import init_logger  # noqa: E402
from torchtitan.trainer import Trainer  # noqa: E402
from torchtitan_parts import VOCABULARY, model_registry  # noqa: E402


def _attention(query: Any, key: Any, value: Any, **options: Any) -> tuple[Any, None]:
    """Flex attention has no backward on a CPU."""
    known = {name: options[name] for name in ("scale", "enable_gqa")}
    return scaled_dot_product_attention(query, key, value, is_causal=True, **known), None


def main() -> None:
    """Train, from the newest checkpoint if there is one."""
    FlexAttention.compiled_flex_attn = staticmethod(_attention)
    config = Trainer.Config(
        loss=CrossEntropyLoss.Config(global_vocab_size=VOCABULARY),
        hf_assets_path="base",
        model_spec=model_registry("tiny"),
        optimizer=default_adamw(lr=1.5e-3),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=2),
        training=TrainingConfig(
            local_batch_size=4, seq_len=128, steps=200, disable_cuda_graphs=True, mixed_precision_param="float32"
        ),
        dataloader=ChatDataLoader.Config(
            dataset_path="json",
            load_dataset_kwargs={"data_files": "chats.jsonl", "split": "train"},
            sample_processor=_messages,
        ),
        metrics=MetricsProcessor.Config(log_freq=10),
        checkpoint=CheckpointManager.Config(enable=True, interval=40, keep_latest_k=2, last_save_model_only=False),
        dump_folder="out",
    )
    init_logger()
    trainer = config.build()
    trainer.train()
    trainer.close()


def _messages(row: dict[str, Any]) -> Any:
    return row["messages"]


if __name__ == "__main__":
    main()
