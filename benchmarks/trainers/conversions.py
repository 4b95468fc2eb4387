"""Whether a checkpoint that Megatron-core wrote has the same logits after its conversion.

    python -m benchmarks.trainers.conversions        or: make test-trainers

Training with Megatron needs a GPU; its model and its distributed checkpoint do not. NeMo writes the same checkpoint
into `weights/`, with names that begin with `module.`. Exit code 1: the logits differ.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.trainers.beside import FOLDER
from benchmarks.trainers.setups import RECIPES
from benchmarks.versions.environments import interpreter
from tests.requires import PROJECT

REQUIREMENTS = ("megatron-core==0.16.1", "torch==2.13.0", "transformers==5.19.0", "safetensors", "psutil")
KINDS = {"Megatron-core": ("iter_0000050", ""), "NeMo": ("model-step=50/weights", "module.")}
"""Name -> folder of the weights and prefix of the names of tensors."""
BASE = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
"""What `megatron_save.py` builds, with a vocabulary that Megatron has padded to 128."""
LONGEST_S = 300.0
TOLERANCE = 1e-4
COMPARE = """
import sys, torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("converted").eval()
expected = torch.load("logits.pt")
tokens = torch.arange(expected.shape[1]).view(1, -1)
print(float((model(tokens).logits - expected[..., : model.config.vocab_size]).abs().max()))
"""


def main() -> int:
    """Print the largest difference of each kind, and return the exit code."""
    python = interpreter("megatron-core-0.16.1", *REQUIREMENTS)
    worst = 0.0
    for name, (weights, prefix) in KINDS.items():
        difference = _difference(python, FOLDER / name.lower(), weights, prefix)
        worst = max(worst, difference)
        print(f"{name}: logits differ by at most {difference:.1e}", flush=True)
    return int(worst > TOLERANCE)


def _difference(python: Path, folder: Path, weights: str, prefix: str) -> float:
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "base").mkdir(parents=True)
    (folder / "base" / "config.json").write_text(json.dumps(BASE))
    _run(python, folder, RECIPES / "megatron_save.py", weights, prefix)
    source = weights.removesuffix("/weights")
    _run(python, folder, PROJECT / "examples" / "convert" / "from_megatron.py", source, "converted", "base")
    return float(_run(python, folder, "-c", COMPARE))


def _run(python: Path, folder: Path, *arguments: Path | str) -> str:
    command = [python, *arguments]
    with (folder / "log").open("a") as log:
        done = subprocess.run(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=log, timeout=LONGEST_S, check=True, text=True
        )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
