"""The curves of a run up to a checkpoint, from its logs and from what the trainer saved."""

from eval_jobs.types import Checkpoint
from tracker.domain.checkpoints.names import unit_of
from tracker.domain.health.logs.thinning import joined_curves
from tracker.domain.records.types import CurvePoint
from tracker.ports import CurveReader, TrainingHistory


def curves_at(checkpoint: Checkpoint, reader: CurveReader, history: TrainingHistory) -> tuple[CurvePoint, ...]:
    """Return all points known at this checkpoint, ordered by step; () for a run that counts epochs.

    Raises:
        StoreError: the points of the logs cannot be read.
    """
    if unit_of(checkpoint.source_uri, checkpoint.step) == "epoch":
        return ()
    _, logged = history.logged_points(checkpoint.run_id)
    return joined_curves(logged, reader.read(checkpoint), up_to_step=checkpoint.step)
