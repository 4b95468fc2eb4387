"""The tracker's records <-> JSON, with a schema version. The only place that defines the stored format."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar, get_args

from pydantic import TypeAdapter

from eval_jobs.codec import from_document, to_document
from eval_jobs.types import Checkpoint, CheckpointFormat
from tracker.domain.records.alerts import Alert, Silence
from tracker.domain.records.calibration import Calibration
from tracker.domain.records.reasons import Reason
from tracker.domain.records.types import Acceptance, Gap, Incident, Report, Screened, Verdict, VerdictWord
from tracker.domain.sweeps.types import Turn

Document = Report | Incident | Acceptance | Calibration | Gap | Alert | Silence | Turn
Kind = TypeVar("Kind", bound=Document)

_ADAPTERS: dict[type, TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in get_args(Document)}
_REASON: TypeAdapter[Reason | None] = TypeAdapter(Reason | None)


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


def outline_to_json(report: Report) -> str:
    """Return the outline of a report (`tracker.domain.records.outlines`) as a short JSON document in ASCII."""
    body = [[v.benchmark, v.word, v.score, v.coverage, v.lost_since, *_part(v.screened)] for v in report.verdicts]
    of = {name: getattr(report.checkpoint, name) for name in _OF_CHECKPOINT}
    of |= {"ready_at": report.checkpoint.ready_at.isoformat()}
    missing, rules = _reasons(report.verdicts), report.rules_version
    return to_document({"value": body, "of": [*of.values()], "missing": missing, "rules": rules})


def outline_from_json(text: str, *, plan_id: str, created_at: datetime) -> Report:
    """Read what `outline_to_json` wrote, without validation, which would take longer than everything else.

    Raises:
        StoreError: the text is not an outline of this schema version.
    """
    return from_document(text, lambda d: _outline(d, plan_id, created_at), what="a stored outline")


_WORDS = {str(word): word for word in VerdictWord}
_OF_CHECKPOINT = ("run_id", "step", "uri", "source_uri", "format", "digest", "ready_at", "base_model")
_OF_SCREEN = ("asked", "left_out", "tokens", "seconds", "margin")


def _part(screened: Screened | None) -> list[object]:
    if screened is None:
        return []
    return [[getattr(screened, name) for name in _OF_SCREEN]]


def _reasons(verdicts: Sequence[Verdict]) -> dict[str, object]:
    """Return why results are missing: position of the verdict -> reason."""
    missing = ((str(i), v.reason) for i, v in enumerate(verdicts) if v.word is VerdictWord.MISSING)
    return {position: _REASON.dump_python(reason) for position, reason in missing}


def _outline(document: Mapping[str, Any], plan_id: str, created_at: datetime) -> Report:
    of = dict(zip(_OF_CHECKPOINT, document["of"], strict=True))
    of |= {"format": CheckpointFormat(of["format"]), "ready_at": datetime.fromisoformat(of["ready_at"])}
    checkpoint = Checkpoint(**of)
    missing = document.get("missing", {})  # older versions stored no reasons
    return Report(
        run_id=checkpoint.run_id,
        step=checkpoint.step,
        plan_id=plan_id,
        verdicts=tuple(_outlined(row, missing.get(str(i))) for i, row in enumerate(document["value"])),
        checkpoint=checkpoint,
        created_at=created_at,
        rules_version=document.get("rules", 1),
    )


def _outlined(row: Sequence[Any], reason: Mapping[str, Any] | None) -> Verdict:
    benchmark, word, score, coverage, lost_since, *part = row
    return Verdict(
        benchmark=benchmark,
        word=_WORDS[word],
        reason=_REASON.validate_python(reason) if reason else None,
        score=score,
        stderr=None,
        coverage=coverage,
        alpha_test=0.0,
        lost_since=lost_since,
        screened=Screened(**dict(zip(_OF_SCREEN, part[0], strict=False))) if part else None,
    )
