import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from rich.console import Console

from tests.unit.tracker.cli.gate_reports import HOSTILE, answer, gained, passed, with_text
from tracker.cli.gate.markdown import gate_markdown
from tracker.cli.gate.output import DOCUMENTS, GateFormat, GateOutputs, formats_for, gate_json
from tracker.cli.gate.table import gate_table
from tracker.domain.gate.types import GateReport


@pytest.mark.parametrize(
    ("environment", "outputs"),
    [
        ({}, GateOutputs(stdout=GateFormat.TEXT)),
        ({"CI": "true"}, GateOutputs(stdout=GateFormat.TEXT)),
        ({"GITLAB_CI": "true"}, GateOutputs(stdout=GateFormat.TEXT)),
        ({"GITHUB_ACTIONS": "true"}, GateOutputs(stdout=GateFormat.GITHUB)),
        ({"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": ""}, GateOutputs(stdout=GateFormat.GITHUB)),
        (
            {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": "/s.md"},
            GateOutputs(stdout=GateFormat.GITHUB, summary=Path("/s.md")),
        ),
        ({"GITHUB_ACTIONS": "false", "GITHUB_STEP_SUMMARY": "/s.md"}, GateOutputs(stdout=GateFormat.TEXT)),
    ],
)
def test_outputs_suit_where_the_gate_runs(environment: dict[str, str], outputs: GateOutputs) -> None:
    assert formats_for(environment) == outputs


@pytest.mark.parametrize("explicit", GateFormat)
def test_what_was_asked_for_is_all_that_is_written(explicit: GateFormat) -> None:
    environment = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": "/s.md"}
    assert formats_for(environment, explicit) == GateOutputs(stdout=explicit)


def test_every_form_but_the_terminals_is_a_text_that_ends_with_a_line_break() -> None:
    assert DOCUMENTS.keys() == set(GateFormat) - {GateFormat.TEXT}
    for write in DOCUMENTS.values():
        assert write(answer()).endswith("\n")


@pytest.mark.parametrize("text", ["plain", *(text for text in HOSTILE if "\ud83d" not in text)])
def test_json_is_read_again_as_the_same_answer(text: str) -> None:
    report = with_text(text)
    assert TypeAdapter(GateReport).validate_json(json.dumps(json.loads(gate_json(report))["result"])) == report


def no_constant(text: str) -> None:
    raise AssertionError(text)


@pytest.mark.parametrize("text", HOSTILE)
def test_json_is_json_for_every_reader(text: str) -> None:
    written = gate_json(with_text(text))
    assert json.loads(written, parse_constant=no_constant)["result"]["word"] == "regression"
    assert '"df": "Infinity"' in written, "what is infinite is a text: JSON has no such number"
    assert written.isascii()


@pytest.mark.parametrize("form", [GateFormat.MARKDOWN, GateFormat.JUNIT, GateFormat.JSON])
@pytest.mark.parametrize(
    "text", ["x\n::error::y", "  ::add-mask::y", "a ##[error]b", "x\r::set-output name=a::b", "##[##[x]"]
)
def test_nothing_that_a_model_says_is_a_command_to_a_workflow(form: GateFormat, text: str) -> None:
    document = DOCUMENTS[form](with_text(text))
    assert not [line for line in document.splitlines() if line.lstrip().startswith("::")]
    assert "##[" not in document
    if form is GateFormat.JSON:
        assert json.loads(document)["result"]["benchmarks"][0]["benchmark"] == text
    if form is GateFormat.JUNIT:
        ET.fromstring(document)  # noqa: S314 - our own text


@pytest.mark.parametrize("form", [*DOCUMENTS, GateFormat.TEXT])
def test_every_format_shows_clusters_and_why_they_are_missed(form: GateFormat) -> None:
    text = DOCUMENTS[form](gained()) if form in DOCUMENTS else _on_a_terminal(120)
    ignored = "250 passages are taken as independent samples: remove clusters ="
    assert ignored in text.replace("&#61;", "=")
    if form is GateFormat.JSON:
        checks = {check["benchmark"]: check for check in json.loads(text)["result"]["benchmarks"]}
        assert checks["sums"]["clusters"]["contexts"] == {"kind": "passage", "count": 250, "samples": 1000}
        assert checks["facts"]["clusters"]["contexts"] is None
    elif form is not GateFormat.GITHUB:  # it lists what did not pass
        assert text.count("250 passages") == 2


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_gain_whose_interval_leaves_out_0_is_shown_as_one(width: int) -> None:
    text = _on_a_terminal(width)
    assert text.count("\u25b2 gain") == 1
    assert "\u2713 pass" in text
    assert gate_markdown(gained()).count("\u25b2 gain") == 1
    assert "\u25b2 gain" not in gate_markdown(passed())


def _on_a_terminal(width: int) -> str:
    console = Console(width=width)
    with console.capture() as page:
        console.print(gate_table(gained()))
    return page.get()
