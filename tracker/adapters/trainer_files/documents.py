"""Reads the small files in which trainers leave their settings: JSON, YAML, and TrainingArguments of torch.save.

    documents = read_documents([pin, checkpoint_folder, output_folder])     # file name -> content

The files come from outside: each is read up to a limit, nothing in it is run, and one that cannot be read is ignored.
"""

import io
import json
import logging
import zipfile
from collections.abc import Sequence
from pathlib import Path

import yaml

from tracker.adapters.trainer_files.plain_pickle import plain_attributes
from tracker.domain.checkpoints.listing import ADAPTER_CONFIG
from tracker.domain.tracking.trainer_facts import Document

log = logging.getLogger(__name__)

MAX_BYTES = 128 << 10
"""Settings take some 20 kB; YAML of this size takes a second or two."""
FILES = (
    "training_args.bin",
    "args.json",
    "training_args.json",
    "training_args.yaml",
    "config.yaml",
    "config.yml",
    "axolotl_config.yaml",
    "torchtune_config.yaml",
    ADAPTER_CONFIG,
)
"""Of Hugging Face, ms-swift, LLaMA-Factory, axolotl, torchtune and PEFT."""


def read_documents(folders: Sequence[Path]) -> dict[str, Document]:
    """Return the content of the `FILES` that can be read, each from the first folder that has it."""
    documents = {}
    for name in FILES:
        path = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if path is not None:
            documents[name] = _read(path)
    return documents


def _read(path: Path) -> Document:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError(f"larger than {MAX_BYTES >> 10} KiB")
        document = _parse(path.suffix, content)
        if not isinstance(document, dict):
            raise TypeError("it contains no names")
    except Exception as error:  # noqa: BLE001 - damaged YAML and archives raise nearly anything
        log.warning("ignored the trainer's %s: %s", path, str(error).partition("\n")[0])
        return {}
    return document


def _parse(suffix: str, content: bytes) -> object:
    if suffix == ".json":
        return json.loads(content)
    if suffix == ".bin":
        return _arguments(content)
    # This loader makes texts only: no objects, no dates, no merged mappings, which can grow without limit.
    return yaml.load(content, Loader=yaml.BaseLoader)  # noqa: S506 - safer than the safe loader


def _arguments(content: bytes) -> object:
    """Return what torch.save wrote: a pickle in an archive."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        name = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
        with archive.open(name) as file:
            return plain_attributes(file.read(MAX_BYTES))
