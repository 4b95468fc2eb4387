"""The command line as a user has it: every command on one project, a server that others run, real everything else."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import tracker as tracker_api
from eval_jobs.errors import ConfigError, NoSignOfLife
from tests.commands import RunningTracker, run_tracker, tracker
from tests.fakes.openai_server import OpenAIServer, Reply, Request
from tests.tiny_model import write_checkpoint

STEPS = tuple(range(100, 900, 100))
KNOWS_AT = (300, 400)
NEXT = 900
ROWS = 60


def answer(request: Request) -> Reply:
    """Know every sum at two steps only: learned before them, forgotten after them."""
    question = request.prompt
    step = int(request.body["model"].removeprefix("step-"))
    if step not in KNOWS_AT or "+" not in question:
        return Reply(text="no idea")
    left, right = question.removesuffix("=").split("+")
    return Reply(text=str(int(left) + int(right)))


@pytest.fixture(scope="module")
def server() -> Iterator[OpenAIServer]:
    names = [f"step-{step}" for step in (*STEPS, NEXT, 1000, 1100, 1200)]
    with OpenAIServer(answer, model=names[0], more_models=tuple(names[1:])) as running:
        yield running


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, server: OpenAIServer) -> Path:
    """A project that `tracker init` set up and `tracker watch` has been through."""
    folder = tmp_path_factory.mktemp("project")
    for step in STEPS:
        checkpoint = write_checkpoint(folder / "out" / f"checkpoint-{step}", seed=step)
        history = [{"step": s, "loss": 1 / s} for s in range(10, step + 1, 10)]
        (checkpoint / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": history}))
    rows = [{"question": f"{i}+{i + 1}=", "answer": str(2 * i + 1)} for i in range(ROWS)]
    (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = tracker(folder, "init", "out")
    assert "8 checkpoints up to checkpoint-800 (full)" in said
    assert "exact sums.jsonl" in said
    config = folder / "tracker.toml"
    serve = f'[serve]\nengine = "remote"\nbase_url = "{server.base_url}"\nmodel = "step-{{step}}"'
    config.write_text(config.read_text().replace("[serve]", serve))
    said = tracker(folder, "watch", "--until-idle")
    assert all(f"found step {step}" in said and f"evaluated step {step}" in said for step in STEPS)
    return folder


def test_init_refuses_to_replace_a_configuration(project: Path) -> None:
    assert "--force" in tracker(project, "init", "out", code=2)


def test_history_shows_every_step_and_the_loss(project: Path) -> None:
    table = tracker(project, "history")
    assert all(str(step) in table for step in STEPS)
    assert "forgotten" in table
    assert "1.000" in table
    assert "\x1b" not in table  # plain text when piped


def test_history_as_json_holds_the_evidence(project: Path) -> None:
    document = json.loads(tracker(project, "history", "--json"))["result"]
    words = [report["verdicts"][0]["word"] for report in document["reports"]]
    assert words == ["first", "not learned", "improved", "improved", *["regressed"] * 3, "forgotten"]
    lost = document["reports"][4]["verdicts"][0]["comparisons"][0]
    assert (lost["n_lost"], lost["n_gained"], lost["n_common"]) == (ROWS, 0, ROWS)
    assert document["gaps"] == []


def test_costs_are_told_for_every_step_and_added_up(project: Path) -> None:
    shown = tracker(project, "costs")
    assert all(f"\n {step} " in shown for step in STEPS)
    assert f"{len(STEPS)} checkpoints, " in shown
    [costs] = json.loads(tracker(project, "costs", "--json"))["result"]
    assert [row["step"] for row in costs["checkpoints"]] == list(STEPS)
    of_steps = [row["cost"] for row in costs["checkpoints"]]
    assert all(cost["evaluating_s"] > 0 and cost["input_tokens"] > 0 for cost in of_steps)
    assert costs["total"]["input_tokens"] == sum(cost["input_tokens"] for cost in of_steps)
    assert (costs["total"]["gpu_s"], costs["total"]["cpu_s"]) == (None, None), "the server is not ours"


def test_compare_shows_lost_questions_with_both_answers(project: Path) -> None:
    shown = tracker(project, "compare", "400", "latest")
    assert "no idea" in shown
    assert str(ROWS) in shown
    document = json.loads(tracker(project, "compare", "400", "500", "--json"))["result"]
    assert document["benchmarks"][0]["word"] == "regressed"


@pytest.mark.parametrize(
    ("name", "says"),
    [("77", "evaluated steps"), ("9" * 25, "evaluated steps"), ("x@100", "known runs"), ("first", "RUN@STEP")],
)
def test_compare_names_what_is_there(project: Path, name: str, says: str) -> None:
    assert says in tracker(project, "compare", name, "latest", code=2)


def test_the_report_is_one_file_with_the_finding(project: Path) -> None:
    said = tracker(project, "report")
    page = next((project / ".tracker" / "reports").glob("*.html"))
    assert page.name in said
    assert "forgotten" in page.read_text()


def test_run_evaluates_one_checkpoint_and_its_code_says_that_something_was_lost(project: Path) -> None:
    write_checkpoint(project / "elsewhere" / f"checkpoint-{NEXT}", seed=NEXT)
    result = run_tracker(project, "evaluate", f"elsewhere/checkpoint-{NEXT}", "--json")
    assert result.returncode == 1
    reports = json.loads(result.stdout)["result"]
    assert [(r["step"], r["verdicts"][0]["word"]) for r in reports] == [(NEXT, "forgotten")]


def test_accept_ends_the_loss_and_makes_its_level_the_new_normal(project: Path) -> None:
    assert "sums" in tracker(project, "accept", "latest", "summs", "--reason", "x", code=2)
    assert "reason is empty" in tracker(project, "accept", "latest", "sums", "--reason", " ", code=2)
    said = tracker(project, "accept", f"{project.name}@{NEXT}", "sums", "--reason", "sums are not needed any more")
    assert f"before step {NEXT}" in said
    accepted = json.loads(tracker(project, "accept", str(NEXT), "sums", "--reason", "not needed", "--json"))["result"]
    assert (accepted["from_step"], accepted["reason"]) == (NEXT, "not needed")
    assert "sums: level at step" in tracker(project, "history")
    write_checkpoint(project / "elsewhere" / "checkpoint-1000", seed=1000)
    result = run_tracker(project, "evaluate", "elsewhere/checkpoint-1000", "--json")
    assert result.returncode == 0
    word = json.loads(result.stdout)["result"][0]["verdicts"][0]["word"]
    assert word == "not learned"  # nothing above guessing counts since the accepted step


def test_python_evaluates_follows_and_accepts_like_the_commands(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    opened = tracker_api.open()
    verdicts = opened.follow(since=NEXT)
    known = {next(verdicts)["step"].iloc[0] for _ in range(2)}
    assert known == {NEXT, 1000}
    new = opened.follow()
    write_checkpoint(project / "elsewhere" / "checkpoint-1100", seed=1100)
    done = opened.evaluate("elsewhere/checkpoint-1100", here=True)
    assert (done.run, done.step, done.state) == (project.name, 1100, "judged")
    found = done.wait()
    pd.testing.assert_frame_equal(found, opened[project.name].verdicts(steps=1100))
    pd.testing.assert_frame_equal(next(new), found)
    gate = opened.gate("elsewhere/checkpoint-1100", baseline=400)  # evaluated first, outside the run
    assert (gate.word, gate.passed) == ("regression", False)
    assert repr(gate) == f"Gate(regression: gate/checkpoint-1100@1100 against {project.name}@400)"
    opened.accept(1100, "sums", reason="by hand")
    assert "by hand" in tracker(project, "history")
    with pytest.raises(ConfigError, match=r"no benchmark 'summs' .*did you mean sums\?"):
        opened.accept("latest", "summs", reason="by hand")
    with pytest.raises(ConfigError, match=r"the settings are unknown.*pass tracker\.toml"):
        tracker_api.open(".tracker").evaluate("elsewhere/checkpoint-1100")


def test_python_queues_an_evaluation_for_the_watcher(project: Path, tmp_path: Path) -> None:
    opened = tracker_api.open(project / "tracker.toml")
    write_checkpoint(project / "elsewhere" / "checkpoint-1200", seed=1200)
    asked = opened.evaluate(project / "elsewhere" / "checkpoint-1200")
    assert asked.state == "waiting"
    with pytest.raises(NoSignOfLife, match=r"no verdicts on step 1200 of .* within 0 s \(waiting\)"):
        asked.wait(timeout_s=0)
    with pytest.raises(NoSignOfLife, match="is waiting, and no watcher is running"):
        replace(asked, _no_worker_timeout_s=0.0).wait()
    watch = RunningTracker(project, "watch", output=tmp_path / "said")
    try:
        found = asked.wait(timeout_s=120)
    finally:
        watch.stop(signal.SIGTERM)
    assert asked.state == "judged"
    assert found["benchmark"].tolist() == ["sums"]
    assert found["step"].tolist() == [1200]


def test_a_second_watch_has_nothing_to_do(project: Path, server: OpenAIServer) -> None:
    before = len(server.requests)
    said = tracker(project, "watch", "--until-idle")
    assert "evaluated step" not in said
    assert "checkpoints already evaluated; nothing to do" in said
    assert len(server.requests) == before


def test_training_curves_and_scores_stand_on_one_step_axis_in_mlflow(project: Path) -> None:
    code = (
        "import json, sys, mlflow\n"
        "client = mlflow.MlflowClient(sys.argv[1])\n"
        "run = client.search_runs([e.experiment_id for e in client.search_experiments()])[0]\n"
        "steps = {k: sorted(m.step for m in client.get_metric_history(run.info.run_id, k))"
        " for k in ('bench/sums', 'train/loss')}\n"
        "print(json.dumps(steps))"
    )
    uri = f"sqlite:///{project / '.tracker' / 'mlflow.db'}"
    out = subprocess.run([sys.executable, "-c", code, uri], capture_output=True, text=True, check=True).stdout
    steps = json.loads(out.splitlines()[-1])
    assert set(STEPS) <= set(steps["bench/sums"])
    assert steps["train/loss"] == list(range(10, STEPS[-1] + 1, 10))


def test_a_server_that_is_away_is_a_blind_spot_and_not_a_score(project: Path, tmp_path: Path) -> None:
    config = (project / "tracker.toml").read_text()
    port = config.split("127.0.0.1:")[1].split("/")[0]
    for name in ("out", "sums.jsonl"):
        (tmp_path / name).symlink_to(project / name)
    (tmp_path / "tracker.toml").write_text(config.replace(f":{port}/", ":9/"))
    said = tracker(tmp_path, "evaluate", "out/checkpoint-100", code=4)
    assert "missing" in said
    assert "0.000" not in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_watch_leaves_no_process(project: Path, tmp_path: Path, number: signal.Signals) -> None:
    watch = RunningTracker(project, "watch", output=tmp_path / "said")
    watch.until_said("the next start continues")
    assert watch.stop(number) == 130
    for _ in range(1200):  # a process that was ended takes a moment to go
        if not (left := [p for p in Path("/proc").glob("[0-9]*/cmdline") if str(project).encode() in _read(p)]):
            break
        threading.Event().wait(0.05)
    assert not left


def _read(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError:
        return b""
    return b"" if str(os.getpid()) == path.parent.name else data
