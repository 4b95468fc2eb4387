"""The schemas of what `--json` prints, from the types of the results."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import click
from pydantic import TypeAdapter

from tracker.cli.json_output import JSON_SCHEMA_VERSION, JsonFlag
from tracker.cli.main import cli
from tracker.domain.gate.types import GateReport

HEAD = """# JSON output

Every command with `--json` (and `tracker gate --format json`) prints one object:

```json
{"schema_version": 1, "command": "costs", "result": []}
```

`schema_version` changes when a field is renamed, removed or changes its meaning; new fields may appear.
Infinite numbers are the strings `"Infinity"` and `"-Infinity"`, not-a-number is `"NaN"`. In `reports`, each verdict has
`reason` (a sentence), `reason_code` and `reason_fields`; where a step has several, `newest_of` counts. `proofs` are
certificates of weight swaps. Errors and progress go to stderr; `watch`, `backfill` and
`worker` print progress only. Losses by step:

```console
$ tracker history --json | jq -c '.result.reports[] | [.step, (.verdicts[]
    | select(.word == "regressed" or .word == "forgotten") | .benchmark)]'
...
[700,"facts","sums"]
...
```

The schema of each command:

"""

REPORTS = ("history", "evaluate")
REASONED = ("Verdict", "LatencyVerdict")
WORDED: Mapping[str, Any] = {
    "reason": {"type": "string", "description": "A sentence."},
    "reason_code": {"type": "string", "description": "Empty where there is no reason."},
    "reason_fields": {
        "type": "object",
        "description": "The values in the sentence; `tested_...`: the means of the deciding test.",
    },
}
"""Of a verdict in a report; `tracker.cli.tables.report_json` writes them."""


def json_page() -> str:
    """Return docs/reference/json.md."""
    rows = [f"- [`{path}`](schemas/{_file(path)})" for path, _ in _kinds()]
    return HEAD + "\n".join(rows) + "\n"


def schemas() -> dict[str, str]:
    """Return the JSON schema of every command by the name of its file."""
    return {_file(path): json.dumps(_schema(path, kind), indent=1) + "\n" for path, kind in _kinds()}


# --- private


def _kinds() -> Iterator[tuple[str, Any]]:
    """Yield every command that prints JSON, by its path without `tracker`, with the type of its result."""
    root = click.Context(cli, info_name="tracker")
    for path, command in _commands(cli, root):
        for parameter in command.params:
            if isinstance(parameter, JsonFlag):
                yield path, parameter.kind
    yield "gate", GateReport


def _commands(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            for inner, each in _commands(command, click.Context(command, info_name=name, parent=context)):
                yield f"{name} {inner}", each
        elif command is not None:
            yield name, command


def _file(path: str) -> str:
    return f"{path.replace(' ', '-')}.json"


def _schema(path: str, kind: Any) -> dict[str, Any]:  # noqa: ANN401 - a type expression has no common type
    result = TypeAdapter(kind).json_schema(mode="serialization", ref_template="#/$defs/{model}")
    definitions = result.pop("$defs", {})
    for name in REASONED:
        if name in definitions and path in REPORTS:
            definitions[name]["properties"] |= WORDED
    envelope = {"schema_version": {"const": JSON_SCHEMA_VERSION}, "command": {"const": path}, "result": result}
    document: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"tracker {path}",
        "type": "object",
        "properties": envelope,
        "required": list(envelope),
        "$defs": definitions,
    }
    _allow_infinity(document)
    return document


def _allow_infinity(node: Any) -> None:  # noqa: ANN401 - any part of a JSON document
    """Let every number be one of the texts that stand for infinite numbers, too."""
    if isinstance(node, dict):
        if node.get("type") == "number":
            node |= {"type": ["number", "string"], "pattern": "^(-?Infinity|NaN)$"}
        for part in list(node.values()):
            _allow_infinity(part)
    elif isinstance(node, list):
        for part in node:
            _allow_infinity(part)
