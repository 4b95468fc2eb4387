"""The curves of a run, from its logs and from what the trainer saved with checkpoints."""

from eval_jobs.types import Checkpoint
from tracker.domain.checkpoints.names import unit_of
from tracker.domain.health.logs.thinning import continuing, joined_curves, thinned_curves
from tracker.domain.records.types import CurvePoint
from tracker.ports import CurveReader, TrainingHistory


def curves_of(run_id: str, history: TrainingHistory, *, up_to_step: int | None = None) -> tuple[CurvePoint, ...]:
    """Return all points of a run, without those that training left behind when it went back, ordered by step.

    Raises:
        StoreError: they cannot be read.
    """
    _, logged = history.logged_points(run_id)
    return joined_curves(logged, history.stated_points(run_id), up_to_step=up_to_step)


def curves_at(checkpoint: Checkpoint, history: TrainingHistory) -> tuple[CurvePoint, ...]:
    """Return `curves_of` up to a checkpoint; () for a run that counts epochs."""
    if unit_of(checkpoint.source_uri, checkpoint.step) == "epoch":
        return ()
    return curves_of(checkpoint.run_id, history, up_to_step=checkpoint.step)


def keep_curves(checkpoint: Checkpoint, reader: CurveReader, history: TrainingHistory) -> None:
    """Store what the trainer saved of its curves with a checkpoint, as far as it is new."""
    run_id = checkpoint.run_id
    if saved := thinned_curves(reader.read(checkpoint)):
        # Also what a restarted training left behind is known: an old checkpoint that is found again brings nothing.
        history.append_stated_points(run_id, continuing(saved, history.stated_points(run_id)))
