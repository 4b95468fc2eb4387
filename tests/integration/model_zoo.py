"""Writes tiny random models of many architectures with transformers' own save_pretrained.

python -m tests.integration.model_zoo FOLDER KIND...
"""

import sys
from pathlib import Path

from transformers import AutoConfig, AutoModelForCausalLM

SMALL = {
    "vocab_size": 200,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "head_dim": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
OWN_NAMES = {"gpt2": {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 64}}


def main(folder: Path, *kinds: str) -> None:
    for kind in kinds:
        for tied in (True, False):
            config = AutoConfig.for_model(kind, **SMALL, **OWN_NAMES.get(kind, {}), tie_word_embeddings=tied)
            AutoModelForCausalLM.from_config(config).save_pretrained(folder / f"{kind}-{tied}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
