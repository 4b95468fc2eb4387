"""The records of training health <-> JSON, with a schema version."""

from eval_jobs.codec import ValueDocument
from tracker.domain.health.logs.cursor import Cursor
from tracker.domain.health.run_state import RunState, StreamState
from tracker.domain.records.training import Dismissal, TrainingIncident

STATE = ValueDocument(RunState, "a stored state of logs")
"""What was read of a run."""
STREAM = ValueDocument(tuple[Cursor, StreamState], "a stored cursor of a log")
"""How far a log was read."""
INCIDENT = ValueDocument(TrainingIncident, "a stored incident of a training")
DISMISSAL = ValueDocument(Dismissal, "a stored dismissal of an incident")
