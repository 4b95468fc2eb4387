"""What an engine is to serve: everything that can be checked, and refused, before a process is started or changed."""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from eval_jobs.errors import CheckpointUnreadable, ConfigError
from eval_jobs.host.bounded.files import file_digest, open_regular
from eval_jobs.host.gpus import VISIBLE_DEVICES, have_batch_invariance
from eval_jobs.identity import content_hash
from eval_jobs.records.served_files import is_served
from eval_jobs.serve.process.chat_template import demand_bounded_template
from eval_jobs.serve.process.checkpoint_files import ADAPTER_CONFIG, adapter_config, require_folders, tokenizer_folder
from eval_jobs.serve.process.launch import BATCH_INVARIANT, gpus_of, rank_of, refuse_reserved
from eval_jobs.serve.process.sglang_launch import DETERMINISTIC
from eval_jobs.serve.weights.digest_check import ADAPTER_WEIGHTS
from eval_jobs.serve.weights.fingerprint import Fingerprint, fingerprint_of
from eval_jobs.serve.worker_extension.tracker_worker.weight_files import BadWeights, TensorEntry, read_entries
from eval_jobs.types import Checkpoint, CheckpointFormat, EngineKind, ServeSpec

ACCELERATORS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg", "/dev/accel", "/dev/accel0")
"""Device files of NVIDIA, AMD, WSL and others; if none exists, vLLM runs on the CPU."""


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """Content of an adapter's folder, without the values of its weights."""

    rank: int
    layout: str
    """Hash of its tensors' names, types and shapes, and of its configuration."""
    served: str
    """Hash of the tokenizer and chat template saved with it, which an engine reads only at its start."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """One checkpoint and how it is to be served."""

    checkpoint: Checkpoint
    spec: ServeSpec
    python: str
    """Path of the Python interpreter that runs the engine."""
    on_cpu: bool
    tokenizer: str
    """Folder that holds the checkpoint's tokenizer."""
    model: Fingerprint | None
    """Fingerprint of the checkpoint, or of an adapter's base; None: it cannot be read, `unread` has the reason."""
    unread: str = ""
    adapter: Adapter | None = None
    """None for a full checkpoint."""
    gpus: int = 0
    """Number of GPUs that its engine uses."""
    is_batch_invariant: bool = False
    """Whether outputs must not depend on the rest of the batch."""


def take_order(checkpoint: Checkpoint, spec: ServeSpec) -> Order:
    """Check the checkpoint and the settings, and return the order.

    Raises:
        ConfigError: a setting is invalid.
        CheckpointNotFound: the checkpoint or its base is missing.
        CheckpointUnreadable: an adapter's configuration or header cannot be read.
        TemplateUnbounded: rendering the chat template does not end.
    """
    refuse_reserved(spec.args)
    require_folders(checkpoint)
    # Without a tokenizer, vLLM's own error is the clearest.
    tokenizer = tokenizer_folder(checkpoint) or checkpoint.uri
    if not _names_template(spec):
        demand_bounded_template(Path(tokenizer))
    on_cpu = runs_on_cpu()
    adapter = _adapter(checkpoint) if checkpoint.format is CheckpointFormat.LORA else None
    model, unread = _model(Path((checkpoint.base_model or "") if adapter else checkpoint.uri))
    return Order(
        checkpoint=checkpoint,
        spec=spec,
        python=interpreter(spec.python),
        on_cpu=on_cpu,
        tokenizer=tokenizer,
        model=model,
        unread=unread,
        adapter=adapter,
        gpus=0 if on_cpu else gpus_of(spec.args),
        is_batch_invariant=not on_cpu and _wants_batch_invariance(spec),
    )


def runs_on_cpu() -> bool:
    """Return whether an engine on this machine computes on the CPU, because there is no accelerator."""
    return not any(Path(device).exists() for device in ACCELERATORS)


def interpreter(python: str) -> str:
    """Return the path of the Python interpreter that runs the engine.

    Raises:
        ConfigError: `python` is not an executable file.
    """
    if not python:
        return sys.executable
    path = Path(python).expanduser()
    if path.is_dir():
        raise ConfigError(f"serve.python is a folder: {path}", hint=f"set it to {path}/bin/python")
    found = shutil.which(path)
    if found is None:
        raise ConfigError(
            f"serve.python is not an executable file: {python}",
            hint="set it to the Python interpreter of the engine's environment, such as /opt/vllm/bin/python",
        )
    return found


def is_without_effect(adapter: Path) -> bool:
    """Return whether one factor of each product of an adapter is zero, as at the first step of a training.

    An adapter that cannot be read counts as having no effect.
    """
    try:
        with open_regular(adapter / ADAPTER_WEIGHTS) as file:
            halves = [entry for entry in read_entries(file, ADAPTER_WEIGHTS) if "lora_B" in entry.name]
            return not any(_has_numbers(file, entry) for entry in halves)
    except (BadWeights, OSError):
        return True


_CHUNK_BYTES = 8 << 20
_BYTES_OF_ZEROS = b"\x00\x80"
"""Bytes of 0 and of -0."""


def _has_numbers(file: BinaryIO, entry: TensorEntry) -> bool:
    file.seek(entry.begin)
    left = entry.end - entry.begin
    while left:
        chunk = file.read(min(left, _CHUNK_BYTES))
        if not chunk or chunk.translate(None, _BYTES_OF_ZEROS):
            return bool(chunk)
        left -= len(chunk)
    return False


def _names_template(spec: ServeSpec) -> bool:
    return any(argument.split("=", 1)[0].replace("_", "-") == "--chat-template" for argument in spec.args)


def _wants_batch_invariance(spec: ServeSpec) -> bool:
    if spec.engine is EngineKind.SGLANG:
        return DETERMINISTIC in spec.args
    setting = os.environ.get(BATCH_INVARIANT)
    if setting is None:
        return have_batch_invariance(os.environ.get(VISIBLE_DEVICES))
    return setting == "1"


def _model(folder: Path) -> tuple[Fingerprint | None, str]:
    if not folder.is_absolute():
        return None, "its base model is not a local folder, so its files are unknown"
    try:
        return fingerprint_of(folder), ""
    except CheckpointUnreadable as error:
        # Not refused here: vLLM may be able to read it, and its own error is the clearest.
        return None, error.message


def _adapter(checkpoint: Checkpoint) -> Adapter:
    folder = Path(checkpoint.uri)
    config = adapter_config(folder)
    rank = rank_of(config, where=str(folder / ADAPTER_CONFIG))
    try:
        # An engine reads these files at its start only.
        others = sorted(path for path in folder.iterdir() if is_served(path.name) and path.name != ADAPTER_CONFIG)
        with open_regular(folder / ADAPTER_WEIGHTS) as file:
            tensors = [[entry.name, entry.dtype, entry.shape] for entry in read_entries(file, ADAPTER_WEIGHTS)]
        served = [[path.name, file_digest(path)] for path in others]
    except (BadWeights, OSError, ValueError) as error:
        raise CheckpointUnreadable(
            f"cannot read {folder}: {error}", hint="the adapter is incomplete; evaluate another step"
        ) from error
    # The location of the base is compared separately.
    settings = {key: _unordered(config[key]) for key in config if key != "base_model_name_or_path"}
    layout = content_hash([sorted(tensors), settings])
    return Adapter(rank=rank, layout=layout, served=content_hash(served))


def _unordered(value: object) -> object:
    """Return names in one order: PEFT writes sets, and a resumed training has another order."""
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return sorted(value)
    return value
