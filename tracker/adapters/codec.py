"""What the tracker concludes <-> JSON, with a schema version. The only place that knows how it is written down."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from eval_jobs.errors import StoreError
from tracker.domain.types import Acceptance, Alert, Episode, Gap, Report

Document = Report | Episode | Acceptance | Gap | Alert
Kind = TypeVar("Kind", Report, Episode, Acceptance, Gap, Alert)

_KINDS: tuple[type[Document], ...] = (Report, Episode, Acceptance, Gap, Alert)
_VERSIONS: dict[type[Document], int] = dict.fromkeys(_KINDS, 1) | {Report: 2}
_ADAPTERS: dict[type[Document], TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in _KINDS}


def to_json(value: Document) -> str:
    """Return the record as a JSON document in ASCII."""
    body = _ADAPTERS[type(value)].dump_python(value, mode="json")
    return json.dumps({"schema_version": _VERSIONS[type(value)], "value": body}, separators=(",", ":"))


def from_json(kind: type[Kind], text: str) -> Kind:
    """Read what `to_json` wrote, now or in an earlier schema version.

    Raises:
        StoreError: the text is not a `kind` of a schema version that is known.
    """
    what, newest = kind.__name__.lower(), _VERSIONS[kind]
    try:
        document = json.loads(text)
        version, body = document["schema_version"], document["value"]
        if kind is Report and version == 1:
            version, body = newest, _without_comparisons(body)
        if version == newest:
            value: Kind = _ADAPTERS[kind].validate_python(body, strict=False)
            return value
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise StoreError(f"a stored {what} is damaged", hint="restore the database from a backup") from error
    raise StoreError(
        f"a stored {what} has schema version {version}; this program reads {newest}",
        hint="use the version of checkpoint-tracker that wrote it, or a newer one",
    )


# --- private


def _without_comparisons(body: dict[str, Any]) -> dict[str, Any]:
    """Return a report of version 1 without its evidence, which compared single checkpoints; words and scores stay."""
    return body | {"verdicts": [verdict | {"comparisons": ()} for verdict in body["verdicts"]]}
