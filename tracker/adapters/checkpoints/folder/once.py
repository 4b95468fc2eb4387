"""Pins one named checkpoint folder, without watching."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from eval_jobs.errors import CheckpointError, CheckpointIncomplete, CheckpointNotFound
from eval_jobs.types import Checkpoint
from tracker.adapters.checkpoints.consolidate.consolidator import consolidator_of
from tracker.adapters.checkpoints.files.documents import read_document
from tracker.adapters.checkpoints.files.listing import (
    CheckpointLocation,
    facts_of_folder,
    model_in,
    places_in,
    read_listing,
    step_named,
)
from tracker.adapters.checkpoints.pins.hold import hold, publish, refusal, remove_folder, store_error
from tracker.domain.checkpoints.completeness import Complete, assess, stated_step
from tracker.domain.checkpoints.listing import EXPORT_HINT, TRAINER_STATE, Facts, Listing, single_files
from tracker.domain.checkpoints.names import is_step, step_of
from tracker.domain.checkpoints.unusable import NotYet, Rejected
from tracker.domain.checkpoints.watching import WatchOptions

_SIGNS = ("config.json", "adapter_config.json", "model.safetensors.index.json", "trainer_state.json")
"""A folder without weights is an incomplete checkpoint if it has one of these, else no checkpoint."""


def pin_folder(
    path: Path, *, run_id: str, pins_dir: Path, options: WatchOptions | None = None, step: int | None = None
) -> Checkpoint:
    """Pin one folder: a trainer's checkpoint, or the output of save_pretrained; a sharded state is converted.

    Without `step`, it is the one in the folder's name (`checkpoint-100`), in trainer_state.json, or of the last
    checkpoint in the folder if the training has ended there. A model with none of these is not part of the run: it gets
    the run `run_id/<name of the folder>`.

    Raises:
        CheckpointNotFound: the folder does not exist, or is not a checkpoint.
        CheckpointIncomplete: files are missing, truncated or still being written.
        CheckpointUnreadable: NaN or Inf weights, or files that are not what their names say.
        CheckpointUnsafe: there are only pickle weights.
        ConsolidationFailed: a sharded state could not be converted on this machine.
        DiskFull, StoreError: the pin cannot be written, or the checkpoint may not be read.
    """
    folder = path.absolute()
    if step_of(folder.name) is not None:
        folder = model_in(folder)
    options = options or WatchOptions()
    try:
        facts = _facts(folder)
        listing = read_listing(facts, step_named(folder), config_from=options.config_from)
    except OSError as error:
        raise store_error(error, f"cannot read {folder}") from error
    readiness = assess(listing, allow_pickle=options.allow_pickle, converts=bool(options.convert))
    if not isinstance(readiness, Complete):
        raise _error(folder, facts, readiness)
    place = _location(folder, listing, readiness, run_id, step)
    pin = hold(place, facts, readiness, pins_dir)
    if pin is None:
        raise CheckpointIncomplete(
            f"{folder} changed while being pinned", hint="retry after the trainer has finished saving"
        )
    try:
        return publish(replace(consolidator_of(options, pins_dir).whole(pin), by_hand=True))
    finally:
        remove_folder(Path(pin.folder))


def _location(folder: Path, listing: Listing, complete: Complete, run_id: str, step: int | None) -> CheckpointLocation:
    if step is None:
        step = stated_step(listing, complete)
    if step is None:
        step = _end_of_training(folder)
    if step is None:
        return CheckpointLocation(run_id=f"{run_id}/{folder.name}", step=0, path=folder)
    return CheckpointLocation(run_id=run_id, step=step, path=folder)


def _end_of_training(folder: Path) -> int | None:
    """Return the step of a final save beside checkpoints, of which the last one is from the last step."""
    inside = places_in(folder, run_name="")
    state = read_document(inside[-1].path / TRAINER_STATE) if inside else None
    if not isinstance(state, Mapping):
        return None
    step, end = state.get("global_step"), state.get("max_steps")
    return step if is_step(step) and step == end else None


def _facts(folder: Path) -> Facts:
    if folder.exists() and not folder.is_dir():
        hint = EXPORT_HINT if single_files([folder.name]) else "pass the folder with config.json and the weights"
        raise CheckpointNotFound(f"{folder} is a file", hint=hint)
    facts = facts_of_folder(folder)
    if facts is None:
        raise CheckpointNotFound(f"{folder} does not exist", hint="check the path; the trainer may have deleted it")
    return facts


def _holds_weights(facts: Facts) -> bool:
    return any(f.name.endswith((".safetensors", ".bin", ".distcp", ".pt")) for f in facts.files)


def _error(folder: Path, facts: Facts, readiness: NotYet | Rejected) -> CheckpointError:
    if not facts.problem and not _holds_weights(facts):
        inside = places_in(folder, run_name="")
        names = [str(place.path.relative_to(folder)) for place in inside]
        if names:
            hint = f"pass one of its checkpoints: {', '.join(names[:5])}"
            return CheckpointNotFound(f"{folder} is not a checkpoint", hint=hint)
        if facts.names().isdisjoint(_SIGNS):
            what = "contains no checkpoint" if facts.files or facts.folders else "is empty"
            return CheckpointNotFound(f"{folder} {what}", hint="pass the folder with config.json and the weights")
    return refusal(str(folder), readiness)
