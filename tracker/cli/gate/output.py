"""Destinations of a gate's result. Pure: the command prints and writes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tracker.cli.gate.annotations import gate_annotations
from tracker.cli.gate.junit import gate_junit
from tracker.cli.gate.markdown import gate_markdown
from tracker.cli.json_output import json_text
from tracker.domain.gate.types import GateReport


class GateFormat(StrEnum):
    """Output formats of a gate's result."""

    TEXT = "text"
    """For a terminal (`tracker.cli.gate.table`)."""
    MARKDOWN = "markdown"
    JUNIT = "junit"
    GITHUB = "github"
    """Workflow commands, which GitHub shows as annotations."""
    JSON = "json"


@dataclass(frozen=True, kw_only=True)
class GateOutputs:
    """Destinations of a gate's result."""

    stdout: GateFormat
    summary: Path | None = None
    """File that Markdown is appended to; None: no file."""
    variables: Path | None = None
    """File that `result=WORD` is appended to, for later steps of the job; None: no file."""


def formats_for(environment: Mapping[str, str], explicit: GateFormat | None = None) -> GateOutputs:
    """Return the destinations of the result.

    GitHub shows annotations and a step summary. GitLab and Jenkins show the log, and read JUnit from a file written
    with `--format junit`.

    Args:
        environment: of this process.
        explicit: value of `--format`; then nothing else is written, so that a second format of the same result does
            not repeat it in the summary.
    """
    if explicit is not None:
        return GateOutputs(stdout=explicit)
    if environment.get("GITHUB_ACTIONS") != "true":
        return GateOutputs(stdout=GateFormat.TEXT)
    return GateOutputs(
        stdout=GateFormat.GITHUB,
        summary=_file(environment, "GITHUB_STEP_SUMMARY"),
        variables=_file(environment, "GITHUB_OUTPUT"),
    )


def _file(environment: Mapping[str, str], name: str) -> Path | None:
    value = environment.get(name, "")
    return Path(value) if value else None


def gate_json(report: GateReport) -> str:
    """Return the whole result as JSON."""
    # `##[` starts an older form of workflow commands, which GitHub recognises anywhere in a line.
    text = json_text("gate", report).replace("##[", "#\\u0023[")
    return f"{text}\n"


DOCUMENTS: Mapping[GateFormat, Callable[[GateReport], str]] = {
    GateFormat.MARKDOWN: gate_markdown,
    GateFormat.JUNIT: gate_junit,
    GateFormat.GITHUB: gate_annotations,
    GateFormat.JSON: gate_json,
}
"""Every format except that of a terminal, as text that ends with a line break."""
