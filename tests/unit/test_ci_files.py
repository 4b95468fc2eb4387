"""The CI files that people copy: they load, and what they call is there."""

import shlex
from typing import Any

import pytest
import yaml

from tests.requires import PROJECT
from tracker.cli.commands.to_decide.gate import command

ACTION: dict[str, Any] = yaml.safe_load((PROJECT / ".github/actions/gate/action.yml").read_text(encoding="utf-8"))
GITHUB: dict[Any, Any] = yaml.safe_load((PROJECT / "docs/ci/github-gate.yml").read_text(encoding="utf-8"))
GITLAB: dict[str, Any] = yaml.safe_load((PROJECT / "docs/ci/gitlab-gate.yml").read_text(encoding="utf-8"))


def arguments_of(line: str, **variables: str) -> dict[str, Any]:
    """Return what `tracker gate` reads from a line of a shell; options that it does not know are refused."""
    for name, value in variables.items():
        line = line.replace(f'"${name}"', shlex.quote(value))
    line = line.replace("${GITLAB_TOKEN:+--comment}", "--comment")
    words = shlex.split(line.partition(" || ")[0])
    assert words[:2] == ["tracker", "gate"]
    return command.make_context("gate", words[2:]).params


def test_the_github_workflow_gives_the_action_what_it_takes() -> None:
    (job,) = GITHUB["jobs"].values()
    (step,) = (step for step in job["steps"] if str(step.get("uses", "")).endswith(".github/actions/gate"))
    given, inputs = step["with"], ACTION["inputs"]
    assert given.keys() <= inputs.keys()
    assert {name for name, one in inputs.items() if one.get("required")} <= given.keys()
    (kept,) = (step for step in job["steps"] if "upload-artifact" in str(step.get("uses", "")))
    assert kept["if"] == "always()"
    assert kept["with"]["path"].split() == [given["bundle"], inputs["report"]["default"]]
    # YAML 1.1 reads the key `on` as true.
    triggers = GITHUB.get("on") or GITHUB[True]
    assert triggers["workflow_dispatch"]["inputs"].keys() == {"candidate", "baseline", "changed"}
    assert GITHUB["permissions"] == {"contents": "read", "pull-requests": "write"}
    for name in ("candidate", "baseline"):  # else two gates that are started by hand cancel each other
        assert f"inputs.{name} }}}}" in GITHUB["concurrency"]["group"]


def test_a_value_from_outside_is_never_an_option() -> None:
    (step,) = ACTION["runs"]["steps"]
    (script,) = GITLAB[".gate"]["script"]
    for line in (step["run"], script):
        assert line.rstrip().endswith('-- "$CANDIDATE"')
    reports = [
        line for line in (*step["run"].splitlines(), *GITLAB[".gate"]["after_script"]) if "tracker report" in line
    ]
    assert len(reports) == 2
    assert all('-- "$CANDIDATE" || ' in line for line in reports)
    given = arguments_of(script, CANDIDATE="--replay", BASELINE="-b", CHANGED="")
    assert (given["candidate"], given["baseline"], given["replay"]) == ("--replay", "-b", None)


def test_every_input_of_the_action_reaches_its_command() -> None:
    (step,) = ACTION["runs"]["steps"]
    used = {f"${{{{ inputs.{name} }}}}" for name in ACTION["inputs"]}
    assert used == set(step["env"].values())
    for name in step["env"]:
        assert f"${name}" in step["run"] or f"${{{name}" in step["run"]


@pytest.mark.parametrize("changed", ["", "prompt", "prompt,engine", ",engine", ","])
def test_the_gitlab_job_calls_the_gate_as_it_is(changed: str) -> None:
    job = GITLAB[".gate"]
    (script,), (after, report) = job["script"], job["after_script"]
    given = arguments_of(script, CANDIDATE="m", BASELINE="models:/sft@champion", CHANGED=changed)
    assert (given["candidate"], given["baseline"], given["changed"]) == ("m", "models:/sft@champion", changed)
    assert [str(given["bundle"]), "gate-report.html"] == job["artifacts"]["paths"]
    assert "--output=gate-report.html" in report
    assert (given["form"], str(given["output"])) == ("junit", job["artifacts"]["reports"]["junit"])
    assert arguments_of(after)["replay"] == given["bundle"]
    jobs = [one for name, one in GITLAB.items() if name.startswith("gate:")]
    assert {one["extends"] for one in jobs} == {".gate"}
    named = {rule["variables"]["CHANGED"] for one in jobs for rule in one["rules"] if "variables" in rule}
    assert named == {"prompt", "engine", "prompt,engine"}
    assert {name for name, one in GITLAB["variables"].items() if one["description"]} == {
        "CANDIDATE",
        "BASELINE",
        "CHANGED",
    }
