"""What the tracker concludes <-> JSON, with a schema version. The only place that knows how it is written down."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from eval_jobs.errors import StoreError
from tracker.domain.types import Acceptance, Alert, Episode, Gap, Report

SCHEMA_VERSION = 1

Document = Report | Episode | Acceptance | Gap | Alert
Kind = TypeVar("Kind", Report, Episode, Acceptance, Gap, Alert)

_KINDS: tuple[type[Document], ...] = (Report, Episode, Acceptance, Gap, Alert)
_ADAPTERS: dict[type[Document], TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in _KINDS}


def to_json(value: Document) -> str:
    """Return the record as a JSON document in ASCII."""
    body = _ADAPTERS[type(value)].dump_python(value, mode="json")
    return json.dumps({"schema_version": SCHEMA_VERSION, "value": body}, separators=(",", ":"))


def from_json(kind: type[Kind], text: str) -> Kind:
    """Read what `to_json` wrote.

    Raises:
        StoreError: the text is not a `kind` of this schema version.
    """
    what = kind.__name__.lower()
    try:
        document = json.loads(text)
        version = document["schema_version"]
        if version == SCHEMA_VERSION:
            value: Kind = _ADAPTERS[kind].validate_python(document["value"], strict=False)
            return value
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise StoreError(f"a stored {what} is damaged", hint="restore the database from a backup") from error
    raise StoreError(
        f"a stored {what} has schema version {version}; this program reads {SCHEMA_VERSION}",
        hint="use the version of checkpoint-tracker that wrote it, or a newer one",
    )
