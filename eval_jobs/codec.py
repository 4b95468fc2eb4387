"""Convert records to and from JSON with a schema version. Only this module writes and checks versioned documents."""

import json
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter

from eval_jobs.errors import OtherSchema, StoreError
from eval_jobs.records.progress import Progress
from eval_jobs.types import EvalPlan, EvalRecord, Outcome

SCHEMA_VERSION = 1
BACKUP = "restore the database from a backup"

T = TypeVar("T")

_ID = re.compile(r"[\w-]{1,64}", re.ASCII)

_RECORD = TypeAdapter(EvalRecord)
_OUTCOME: TypeAdapter[Outcome] = TypeAdapter(Outcome)


def to_document(fields: Mapping[str, object], *, indent: int | None = None) -> str:
    """Return a JSON document in ASCII with these fields and the schema version."""
    separators = (",", ":") if indent is None else None
    return json.dumps({"schema_version": SCHEMA_VERSION, **fields}, indent=indent, separators=separators)


def from_document(text: str | bytes, read: Callable[[Any], T], *, what: str, hint: str = BACKUP) -> T:
    """Parse the output of `to_document`.

    Args:
        text: the document.
        read: builds a record from its fields; a ValueError, LookupError or TypeError means a damaged document.
        what: name of the document in errors.
        hint: hint of the error for a damaged document.

    Raises:
        OtherSchema: the document has another schema version.
        StoreError: the document is damaged.
    """
    try:
        document = json.loads(text)
        if document["schema_version"] == SCHEMA_VERSION:
            return read(document)
    except (ValueError, LookupError, TypeError) as error:  # pydantic's ValidationError is a ValueError
        raise StoreError(f"{what} is damaged", hint=hint) from error
    raise OtherSchema(
        f"{what} has schema version {document['schema_version']}; this version supports {SCHEMA_VERSION}",
        hint="use the version of checkpoint-tracker that wrote it, or a newer one",
    )


class ValueDocument(Generic[T]):
    """JSON documents of one type of value, called `what` in errors."""

    def __init__(self, kind: type[T], what: str) -> None:
        self._adapter: TypeAdapter[T] = TypeAdapter(kind)
        self._what = what

    def to_json(self, value: T) -> str:
        """Return the value as a JSON document."""
        return to_document({"value": self._adapter.dump_python(value, mode="json")})

    def from_json(self, text: str) -> T:
        """Parse the output of `to_json`.

        Raises:
            StoreError: the text is damaged, or of another schema version.
        """
        return from_document(text, lambda d: self._adapter.validate_python(d["value"]), what=self._what)


_PLAN = ValueDocument(EvalPlan, "a stored plan")
_PROGRESS = ValueDocument(Progress, "stored progress")


def plan_to_json(plan: EvalPlan) -> str:
    """Return the plan as a JSON document."""
    return _PLAN.to_json(plan)


def plan_from_json(text: str) -> EvalPlan:
    """Parse the output of `plan_to_json`.

    Raises:
        StoreError: the text is not a plan of this schema version.
    """
    plan = _PLAN.from_json(text)
    _check_id(plan)
    return plan


def record_to_bytes(record: EvalRecord) -> bytes:
    """Return the record, samples included, as compressed JSON, one benchmark after the other to save memory."""
    bare = to_document({"value": _RECORD.dump_python(replace(record, outcomes=()), mode="json")})
    # Inside a text of the document, its quotes would be escaped.
    before, outcomes, after = bare.partition('"outcomes":[]')
    packer, packed = zlib.compressobj(level=3), []
    for number, outcome in enumerate(record.outcomes):
        lead = "," if number else before + outcomes[:-1]
        text = json.dumps(_OUTCOME.dump_python(outcome, mode="json"), separators=(",", ":"))
        packed.append(packer.compress((lead + text).encode()))
    rest = f"]{after}" if record.outcomes else bare
    return b"".join((*packed, packer.compress(rest.encode()), packer.flush()))


def record_from_bytes(data: bytes) -> EvalRecord:
    """Parse the output of `record_to_bytes`.

    Raises:
        StoreError: the bytes are not a record of this schema version.
    """
    try:
        text = zlib.decompress(data).decode()
    except (zlib.error, UnicodeDecodeError) as error:
        raise StoreError("a stored record is damaged", hint=BACKUP) from error
    record = from_document(text, lambda d: _RECORD.validate_python(d["value"]), what="a stored record")
    _check_id(record.plan)
    return record


def progress_to_json(progress: Progress | None) -> str:
    """Return the progress as a JSON document without control characters; empty for None."""
    if progress is None:
        return ""
    return _PROGRESS.to_json(progress)


def progress_from_json(text: str) -> Progress | None:
    """Parse the output of `progress_to_json`.

    Raises:
        StoreError: the text is not progress of this schema version.
    """
    if not text:
        return None
    return _PROGRESS.from_json(text)


def _check_id(plan: EvalPlan) -> None:
    """Reject an ID that is not a plain folder name: a modified database could otherwise cause path traversal."""
    if not _ID.fullmatch(plan.id):
        raise StoreError(f"a stored plan has the invalid id {plan.id!r}", hint=BACKUP)
