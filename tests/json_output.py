"""What `--json` printed, held against the schema that is published for the command."""

import json
from typing import Any

import jsonschema

from docs.generator.json_schemas import schemas


def result_of(output: str) -> Any:
    """Return the result that a command printed, after validation."""
    document = json.loads(output)
    schema = json.loads(schemas()[f"{document['command'].replace(' ', '-')}.json"])
    jsonschema.validate(document, schema)
    return document["result"]
