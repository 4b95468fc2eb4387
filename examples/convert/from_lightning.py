"""Writes the Hugging Face model inside a checkpoint of PyTorch Lightning as a Hugging Face folder.

    [watch]
    convert = ["python", "from_lightning.py", "{source}", "{target}", "BASE"]

BASE is the folder or the name of the model that training started from: it has the configuration and the tokenizer. The
LightningModule keeps the model in an attribute; its name is found from the names of the tensors.
"""

import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer


def main(source: str, target: str, base: str) -> None:
    """Convert `source`, a .ckpt file, into the folder `target`."""
    state = torch.load(source, map_location="cpu", weights_only=True)["state_dict"]
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(base))
    first = next(iter(model.state_dict()))
    prefix = next(name.removesuffix(first) for name in state if name.endswith(first))
    own = {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
    missing, unexpected = model.load_state_dict(own, strict=False)
    tied = set(model.all_tied_weights_keys or ()) if hasattr(model, "all_tied_weights_keys") else set()
    if unexpected or set(missing) - tied:
        raise SystemExit(f"{source} is not {base}: missing {missing[:3]}, unexpected {unexpected[:3]}")
    model.to(next(iter(own.values())).dtype).save_pretrained(target)
    AutoTokenizer.from_pretrained(base).save_pretrained(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
