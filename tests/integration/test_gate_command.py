"""`tracker gate` as a person and a CI call it: over a history on disk, and on checkpoints that are evaluated now."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml

from tests.commands import run_tracker, tracker, write_project
from tests.fakes.openai_server import OpenAIServer, Reply, Request
from tests.records import FORGETTING_TOML, forgetting_run
from tests.requires import PROJECT
from tests.tiny_model import write_checkpoint
from tracker.api.opening import open_project

LENIENT = "[gate]\nmin_effect = 0.2\n"
"""80 questions show the absence of a loss of 20 points, and not of one."""

ROWS = 60
CHECKPOINT, FACTS = "out/checkpoint-100", 'data = "facts.jsonl"\n'
OWN_ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "GITLAB_")) and name != "CI"
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "tracker.toml").write_text(FORGETTING_TOML, encoding="utf-8")
    (folder / "lenient.toml").write_text(LENIENT, encoding="utf-8")
    (folder / "point.toml").write_text("[gate]\nmin_effect = 0.01\n", encoding="utf-8")
    (folder / "out/checkpoint-9").mkdir(parents=True)
    history = open_project(folder / "tracker.toml").history
    run = forgetting_run(trouble=False)
    for record, report in zip(run.records, run.reports, strict=True):
        history.append(record)
        history.append_reports(report)
    return folder


def gate(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_tracker(folder, "gate", *arguments, environment=OWN_ENVIRONMENT | environment)


def test_what_was_forgotten_is_a_regression_that_names_lost_questions(project: Path) -> None:
    done = gate(project, "1000", "--baseline", "600", "--policy", "lenient.toml")
    assert (done.stderr, done.returncode) == ("", 1)
    assert "\x1b" not in done.stdout
    assert "regression" in done.stdout.lower()
    assert "What colour is the" in done.stdout


def test_a_checkpoint_against_itself_passes_where_enough_was_asked(project: Path) -> None:
    done = gate(project, "latest", "--baseline", "1000", "--policy", "lenient.toml", "--format", "json")
    report = json.loads(done.stdout)["result"]
    assert (report["word"], done.returncode) == ("pass", 0)
    assert {check["word"] for check in report["benchmarks"]} == {"pass"}


def test_too_few_questions_are_no_pass_and_how_many_are_needed_is_told(project: Path) -> None:
    done = gate(project, "1000", "--baseline", "1000", "--policy", "point.toml", "--format", "json")
    report = json.loads(done.stdout)["result"]
    assert (report["word"], done.returncode) == ("inconclusive", 3)
    assert all(check["samples_needed"] > 80 for check in report["benchmarks"])


def test_the_configuration_of_the_project_holds_the_policy(project: Path) -> None:
    strict = FORGETTING_TOML + "[gate]\nmin_effect = 0.2\n[gate.benchmark.facts]\nfloor = 0.5\n"
    (project / "strict.toml").write_text(strict, encoding="utf-8")
    done = gate(project, "1000", "--baseline", "1000", "--config", "strict.toml", "--format", "json")
    words = {check["benchmark"]: check["word"] for check in json.loads(done.stdout)["result"]["benchmarks"]}
    assert done.returncode == 1
    assert words == {"facts": "regression", "sums": "pass", "reversal": "pass"}


def test_init_writes_a_policy_that_an_equal_candidate_passes_and_overwrites_none(project: Path, tmp_path: Path) -> None:
    config, written = project / "init.toml", tmp_path / "gate.toml"
    config.write_text(FORGETTING_TOML, encoding="utf-8")
    done = gate(project, "--init", "--config", "init.toml")
    assert (done.stderr, done.returncode) == ("", 0)
    assert "wrote [gate] to init.toml" in done.stdout
    text = config.read_text()
    assert text.startswith(FORGETTING_TOML.rstrip())
    assert "[gate.benchmark.facts]\nmin_effect = " in text
    same = gate(project, "1000", "--baseline", "900", "--config", "init.toml", "--format", "json")
    assert (json.loads(same.stdout)["result"]["word"], same.returncode) == ("pass", 0)
    again = gate(project, "--init", "--config", "init.toml")
    assert (again.returncode, config.read_text()) == (2, text)
    assert "init.toml already has a [gate] table" in again.stderr
    for code in (0, 2):
        done = gate(project, "--init", "--config", "init.toml", "--policy", str(written))
        assert done.returncode == code
    assert "gate.toml already exists" in done.stderr
    assert written.read_text() in text


def test_a_bundle_gives_the_same_answer_where_there_is_no_project(project: Path, tmp_path: Path) -> None:
    asked = ("1000", "--baseline", "600", "--policy", "lenient.toml")
    first = gate(project, *asked, "--format", "json", "--bundle", str(tmp_path / "bundle.zip"))
    again = gate(tmp_path, "--replay", "bundle.zip", "--format", "json")
    assert (again.stdout, again.returncode) == (first.stdout, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["bundle.zip"]


def test_on_github_the_summary_and_the_annotations_are_written(project: Path, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("# Before\n")
    ci = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    done = gate(project, "1000", "--baseline", "600", "--policy", "lenient.toml", **ci)
    assert done.returncode == 1
    assert [line for line in done.stdout.splitlines() if line.startswith("::error")]
    assert summary.read_text().startswith("# Before\n")
    assert "<b>facts</b> | required | ▼ **regression**" in summary.read_text()


def test_on_github_a_text_for_people_holds_no_command(project: Path) -> None:
    asked = ("1000", "--baseline", "600", "--policy", "lenient.toml", "--format", "text")
    lines = gate(project, *asked, GITHUB_ACTIONS="true").stdout.splitlines()
    token = lines[0].removeprefix("::stop-commands::")
    assert len(token) == 32
    assert lines[-1] == f"::{token}::"
    assert token not in gate(project, *asked, GITHUB_ACTIONS="true").stdout, "nobody can guess it"
    assert "stop-commands" not in gate(project, *asked).stdout


def test_a_terminal_that_knows_no_arrows_shows_the_answer_all_the_same(project: Path) -> None:
    asked = ("1000", "--baseline", "600", "--policy", "lenient.toml")
    done = gate(project, *asked, PYTHONIOENCODING="ascii")
    assert (done.stderr, done.returncode) == ("", 1)
    assert "0.912 ? 0.037" in done.stdout


def test_junit_in_a_file_is_what_ci_servers_read(project: Path, tmp_path: Path) -> None:
    asked = ("1000", "--baseline", "600", "--policy", "lenient.toml", "--format", "junit")
    done = gate(project, *asked, "--output", str(tmp_path / "gate.xml"))
    tree = ET.parse(tmp_path / "gate.xml")  # noqa: S314 - our own file
    cases = {case.get("name"): case for case in tree.iter("testcase")}
    assert done.returncode == 1
    assert {name for name, case in cases.items() if case.find("failure") is not None} == {"facts", "sums"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "missing CANDIDATE or --baseline"),
        (("1000",), "missing CANDIDATE or --baseline"),
        (("--init", "1000"), "--init compares nothing"),
        (("--init", "--policy", "out/checkpoint-9/gate.toml"), "is inside a checkpoint of the trainer"),
        (("1000", "--baseline", "7"), "no evaluated checkpoint 7 in run"),
        (("./nowhere", "--baseline", "600"), "'./nowhere' is neither a checkpoint reference nor a folder"),
        (("x" * 5_000, "--baseline", "600"), "is neither a checkpoint reference nor a folder"),
        (("1000", "--baseline", "600", "--replay", "x.zip"), "--replay cannot be combined with another candidate"),
        (("--replay", "x.zip"), "cannot read x.zip"),
        (("1000", "--baseline", "600", "--policy", "nothing.toml"), "nothing.toml"),
        (("1000", "--baseline", "600", "--format", "pdf"), "'pdf' is not one of"),
        (("1000", "--baseline", "600", "--bundle", "nowhere/b.zip"), "no such folder: nowhere"),
        (
            ("1000", "--baseline", "600", "--bundle", "out/checkpoint-9/b.zip"),
            "out/checkpoint-9/b.zip is inside a checkpoint of the trainer",
        ),
        (
            ("--replay", "x.zip", "--policy", "lenient.toml"),
            "--replay cannot be combined with another candidate, baseline or policy",
        ),
        (("--replay", "x.zip", "--bundle", "./x.zip"), "--output, --bundle and --replay must be different files"),
    ],
)
def test_a_wrong_call_is_a_usage_error_that_says_what_is_wrong(
    project: Path, arguments: tuple[str, ...], words: str
) -> None:
    done = gate(project, *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_report_that_cannot_be_written_is_no_answer(project: Path) -> None:
    done = gate(project, "1000", "--baseline", "600", "--output", str(project))
    assert done.returncode == 2
    done = gate(project, "1000", "--baseline", "600", "--output", "/proc/gate.txt")
    assert done.returncode == 4
    assert "cannot write /proc/gate.txt" in done.stderr


def test_the_step_of_the_github_action_stops_the_merge_or_lets_it_through(project: Path, tmp_path: Path) -> None:
    action = yaml.safe_load((PROJECT / ".github/actions/gate/action.yml").read_text())
    (step,) = action["runs"]["steps"]
    values = {name: given.get("default", "") for name, given in action["inputs"].items()}
    values |= {"policy": "lenient.toml", "bundle": str(tmp_path / "b.zip"), "report": str(tmp_path / "r.html")}

    def run(candidate: str, baseline: str, **inputs: str) -> int:
        given = values | {"candidate": candidate, "baseline": baseline} | inputs
        env = OWN_ENVIRONMENT | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        env |= {"GITHUB_ACTIONS": "true", "GITHUB_OUTPUT": str(tmp_path / "outputs")}
        for name, expression in step["env"].items():
            env[name] = given[expression.removeprefix("${{ inputs.").removesuffix(" }}")]
        bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        return subprocess.run(bash, cwd=project, env=env, capture_output=True, check=False).returncode

    assert run("1000", "600", token="unused") == 1  # noqa: S106 - no pull request here: no comment
    assert run("1000", "1000") == 0
    assert run("1000", "1000", policy="point.toml") == 3
    assert run("1000", "1000", policy="point.toml", **{"allow-inconclusive": "true"}) == 0
    assert (tmp_path / "b.zip").is_file()
    assert "step 1000" in (tmp_path / "r.html").read_text()
    assert action["outputs"].keys() == {"result", "bundle", "report", "link"}
    outputs = (tmp_path / "outputs").read_text().splitlines()
    assert outputs == ["result=regression", "result=pass", "result=inconclusive", "result=inconclusive"]
    assert action["outputs"]["result"]["value"] == f"${{{{ steps.{step['id']}.outputs.result }}}}"
    assert run("--help", "600") == 2


def test_the_script_of_the_gitlab_job_fails_for_a_candidate_that_looks_like_commands(project: Path) -> None:
    (script,) = yaml.safe_load((PROJECT / "docs/ci/gitlab-gate.yml").read_text())[".gate"]["script"]
    env = OWN_ENVIRONMENT | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "BASELINE": "600"}
    env |= {"CANDIDATE": "--help $(touch pwned)\n`touch pwned`", "CHANGED": ""}
    done = subprocess.run(["sh", "-ec", script], cwd=project, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "is neither a checkpoint reference nor a folder" in done.stderr
    assert not (project / "pwned").exists()


def test_a_new_version_of_the_engine_is_gated_by_name_and_so_is_its_replay(project: Path, tmp_path: Path) -> None:
    """What a nightly evaluation under the next version of vLLM has left in the history."""
    history, run = open_project(project / "tracker.toml").history, forgetting_run(trouble=False)
    record, report = run.records[5], run.reports[5]
    assert record.engine is not None
    checkpoint = replace(record.plan.checkpoint, run_id="nightly")
    plan = replace(record.plan, id="nightly-600", checkpoint=checkpoint)
    history.append(replace(record, plan=plan, engine=replace(record.engine, version="99.1")))
    history.append_reports(replace(report, run_id="nightly", plan_id=plan.id, checkpoint=checkpoint))
    asked = ("nightly@600", "--baseline", "600", "--policy", "lenient.toml", "--changed", "engine")
    done = gate(project, *asked, "--bundle", str(tmp_path / "b.zip"))
    name, version = record.engine.name, record.engine.version
    named = f"intended difference: engine is {name} 99.1, was {name} {version}"
    assert named in " ".join(done.stdout.split())
    assert (done.returncode, done.stderr) == (0, "")
    assert gate(tmp_path, "--replay", "b.zip").stdout == done.stdout


def test_a_replay_says_where_another_version_answered_otherwise(project: Path, tmp_path: Path) -> None:
    asked = ("1000", "--baseline", "600", "--policy", "lenient.toml")
    gate(project, *asked, "--bundle", str(tmp_path / "whole.zip"))
    with ZipFile(tmp_path / "whole.zip") as whole, ZipFile(tmp_path / "other.zip", "w") as other:
        for entry in whole.namelist():
            content = whole.read(entry)
            if entry == "said.json":
                said = json.loads(content)
                assert said["words"][""] == "regression"
                said["words"] |= {"": "pass", "facts": "pass"}
                content = json.dumps(said | {"program": "9.9"}).encode()
            other.writestr(entry, content)
    assert gate(tmp_path, "--replay", "whole.zip").stderr == ""
    done = gate(tmp_path, "--replay", "other.zip")
    assert done.returncode == 1
    assert "tracker 9.9 wrote this bundle with result pass" in done.stderr
    assert "decides regression (changed: facts was pass" in done.stderr


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    """Step 200 has forgotten all facts."""

    def answer(request: Request) -> Reply:
        kind, number = request.prompt.split()
        return Reply(text="no idea" if request.body["model"] == "step-200" and kind == "fact" else number)

    with OpenAIServer(answer, model="step-100", more_models=("step-200",)) as running:
        yield running


def test_checkpoints_that_nobody_evaluated_are_evaluated_now(tmp_path: Path, server: OpenAIServer) -> None:
    write_project(tmp_path, server.base_url, rows=ROWS, more=LENIENT)
    write_checkpoint(tmp_path / "models" / "checkpoint-100", seed=100)
    write_checkpoint(tmp_path / "out" / "deep" / "merged" / "step_200", seed=200)
    said = tracker(tmp_path, "gate", "out/deep/merged/step_200", "--baseline", "models/checkpoint-100", code=1)
    assert "facts" in said
    assert "loss of 1.000 (60 samples lost, 0 gained)" in " ".join(said.split())
    said = tracker(tmp_path, "gate", "models/checkpoint-100", "--baseline", "gate/checkpoint-100@100")
    assert "pass" in said.lower()
    kept = open_project(tmp_path / "tracker.toml").history.runs()
    assert set(kept) == {"gate/checkpoint-100", "gate/step_200"}, "watching takes neither for a checkpoint of the run"


@pytest.fixture
def asked_server() -> Iterator[OpenAIServer]:
    """A model that answers, unless it is to think first; and one in a smaller format that has lost the facts."""

    def answer(request: Request) -> Reply:
        kind, number = request.prompt.split()[-2:]
        is_lost = kind == "fact" and request.body["model"] == "small-100"
        return Reply(text="hm" if is_lost or "Think" in request.prompt else number)

    with OpenAIServer(answer, model="step-100", more_models=("small-100",)) as running:
        yield running


@pytest.fixture
def measured(tmp_path: Path, asked_server: OpenAIServer) -> Path:
    """A project whose run `r` has measured its checkpoint 100."""
    write_project(tmp_path, asked_server.base_url, rows=ROWS, more=LENIENT)
    write_checkpoint(tmp_path / CHECKPOINT, seed=100)
    tracker(tmp_path, "evaluate", CHECKPOINT)
    return tmp_path


def gated(folder: Path, old: str, new: str, *arguments: str, code: int) -> str:
    """Gate the measured checkpoint under a configuration with one change; return what is said, in one line."""
    (folder / "changed.toml").write_text((folder / "tracker.toml").read_text().replace(old, new))
    asked = ("gate", CHECKPOINT, "--baseline", "r@100", "--config", "changed.toml")
    return " ".join(tracker(folder, *asked, *arguments, code=code).split())


def test_a_changed_prompt_is_gated_on_the_same_questions(measured: Path) -> None:
    terse = f'{FACTS}prompt_template = "Answer: {{question}}"\n'
    said = gated(measured, FACTS, terse, "--changed", "prompt", "--bundle", "terse.zip", code=0)
    assert "intended difference: prompt_template is Answer: {question}, was the default (facts)" in said
    assert "intended difference: " in tracker(measured, "gate", "--replay", "terse.zip")
    think = f'{FACTS}prompt_template = "Think first. {{question}}"\n'
    said = gated(measured, FACTS, think, "--changed", "prompt", "--format", "json", code=1)
    report = json.loads(said[said.index("{") :])["result"]
    words = {check["benchmark"]: check["word"] for check in report["benchmarks"]}
    assert words == {"facts": "regression", "sums": "pass"}
    assert report["benchmarks"][0]["compared"]["comparison"]["n_common"] == ROWS
    (kept,) = open_project(measured / "tracker.toml").history.records("r")
    assert {b.prompt_template for b in kept.plan.suite.benchmarks} == {None}, "what is gated is kept apart from the run"
    assert "incomparable" in gated(measured, FACTS, think, code=3)


def test_a_changed_engine_is_gated_and_what_is_not_named_may_not_differ(measured: Path) -> None:
    engine = ("step-{step}", "small-{step}")
    said = gated(measured, *engine, "--changed", "engine,prompt", code=2)
    assert "prompt is declared as changed but is the same on both sides" in said
    said = gated(measured, *engine, "--changed", "engine", code=1)
    assert "intended difference: serve.model is small-{step}, was step-{step}" in said
    assert "60 samples lost, 0 gained" in said
    own = (measured / "tracker.toml").read_text()
    (measured / "tracker.toml").write_text(own.replace(*engine))
    prompt = (FACTS, f'{FACTS}prompt_template = "Q: {{question}}"\n')
    assert "incomparable" in gated(measured, *prompt, "--changed", "engine", code=3)
    said = gated(measured, *prompt, "--changed", "engine,prompt", code=1)
    assert "prompt_template is Q: {question}" in said
    assert "invalid --changed 'promt'" in gated(measured, *prompt, "--changed", "promt", code=2)
