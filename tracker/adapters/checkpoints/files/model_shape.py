"""The size of a model and of its largest layer, from the headers of its safetensors files."""

import math
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from eval_jobs import limits
from eval_jobs.errors import CheckpointUnreadable
from eval_jobs.host.bounded.files import read_bytes
from eval_jobs.host.bounded.json_text import parse_json
from tracker.adapters.checkpoints.files.safetensors_file import read_tensors
from tracker.domain.checkpoints.listing import CONFIG, INDEX
from tracker.domain.checkpoints.raw.tensors import TensorFact
from tracker.domain.readiness.training.memory import LORA_RANK, ModelShape

_HINT = "name the folder of a Hugging Face model with config.json and *.safetensors"
_EXPERT = re.compile(r"(\.experts)\.\d+\..*")
_NO_LINEAR = ("embed", "wte", "wpe", "lm_head")
"""In the names of tables and of the last layer, which LoRA leaves as they are."""


def read_shape(folder: Path) -> ModelShape:
    """Return the size of the model in a folder. Reads only headers.

    Raises:
        CheckpointUnreadable: it holds no model in this format, a quantized one, or a file is damaged.
        CheckpointIncomplete: a file is damaged.
    """
    try:
        files = _files_of(folder)
        config = parse_json(read_bytes(folder / CONFIG, limits.DOCUMENT))
        tensors = read_tensors(files)
    except (OSError, ValueError) as error:
        raise CheckpointUnreadable(f"cannot read the model in {folder}: {error}", hint=_HINT) from error
    if not isinstance(config, dict):
        raise CheckpointUnreadable(f"{folder / CONFIG} is not a JSON object", hint=_HINT)
    if config.get("quantization_config"):
        raise CheckpointUnreadable(f"the model in {folder} is quantized", hint="name the folder of the original model")
    return shape_of(str(folder), tensors, is_tied=config.get("tie_word_embeddings") is True)


def _files_of(folder: Path) -> list[Path]:
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise CheckpointUnreadable(f"{folder} {what}", hint=_HINT)
    files = _indexed(folder) or sorted(folder.glob("model*.safetensors")) or sorted(folder.glob("*.safetensors"))
    if not files or not (folder / CONFIG).is_file():
        raise CheckpointUnreadable(f"{folder} has no {CONFIG if files else '*.safetensors'}", hint=_HINT)
    return files


def _indexed(folder: Path) -> list[Path]:
    """Return the files that the index names: beside them may be the same weights in another form."""
    if not (folder / INDEX).is_file():
        return []
    index = parse_json(read_bytes(folder / INDEX, limits.DOCUMENT))
    files = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(files, dict) or not files:
        raise ValueError(f"{INDEX} has no weight_map")
    return sorted(folder / name for name in set(map(str, files.values())))


def shape_of(where: str, tensors: Iterable[TensorFact], *, is_tied: bool) -> ModelShape:
    """Return the size of a model with these tensors; the experts of a layer are one module, as they are gathered."""
    counted = [one for one in tensors if not (is_tied and one.name == "lm_head.weight")]
    layers: Counter[str] = Counter()
    adapters = 0
    for one in counted:
        layers[_EXPERT.sub(r"\1", one.name).rpartition(".")[0]] += math.prod(one.shape)
        if len(one.shape) == 2 and not any(part in one.name for part in _NO_LINEAR):
            adapters += LORA_RANK * sum(one.shape)
    return ModelShape(
        where=where, parameters=layers.total(), largest_layer=max(layers.values(), default=0), lora_parameters=adapters
    )
