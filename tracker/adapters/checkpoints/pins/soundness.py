"""Checks the content of a held checkpoint that is complete by its sizes, also in comparison with the run so far.

A lost write leaves zeros, and a trainer that crashed midway may leave tensors out; an engine serves both without an
error. A checkpoint is compared with the nearest pin of the same run and output folder, if possible an earlier one:
other folders may hold other models.
"""

from collections.abc import Iterator
from pathlib import Path

from eval_jobs.errors import CheckpointError, CheckpointIncomplete, CheckpointUnreadable
from eval_jobs.types import CheckpointFormat
from tracker.adapters.checkpoints.files.documents import read_document
from tracker.adapters.checkpoints.files.safetensors_file import read_tensors
from tracker.adapters.checkpoints.pins.manifest import read_pin
from tracker.domain.checkpoints.listing import ADAPTER_CONFIG, CONFIG, Broken, Document
from tracker.domain.checkpoints.pin import Pin
from tracker.domain.checkpoints.raw.tensor_names import Earlier, absent_by_config, compare_weights, tensors_text
from tracker.domain.checkpoints.raw.tensors import WeightsContent, never_written

PUBLISHED = "step-"
"""Prefix of the names of published pins; the step and the digest follow."""

_SAVE_AGAIN = "save this step again: it is pinned once it is complete"
_NEW_FOLDER = "save this step again; if the model was changed on purpose, use a new output folder"


def demand_sound(pin: Pin, content: WeightsContent) -> tuple[str, ...]:
    """Return notes on what is unusual about a held checkpoint.

    Raises:
        CheckpointIncomplete: parts were never written, tensors are missing, or they hold zeros where an earlier
            checkpoint of the run holds numbers.
        CheckpointUnreadable: an adapter names its base model by a path relative to the trainer's folder.
    """
    fault = never_written(content)
    if fault:
        raise CheckpointIncomplete(f"cannot evaluate {pin.source}: {fault}", hint=_SAVE_AGAIN)
    config = _config(pin)
    if pin.complete.format is CheckpointFormat.FULL:
        absent = absent_by_config([t.name for t in content.tensors], config)
        if absent:
            fault = f"{tensors_text(absent)} missing, but implied by its config.json"
            raise CheckpointIncomplete(f"cannot evaluate {pin.source}: {fault}", hint=_SAVE_AGAIN)
    base = _base_notes(pin)
    earlier = _earlier(pin)
    if earlier is None:
        return base
    found = compare_weights(content, config, earlier)
    if found.fault:
        raise CheckpointIncomplete(f"cannot evaluate {pin.source}: {found.fault}", hint=_NEW_FOLDER)
    return (*base, *found.notes)


def _base_notes(pin: Pin) -> tuple[str, ...]:
    """Return a note on where an adapter's base model is loaded from, unless it is an absolute path."""
    base = pin.complete.base_model
    if base is None or Path(base).is_absolute():
        return ()
    if base.startswith("."):
        raise CheckpointUnreadable(
            f"{pin.source} references its base model {base} by a path relative to the trainer's folder, "
            "and not exactly one folder above it has that model",
            hint="set base_model_name_or_path in adapter_config.json to its absolute path",
        )
    return (f"base model {base} is not an absolute path: the engine looks for it in the Hugging Face cache",)


def _earlier(pin: Pin) -> Earlier | None:
    """Return the nearest checkpoint below this step that can be compared, else the nearest at or above it."""
    parent = Path(pin.folder).parent
    for folder in _nearest(parent, pin.step):
        other = read_pin(folder)
        if other is None or other.checkpoint is None or other.complete.format is not pin.complete.format:
            continue
        if Path(other.source).parent != Path(pin.source).parent:
            continue
        try:
            tensors = read_tensors(folder / name for name in other.complete.weights)
        except (OSError, CheckpointError):
            continue  # no longer readable, or weights in another file format
        return Earlier(
            step=other.step, tensors={t.name: t for t in tensors}, config=_config(other), zeros=frozenset(other.zeros)
        )
    return None


def _nearest(parent: Path, step: int) -> Iterator[Path]:
    steps = {path: int(path.name.split("-")[1]) for path in parent.glob(f"{PUBLISHED}*") if _has_step(path)}
    yield from sorted((path for path in steps if steps[path] < step), key=lambda p: (-steps[p], p))
    yield from sorted((path for path in steps if steps[path] >= step), key=lambda p: (steps[p], p))


def _has_step(path: Path) -> bool:
    parts = path.name.split("-")
    return len(parts) > 1 and parts[1].isdecimal()


def _config(pin: Pin) -> Document:
    name = ADAPTER_CONFIG if pin.complete.format is CheckpointFormat.LORA else CONFIG
    document = read_document(Path(pin.folder) / name)
    if isinstance(document, Broken):
        return {}
    return document
