"""Which outputs of a gate go where. Pure: the command prints and writes.

outputs = formats_for(os.environ, explicit)
if outputs.stdout is GateFormat.TEXT:
    Console().print(gate_table(report))
else:
    click.echo(DOCUMENTS[outputs.stdout](report), nl=False)
if outputs.summary is not None:
    ...append gate_markdown(report) to the file `outputs.summary`, in UTF-8
"""

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
    """The forms in which a gate's answer is printed."""

    TEXT = "text"
    """For a terminal (`tracker.cli.gate.table`)."""
    MARKDOWN = "markdown"
    JUNIT = "junit"
    GITHUB = "github"
    """Workflow commands, which GitHub shows as annotations."""
    JSON = "json"


@dataclass(frozen=True, kw_only=True)
class GateOutputs:
    """Where a gate's answer goes."""

    stdout: GateFormat
    summary: Path | None = None
    """File that Markdown is appended to."""


def formats_for(environment: Mapping[str, str], explicit: GateFormat | None = None) -> GateOutputs:
    """Return where the answer goes.

    GitHub's steps show annotations and a summary. GitLab and Jenkins show the log, and read JUnit from a file that
    `--format junit` is sent to.

    Args:
        environment: of this process.
        explicit: what `--format` says; then nothing else is written anywhere, so that a second form of the same
            answer does not appear twice in a summary.
    """
    if explicit is not None:
        return GateOutputs(stdout=explicit)
    if environment.get("GITHUB_ACTIONS") != "true":
        return GateOutputs(stdout=GateFormat.TEXT)
    summary = environment.get("GITHUB_STEP_SUMMARY", "")
    return GateOutputs(stdout=GateFormat.GITHUB, summary=Path(summary) if summary else None)


def gate_json(report: GateReport) -> str:
    """Return the whole answer as JSON."""
    # An older form of a command to a GitHub workflow, which counts anywhere in a line.
    text = json_text("gate", report).replace("##[", "#\\u0023[")
    return f"{text}\n"


DOCUMENTS: Mapping[GateFormat, Callable[[GateReport], str]] = {
    GateFormat.MARKDOWN: gate_markdown,
    GateFormat.JUNIT: gate_junit,
    GateFormat.GITHUB: gate_annotations,
    GateFormat.JSON: gate_json,
}
"""Every form but that of a terminal, as text that ends with a line break."""
