"""Writes a distributed checkpoint of torchtitan as a Hugging Face folder.

    [watch]
    convert = ["python", "from_torchtitan.py", "{source}", "{target}", "torchtitan.models.llama3", "8B", "BASE"]

After the model's module and flavor: BASE, the folder that `hf_assets_path` names. It has the configuration and the
tokenizer. Run it with the Python that has torchtitan.
"""

import importlib
import shutil
import sys
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file


def main(source: str, target: str, module: str, flavor: str, base: str) -> None:
    """Convert the folder `source` into the folder `target`."""
    spec = importlib.import_module(module).model_registry(flavor)
    with torch.device("meta"):
        model = spec.model.build()
    state = {name: torch.empty_like(tensor, device="cpu") for name, tensor in model.state_dict().items()}
    dcp.load(state, checkpoint_id=source)
    tensors = spec.state_dict_adapter(spec.model, base).to_hf(state)
    folder = Path(target)
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    for file in Path(base).iterdir():
        if file.suffix in {".json", ".jinja", ".model"} and "index" not in file.name:
            shutil.copy(file, folder / file.name)


if __name__ == "__main__":
    main(*sys.argv[1:])
