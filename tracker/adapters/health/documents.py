"""The records of training health <-> JSON, with a schema version."""

from typing import TypeVar

from pydantic import TypeAdapter

from eval_jobs.codec import from_document, to_document
from tracker.domain.health.logs.cursor import Cursor
from tracker.domain.health.run_state import RunState, StreamState
from tracker.domain.records.training import Dismissal, TrainingIncident

T = TypeVar("T")

_STATE = TypeAdapter(RunState)
_STREAM = TypeAdapter(tuple[Cursor, StreamState])
_INCIDENT = TypeAdapter(TrainingIncident)
_DISMISSAL = TypeAdapter(Dismissal)


def state_to_json(state: RunState) -> str:
    """Return a document of what was read of a run."""
    return to_document({"value": _STATE.dump_python(state, mode="json")})


def state_from_json(text: str) -> RunState:
    """Read it; a StoreError says that it is damaged or of another version."""
    return _read(_STATE, text, "a stored state of logs")


def stream_to_json(cursor: Cursor, state: StreamState) -> str:
    """Return a document of how far a log was read."""
    return to_document({"value": _STREAM.dump_python((cursor, state), mode="json")})


def stream_from_json(text: str) -> tuple[Cursor, StreamState]:
    """Read it; a StoreError says that it is damaged or of another version."""
    return _read(_STREAM, text, "a stored cursor of a log")


def incident_to_json(incident: TrainingIncident) -> str:
    """Return a document of an incident."""
    return to_document({"value": _INCIDENT.dump_python(incident, mode="json")})


def incident_from_json(text: str) -> TrainingIncident:
    """Read it; a StoreError says that it is damaged or of another version."""
    return _read(_INCIDENT, text, "a stored incident of a training")


def dismissal_to_json(dismissal: Dismissal) -> str:
    """Return a document of a user's decision."""
    return to_document({"value": _DISMISSAL.dump_python(dismissal, mode="json")})


def dismissal_from_json(text: str) -> Dismissal:
    """Read it; a StoreError says that it is damaged or of another version."""
    return _read(_DISMISSAL, text, "a stored dismissal of an incident")


def _read(adapter: TypeAdapter[T], text: str, what: str) -> T:
    return from_document(text, lambda document: adapter.validate_python(document["value"]), what=what)
