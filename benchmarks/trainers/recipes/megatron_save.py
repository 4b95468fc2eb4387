"""Saves a model of Megatron-core that has not been trained, and its logits: megatron_save.py FOLDER PREFIX.

Megatron-core needs a GPU; a model without training and its distributed checkpoint do not, after a few replacements.
"""

import contextlib
import os
import sys
from pathlib import Path

import torch
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.tensor_parallel import random
from megatron.core.transformer import TransformerConfig

ALONE = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
TOKENS, VOCABULARY = 12, 128


def main(folder: str, prefix: str) -> None:
    """Save into `folder`, with names of tensors that begin with `prefix`; the logits go into logits.pt."""
    os.environ |= ALONE
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.set_device = torch.cuda.synchronize = lambda *_: None
    random.CudaRNGStatesTracker.fork = lambda *_: contextlib.nullcontext()
    torch.distributed.init_process_group("gloo")
    parallel_state.initialize_model_parallel()
    model = _model()
    tokens = torch.arange(TOKENS).view(1, TOKENS)
    mask = torch.triu(torch.ones(TOKENS, TOKENS, dtype=torch.bool), 1).view(1, 1, TOKENS, TOKENS)
    with torch.no_grad():
        torch.save(model(tokens, tokens, mask), "logits.pt")
    Path(folder).mkdir(parents=True)
    dist_checkpointing.save(model.sharded_state_dict(prefix=prefix), folder)


def _model() -> GPTModel:
    config = TransformerConfig(
        num_layers=2,
        hidden_size=64,
        num_attention_heads=4,
        num_query_groups=2,
        ffn_hidden_size=128,
        use_cpu_initialization=True,
        normalization="RMSNorm",
        layernorm_epsilon=1e-6,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        add_bias_linear=False,
        add_qkv_bias=True,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        bias_activation_fusion=False,
        masked_softmax_fusion=False,
        persist_layer_norm=False,
        apply_rope_fusion=False,
        gradient_accumulation_fusion=False,
    )
    torch.manual_seed(3)
    model = GPTModel(
        config=config,
        transformer_layer_spec=get_gpt_layer_local_spec(normalization="RMSNorm"),
        vocab_size=VOCABULARY,
        max_sequence_length=512,
        position_embedding_type="rope",
        share_embeddings_and_output_weights=False,
    )
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


if __name__ == "__main__":
    main(*sys.argv[1:])
