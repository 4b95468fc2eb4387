"""Reads from a checkpoint's folder what serving needs: the tokenizer's folder, and an adapter's configuration."""

import os
from pathlib import Path

from eval_jobs import limits
from eval_jobs.errors import CheckpointNotFound, CheckpointUnreadable
from eval_jobs.host.bounded.files import read_bytes
from eval_jobs.host.bounded.json_text import parse_json
from eval_jobs.types import Checkpoint

ADAPTER_CONFIG = "adapter_config.json"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json")


def require_folders(checkpoint: Checkpoint) -> None:
    """Raise CheckpointNotFound if the checkpoint or its base is missing, before an engine spends 20 s on it."""
    if not Path(checkpoint.uri).is_dir():
        raise CheckpointNotFound(
            f"no checkpoint at {checkpoint.uri}",
            hint="restore it: it was moved or deleted after its evaluation was planned",
        )
    base = checkpoint.base_model
    # A relative path may be a name in the Hugging Face cache, which only the engine can resolve.
    if base and Path(base).is_absolute() and not os.path.isdir(base):  # noqa: PTH112 - takes names of any length
        raise CheckpointNotFound(
            f"no base model at {base}, required by the adapter {checkpoint.uri}",
            hint="restore the base model, or correct base_model_name_or_path in adapter_config.json",
        )


def has_tokenizer(folder: Path) -> bool:
    """Return whether a tokenizer was saved in the folder."""
    return any((folder / name).is_file() for name in TOKENIZER_FILES)


def tokenizer_folder(checkpoint: Checkpoint) -> str:
    """Return the folder that holds the checkpoint's tokenizer, "" if there is none.

    A tokenizer saved with an adapter takes precedence over the base's: its chat template was used in training.
    """
    folders = [checkpoint.uri, checkpoint.base_model or ""]
    return next((folder for folder in folders if folder and has_tokenizer(Path(folder))), "")


def adapter_config(folder: Path) -> dict[str, object]:
    """Return the content of adapter_config.json; {} if it is not a JSON object.

    Raises:
        CheckpointUnreadable: it is missing or invalid.
    """
    path = folder / ADAPTER_CONFIG
    try:
        config = parse_json(read_bytes(path, limits.DOCUMENT))
    except (OSError, ValueError) as error:
        raise CheckpointUnreadable(
            f"cannot read {path}: {error}", hint="the adapter is incomplete; evaluate another step"
        ) from error
    return config if isinstance(config, dict) else {}
