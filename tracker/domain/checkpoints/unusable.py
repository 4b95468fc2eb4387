"""Why a checkpoint folder cannot be used: not yet, or not at all. Pure records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eval_jobs.errors import CheckpointIncomplete, CheckpointUnreadable
from eval_jobs.limits import cut
from tracker.domain.checkpoints.listing import ADAPTER, INDEX, SINGLE, Broken, Document, is_state_folder
from tracker.domain.records.display import names_text, one_line

KILLED_HINT = "if the trainer was killed while saving, delete the folder or save this step again"


@dataclass(frozen=True, kw_only=True)
class NotYet:
    """The folder is incomplete and may still become complete."""

    code: str
    reason: str
    hint: str
    is_elsewhere: bool = False
    """The folder itself may be complete: what is missing is a setting, or a file that another folder may have."""


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """The folder cannot become usable by waiting."""

    code: str
    reason: str
    hint: str
    is_elsewhere: bool = False
    """As in `NotYet`."""


def not_yet(reason: str, *, code: str = CheckpointIncomplete.code, hint: str = KILLED_HINT) -> NotYet:
    """Return a `NotYet` with the defaults for missing files."""
    return NotYet(code=code, reason=cut(reason), hint=hint)


def rejected(reason: str, *, code: str = CheckpointIncomplete.code, hint: str) -> Rejected:
    """Return a `Rejected`, by default for files that do not fit together."""
    return Rejected(code=code, reason=cut(reason), hint=hint)


def two_saves(one: str, other: str) -> Rejected:
    """Return the rejection of weights in two forms."""
    reason = f"found both {one} and {other}: files of two saves are mixed"
    return rejected(reason, hint="delete the files of the older save")


def weight_map_of(document: Document | Broken | None, name: str) -> Mapping[str, object] | NotYet:
    """Return the file of each tensor from an index of shards, or why there is none."""
    if isinstance(document, Broken):
        return not_yet(f"{name} {document.text}", code=document.code)
    weight_map = None if document is None else document.get("weight_map")
    if isinstance(weight_map, Mapping) and weight_map:
        return weight_map
    return not_yet(f"{name} has no weight_map", code=CheckpointUnreadable.code)


_ELSEWHERE_HINT = (
    "save safetensors into the folder itself, or convert them; `tracker evaluate FOLDER` takes a model in a sub-folder"
)


def no_weights(folders: Sequence[str], names: frozenset[str]) -> NotYet:
    """Return what is known of a folder of other files: its sub-folders and the names of its files."""
    for name in folders:
        if is_state_folder(name):
            return not_yet(f"found an incomplete sharded training state {name} and no {SINGLE}")
    if names and not folders:
        return not_yet(f"no weights: {SINGLE}, {INDEX} and {ADAPTER} are missing")
    if not folders:
        return not_yet("folder is empty")
    what = f"no weights in the Hugging Face format: only {names_text([one_line(name) for name in folders[:3]])}"
    return not_yet(what, hint=_ELSEWHERE_HINT)
