"""Why a checkpoint folder cannot be used: not yet, or not at all. Pure records."""

from dataclasses import dataclass

from eval_jobs.errors import CheckpointIncomplete

KILLED_HINT = "if the trainer was killed while saving, delete the folder or save this step again"


@dataclass(frozen=True, kw_only=True)
class NotYet:
    """The folder is incomplete and may still become complete."""

    code: str
    reason: str
    hint: str


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """The folder cannot become usable by waiting."""

    code: str
    reason: str
    hint: str


def not_yet(reason: str, *, code: str = CheckpointIncomplete.code, hint: str = KILLED_HINT) -> NotYet:
    """Return a `NotYet` with the defaults for missing files."""
    return NotYet(code=code, reason=reason, hint=hint)
