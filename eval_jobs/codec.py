"""Records <-> JSON, with a schema version. The only place that knows how a record is written down."""

from __future__ import annotations

import json
import re
import zlib
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from eval_jobs.errors import StoreError
from eval_jobs.records.progress import Progress
from eval_jobs.types import EvalPlan, EvalRecord

SCHEMA_VERSION = 1

T = TypeVar("T")

_ID = re.compile(r"[\w-]{1,64}", re.ASCII)

_PLAN = TypeAdapter(EvalPlan)
_RECORD = TypeAdapter(EvalRecord)
_PROGRESS = TypeAdapter(Progress)


def plan_to_json(plan: EvalPlan) -> str:
    """Return the plan as a JSON document."""
    return _wrap(_PLAN.dump_python(plan, mode="json"))


def plan_from_json(text: str) -> EvalPlan:
    """Read what `plan_to_json` wrote.

    Raises:
        StoreError: the text is not a plan of this schema version.
    """
    plan = _read(_PLAN, "plan", text)
    _check_id(plan)
    return plan


def record_to_bytes(record: EvalRecord) -> bytes:
    """Return the record, samples included, as compressed JSON."""
    return zlib.compress(_wrap(_RECORD.dump_python(record, mode="json")).encode(), level=3)


def record_from_bytes(data: bytes) -> EvalRecord:
    """Read what `record_to_bytes` wrote.

    Raises:
        StoreError: the bytes are not a record of this schema version.
    """
    try:
        text = zlib.decompress(data).decode()
    except (zlib.error, UnicodeDecodeError) as error:
        raise StoreError("a stored record is damaged", hint="restore the tracker's database from a backup") from error
    record = _read(_RECORD, "record", text)
    _check_id(record.plan)
    return record


def progress_to_json(progress: Progress | None) -> str:
    """Return the progress as a JSON document without control characters; empty for None."""
    return "" if progress is None else _wrap(_PROGRESS.dump_python(progress, mode="json"))


def progress_from_json(text: str) -> Progress | None:
    """Read what `progress_to_json` wrote.

    Raises:
        StoreError: the text is no progress of this schema version.
    """
    return _read(_PROGRESS, "progress", text) if text else None


# --- private


def _wrap(value: object) -> str:
    return json.dumps({"schema_version": SCHEMA_VERSION, "value": value}, separators=(",", ":"))


def _check_id(plan: EvalPlan) -> None:
    """Refuse an id that is no name of a folder: whoever may write to the database could lead us out of ours."""
    if not _ID.fullmatch(plan.id):
        raise StoreError(f"a stored plan has the id {plan.id!r}", hint="somebody else has written to the database")


def _read(adapter: TypeAdapter[T], what: str, text: str) -> T:
    try:
        document = json.loads(text)
        version = document["schema_version"]
        if version != SCHEMA_VERSION:
            raise StoreError(
                f"a stored {what} has schema version {version}; this program reads {SCHEMA_VERSION}",
                hint="use the version of checkpoint-tracker that wrote it, or a newer one",
            )
        return adapter.validate_python(document["value"], strict=False)
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise StoreError(f"a stored {what} is damaged", hint="restore the database from a backup") from error
