"""What changed in a store. Frozen values."""

from dataclasses import dataclass
from enum import StrEnum


class ChangeKind(StrEnum):
    """What changed."""

    PLAN = "plan"
    """A plan in the queue, or the progress of its evaluation; the key is the id of the plan."""
    EVALUATION = "evaluation"
    """Scores or verdicts; the key is the id of the plan."""
    LOSS = "loss"
    """A loss of a benchmark."""
    GAP = "gap"
    """A checkpoint that is not evaluated."""
    ALERT = "alert"
    """The key is the fingerprint."""
    TRAINING = "training"
    """Incidents of a training."""
    PROGRESS = "progress"
    """How a training stands by its logs."""
    CURVES = "curves"
    """New points of training curves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A thing that changed; what it is now, its own table says."""

    kind: ChangeKind
    key: str
    run_id: str
