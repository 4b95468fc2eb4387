"""The tracker's records <-> JSON, with a schema version. The only place that defines the stored format."""

from collections.abc import Mapping
from typing import Any, TypeVar, get_args

from pydantic import TypeAdapter

from eval_jobs.codec import from_document, to_document
from tracker.domain.health.stored import RunProgress
from tracker.domain.records.alerts import Alert, Silence
from tracker.domain.records.calibration import Calibration
from tracker.domain.records.losses import Acceptance, Incident
from tracker.domain.records.reasons import Reason
from tracker.domain.records.types import Gap, Report
from tracker.domain.scores.series_changes import SeriesChange
from tracker.domain.sweeps.types import Turn

Document = Report | Incident | Acceptance | Calibration | Gap | Alert | Silence | Turn | SeriesChange
Kind = TypeVar("Kind", bound=Document)

_ADAPTERS: dict[type, TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in get_args(Document)}
_REASON: TypeAdapter[Reason | None] = TypeAdapter(Reason | None)
_SUMMARY = TypeAdapter(dict[str, float])


def to_json(value: Document) -> str:
    """Return the record as a JSON document in ASCII."""
    fields = _ADAPTERS[type(value)].dump_python(value, mode="json")
    if isinstance(value, Gap) and value.last_step is None:
        del fields["last_step"], fields["count"]  # as older versions store it
    return to_document({"value": fields})


def from_json(kind: type[Kind], text: str) -> Kind:
    """Read what `to_json` wrote.

    Raises:
        StoreError: the text is not a `kind` of this schema version.
    """
    value: Kind = from_document(
        text, lambda d: _ADAPTERS[kind].validate_python(d["value"]), what=f"a stored {kind.__name__.lower()}"
    )
    return value


def stored_step(alert: Alert) -> int:
    """Return the column `step` of an alert; -1: unknown."""
    return -1 if alert.step is None else alert.step


def progress_columns(progress: RunProgress) -> dict[str, object]:
    """Return the columns of how a run stands."""
    return {
        "last_step": progress.last_step,
        "productive_share": progress.productive_share,
        "progress": progress.state,
        "usual_s": progress.usual_s,
        "summary": _SUMMARY.dump_json(dict(progress.summary)).decode(),
    }


def summary_from_json(text: str) -> Mapping[str, float]:
    """Return the column `summary` of how a run stands."""
    return _SUMMARY.validate_json(text)
