"""`tracker calibrate` as a user has it: real workers, the real evaluator, a server whose answers flip as we know."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from scipy import stats

from tests.commands import RunningTracker, run_tracker, tracker, write_project
from tests.fakes.openai_server import OpenAIServer, Reply, Request
from tests.tiny_model import write_checkpoint

ROWS = 60
FLIPS = 12
OTHER_TEXTS = 5
STOP_AT = 20
"""Answers of the second pass after which the first calibration is interrupted."""


@dataclass
class Script:
    """Answers right, but in the second pass: there so many sums are wrong, and as many facts have another text."""

    asked: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    """How often each (model, seed, question) was asked."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    second_pass_is_under_way: threading.Event = field(default_factory=threading.Event)
    may_go_on: threading.Event = field(default_factory=threading.Event)

    def __call__(self, request: Request) -> Reply:
        kind, number = request.prompt.split()
        with self.lock:
            self.asked[request.body["model"], request.body["seed"], request.prompt] += 1
            seconds = sum(n for (_, seed, _), n in self.asked.items() if seed)
        is_second = request.body["seed"] != 0
        if is_second and seconds >= STOP_AT:
            self.second_pass_is_under_way.set()
            self.may_go_on.wait(240)
        if is_second and kind == "sum" and int(number) < FLIPS:
            return Reply(text="no idea")
        return Reply(text=f" {number}" if is_second and kind == "fact" and int(number) < OTHER_TEXTS else number)


@pytest.fixture(scope="module")
def script() -> Script:
    return Script()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, script: Script) -> Iterator[Path]:
    """A calibration of step 100 was interrupted in its second pass; then a watcher evaluated steps 100 and 200."""
    folder = tmp_path_factory.mktemp("calibrated")
    with OpenAIServer(script, model="step-100", more_models=("step-200",)) as server:
        write_project(folder, server.base_url, rows=ROWS)
        write_checkpoint(folder / "out" / "checkpoint-100", seed=100)
        _interrupt(folder, script)
        write_checkpoint(folder / "out" / "checkpoint-200", seed=200)
        said = tracker(folder, "watch", "--until-idle")
        assert "noise step 100  repeating the evaluation flips: sums 20 % of the samples" in said
        assert "sums is too noisy" in said
        yield folder


def _interrupt(folder: Path, script: Script) -> None:
    calibration = RunningTracker(folder, "calibrate", "out/checkpoint-100", output=folder / "said")
    assert script.second_pass_is_under_way.wait(240)
    code = calibration.stop()
    script.may_go_on.set()
    said = calibration.said()
    assert code == 130, said
    assert "step 100 of r: sums and facts, evaluated twice" in said
    assert "two evaluations of the whole suite" in said
    assert "run `tracker calibrate` again, or `tracker watch`, to continue" in said


def test_an_interrupted_calibration_asked_every_question_once_in_each_pass(project: Path, script: Script) -> None:
    of_calibration = {key: n for key, n in script.asked.items() if key[0] == "step-100" and key[1]}
    assert len(of_calibration) == 2 * ROWS
    # What was on its way when it was interrupted may be asked again; the watch itself asked the first pass once more.
    assert sum(of_calibration.values()) <= 2 * ROWS + 16
    ordinary = {key: n for key, n in script.asked.items() if key[0] == "step-100" and not key[1]}
    assert set(ordinary.values()) == {2}
    assert project.is_dir()


def test_the_run_knows_nothing_of_the_answers_of_a_calibration(project: Path) -> None:
    document = json.loads(tracker(project, "history", "--json"))["result"]
    assert [report["step"] for report in document["reports"]] == [100, 200]
    assert {v["score"] for report in document["reports"] for v in report["verdicts"]} == {1.0}


def test_history_compare_and_report_show_what_repetition_does(project: Path) -> None:
    exact = stats.binomtest(0, ROWS).proportion_ci(0.95, method="exact").high
    said = " ".join(tracker(project, "history").split())
    assert f"sums 20 % of the samples; facts none of 60 samples (95 % CI up to {100 * exact:.1f} %)" in said
    assert "sums is too noisy" in said
    said = " ".join(tracker(project, "compare", "100", "200").split())
    assert "sums: repeating the evaluation flips 20 % of the samples, score ±0." in said
    assert "not calibrated" not in said
    tracker(project, "report")
    page = next((project / ".tracker" / "reports").glob("*.html")).read_text()
    assert "flips 20 % of the samples" in page
    assert "sums is too noisy" in page


@pytest.fixture
def watcher(project: Path) -> Iterator[None]:
    """A watcher that leads, with a worker."""
    watch = RunningTracker(project, "watch", output=project / "watch.out")
    watch.until_said("the next start continues")
    yield
    watch.stop()


@pytest.mark.usefixtures("watcher")
def test_a_calibration_beside_a_watcher_asks_anew_and_its_code_says_that_a_benchmark_is_unfit(
    project: Path, script: Script
) -> None:
    before = sum(script.asked.values())
    result = run_tracker(project, "calibrate", "--json")
    assert result.returncode == 1, result.stderr
    assert "evaluated by the workers of the running `tracker watch`" in result.stderr
    assert "step 200 of r: sums and facts, evaluated twice" in result.stderr
    assert "240 answers in about" in result.stderr
    assert "estimated from step 200" in result.stderr
    assert sum(script.asked.values()) - before == 2 * 2 * ROWS
    found = {one["benchmark"]: one for one in json.loads(result.stdout)["result"]["benchmarks"]}
    assert (found["sums"]["flips"], found["sums"]["samples"], found["sums"]["fitness"]) == (FLIPS, ROWS, "unfit")
    assert (found["facts"]["flips"], found["facts"]["other_texts"]) == (0, OTHER_TEXTS)
    exact = stats.binomtest(FLIPS, ROWS).proportion_ci(0.95, method="exact")
    interval = (found["sums"]["flip_rate_low"], found["sums"]["flip_rate_high"])
    assert interval == pytest.approx((exact.low, exact.high), abs=1e-6)
    # The twelve are all lost in one pass: that is no chance of decoding.
    assert found["sums"]["shift"] == pytest.approx(-FLIPS / ROWS)
    assert found["facts"]["noise_high"] > found["facts"]["noise"] == 0.0
    assert "something changed between the passes" in result.stderr


@pytest.mark.parametrize(
    ("name", "says"), [("77", "evaluated steps: 100, 200"), ("other@5", "known runs: r"), ("nowhere/x", "nowhere/x")]
)
def test_what_cannot_be_calibrated_is_said(project: Path, name: str, says: str) -> None:
    assert says in tracker(project, "calibrate", name, code=2)


def test_before_anything_is_evaluated_a_folder_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text('{"question": "1+1", "answer": "2"}\n')
    (tmp_path / "tracker.toml").write_text(
        '[run]\nname = "r"\noutput_dir = "out"\n[[benchmark]]\nbenchmark = "exact"\ndata = "q.jsonl"\n'
    )
    assert "pass the folder of a checkpoint" in tracker(tmp_path, "calibrate", code=2)
