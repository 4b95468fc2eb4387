"""`tracker import` as a user calls it, on result files of our own making and on published ones."""

import json
import signal
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from eval_jobs.evaluate.evalscope.evaluator import EvalScopeEvaluator
from tests.commands import TRACKER, tracker, write_project
from tests.evaluating import ask, quiet, sums
from tests.fakes.openai_server import OpenAIServer, Reply, Request
from tests.imported import bench, write_lm_eval
from tests.requires import shared_data
from tests.tiny_model import write_checkpoint
from tracker.adapters.database.lock_sql import named_lock
from tracker.adapters.result_files import ImportRequest, read_results
from tracker.api.opening import open_project

N = 200
LOST_AT = 4


def right(count: int) -> list[float]:
    return [1.0] * count + [0.0] * (N - count)


def write_run(folder: Path, *, samples: bool) -> Path:
    """Nine checkpoints of two tasks; one falls at the fourth."""
    for index in range(1, 10):
        scores = {"copa": right(180 if index < LOST_AT else 60), "sciq": right(100)}
        write_lm_eval(folder / "evals", 1000 * index, scores, samples=samples)
    return folder / "evals"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_project(tmp_path, "http://localhost:9/v1", rows=1)
    return tmp_path


def reports(home: Path, *run: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(tracker(home, "history", *run, "--json"))["result"]["reports"]
    return found


def words(home: Path, benchmark: str, *run: str) -> dict[int, str]:
    return {r["step"]: v["word"] for r in reports(home, *run) for v in r["verdicts"] if v["benchmark"] == benchmark}


def test_a_run_with_samples_is_judged_shown_compared_reported_and_imported_once(home: Path) -> None:
    said = tracker(home, "import", str(write_run(home, samples=True)))
    assert "imported 9 checkpoints with 18 results into r" in said
    assert words(home, "copa")[4000] == "regressed"
    assert words(home, "copa")[9000] == "forgotten"
    assert set(words(home, "sciq").values()) <= {"first", "inconclusive", "equivalent"}
    assert "copa" in tracker(home, "forgetting")
    assert "question 60" in tracker(home, "compare", "3000", "9000", "--json")
    page = Path(tracker(home, "report").strip()).read_text()
    assert "imported" in page
    assert "task_version 1.0" in page
    before = reports(home)
    (home / "moved").mkdir()
    (home / "evals").rename(home / "moved" / "elsewhere")
    again = tracker(home, "import", str(home / "moved"))
    assert "imported 0 checkpoints with 0 results into r, 9 already imported" in again
    assert reports(home) == before


def test_means_alone_are_suspect_at_most_and_every_page_says_why(home: Path) -> None:
    tracker(home, "import", str(write_run(home, samples=False)))
    assert words(home, "copa")[9000] == "suspect"
    refused = " ".join(tracker(home, "compare", "3000", "9000", code=3).split())
    assert "0.900" in refused
    assert "imported without samples, so they cannot be paired" in refused
    assert "imported without samples, no forgetting analysis: " in tracker(home, "forgetting")
    assert Path(tracker(home, "report").strip()).is_file()


def test_our_own_measurements_are_never_compared_with_imported_ones(tmp_path: Path) -> None:
    def answer(request: Request) -> Reply:
        return Reply(text=request.prompt.split()[1])

    with OpenAIServer(answer, model="step-100", more_models=("step-3000",)) as server:
        write_project(tmp_path, server.base_url, rows=20)
        for step in (100, 3000):
            write_checkpoint(tmp_path / "out" / f"checkpoint-{step}", seed=step)
        tracker(tmp_path, "evaluate", str(tmp_path / "out" / "checkpoint-100"))
        for step in (1000, 2000):
            write_lm_eval(tmp_path / "evals", step, {"sums": right(190)}, samples=True)
        tracker(tmp_path, "import", str(tmp_path / "evals"))
        tracker(tmp_path, "evaluate", str(tmp_path / "out" / "checkpoint-3000"))
    found = {r["step"]: v for r in reports(tmp_path) for v in r["verdicts"] if v["benchmark"] == "sums"}
    assert [found[step]["word"] for step in (100, 1000, 2000)] == ["first", "incomparable", "inconclusive"]
    assert "benchmark adapter is lm-evaluation-harness, was exact" in found[1000]["reason"]
    assert found[3000]["comparisons"] == [] or found[3000]["comparisons"][0]["baseline_steps"] == [100]


def test_latencies_are_a_part_of_the_history_and_reach_mlflow_under_their_runs_name(home: Path) -> None:
    config = home / "tracker.toml"
    config.write_text(config.read_text().replace("[tracking]\nenabled = false\n", ""))
    for step in (1000, 2000):
        place = home / "bench" / f"checkpoint-{step}"
        place.mkdir(parents=True)
        document = bench(model_id="m", ttfts=[step / 10_000, step / 10_000, 0.0, step / 10_000])
        (place / "result.json").write_text(json.dumps(document))
    said = tracker(home, "import", str(home / "bench"), "--run", "theirs")
    assert "imported 2 checkpoints with 2 results into theirs" in said
    assert "pending for MLflow" not in said
    assert [r["step"] for r in reports(home, "theirs")] == [1000, 2000]
    assert "10 tokens in, 3 out, concurrency 2" in Path(tracker(home, "report", "theirs").strip()).read_text()
    with sqlite3.connect(home / ".tracker" / "mlflow.db") as store:
        of_run = "select name, step, value from metrics join runs using (run_uuid) where key = 'perf/ttft_ms_p50'"
        assert sorted(store.execute(of_run)) == [("theirs", 1000, 100.0), ("theirs", 2000, 200.0)]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("results.json", "{", "results.json as JSON"),
        ("other.json", '{"a": 1}', "is not a supported result file (fields: a)"),
        ("results.json", '{"results": {"t": {"acc": 0.5}}, "versions": {}}', "cannot determine the training step"),
        ("step1.json", '{"results": {"t": 5}, "versions": {}}', "`results.t` is 5 (expected an object)"),
        ("samples_t_2026-03-01T10-00-00.1.jsonl", "{}", "missing results file of the same evaluation"),
    ],
)
def test_what_cannot_be_read_is_refused_with_file_and_field(home: Path, name: str, content: str, said: str) -> None:
    (home / name).write_text(content)
    found = " ".join(tracker(home, "import", name, code=2).split())
    assert said in found
    assert name in found


@pytest.mark.parametrize("name", ["", "a\nb"])
@pytest.mark.parametrize("command", ["import", "backfill"])
def test_a_run_that_nobody_could_ask_for_is_refused(home: Path, command: str, name: str) -> None:
    (home / "out").mkdir()
    assert f"invalid --run {name!r}" in tracker(home, command, "out", "--run", name, code=2)


def test_a_torn_line_of_samples_is_refused_and_nothing_is_imported(home: Path) -> None:
    write_lm_eval(home / "evals", 1000, {"copa": right(100)}, samples=True)
    (samples,) = (home / "evals").rglob("samples_*.jsonl")
    samples.write_text(samples.read_text()[:-20])
    assert f"{samples.name}, line {N}: invalid JSON" in tracker(home, "import", "evals", code=2).replace("\n", "")
    assert reports(home) == []


def test_results_of_another_model_in_the_same_run_are_said(home: Path) -> None:
    folder = write_run(home, samples=False)
    assert "models" not in tracker(home, "import", str(folder))
    (later,) = (folder / "step9000").glob("results_*.json")
    other = home / "other" / "step10000" / "results.json"
    other.parent.mkdir(parents=True)
    other.write_text(later.read_text().replace("org/model", "org/thing").replace("step9000", "step10000"))
    refused = tracker(home, "import", "other", "--metric", "bleu", code=2)
    assert "no task has the metric bleu" in refused
    assert "hint: the files have acc" in refused
    said = tracker(home, "import", "other")
    assert "r contains 2 models: model (9 steps) and thing (1 step); use --run NAME to import unrelated models" in said


def test_two_imports_into_one_run_come_one_after_the_other(home: Path) -> None:
    folder = write_run(home, samples=False)
    lock = named_lock(open_project(home / "tracker.toml").database, "import r")
    assert lock.take()
    said = tracker(home, "import", str(folder), code=4)
    assert "another import into r is running" in said
    assert "imported 9 checkpoints" in tracker(home, "import", str(folder), "--run", "other")
    lock.release()
    assert "imported 9 checkpoints" in tracker(home, "import", str(folder))


def test_an_import_that_was_killed_is_finished_by_the_next(
    home: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = write_run(home, samples=True)
    process = subprocess.Popen(
        [str(TRACKER), "import", str(folder)], cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while process.poll() is None and not _some_reports(home):
        pass
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it was over before it could be killed"
    tracker(home, "import", str(folder))
    whole = tmp_path_factory.mktemp("whole")
    write_project(whole, "http://localhost:9/v1", rows=1)
    tracker(whole, "import", str(folder))
    assert words(home, "copa") == words(whole, "copa")
    incidents = [open_project(place / "tracker.toml").history.incidents("r") for place in (home, whole)]
    assert incidents[0] == incidents[1] != ()


def _some_reports(home: Path) -> bool:
    """Return whether the import has judged something; its tables may not be there yet."""
    try:
        with sqlite3.connect(f"file:{home}/.tracker/tracker.db?mode=ro", uri=True) as database:
            return int(database.execute("select count(*) from history_reports").fetchone()[0]) >= 2
    except sqlite3.OperationalError:
        return False


def test_what_evalscope_wrote_for_us_is_imported_as_we_had_measured_it(tmp_path: Path) -> None:
    def answer(request: Request) -> Reply:
        number = int(request.prompt.split("+")[0])
        if number == 3:
            return Reply(text="cut", finish_reason="length")
        return Reply(text=str(number + 1) if number % 2 else "no idea")

    evaluator = EvalScopeEvaluator(tmp_path / "work")
    try:
        with OpenAIServer(answer) as server:
            measured = ask(evaluator, server, sums(tmp_path, 8), plan_id="p")
        (reviews,) = (tmp_path / "work").rglob("reviews")
        (reviews.parent / "configs").mkdir()
        (reviews.parent / "configs" / "task_config.yaml").write_text("dataset_args: {tracker_exact: {}}\n")
        (sheet,) = read_results([reviews.parent], ImportRequest(step=1), progress=quiet).sheets
    finally:
        evaluator.close()
    (imported,) = (one.outcome.samples for one in sheet.measured if hasattr(one.outcome, "samples"))
    # By what was asked: the ids of our own benchmarks hold all accepted answers, which EvalScope's files do not.
    own = {s.prompt: (s.score, s.status, s.answer) for s in measured.samples}
    assert len(own) == 8
    assert {s.prompt: (s.score, s.status, s.answer) for s in imported} == own


@pytest.mark.shared_data
def test_a_published_run_is_imported_in_one_go_and_its_late_loss_is_seen(home: Path) -> None:
    folder = shared_data("checkpoint_evals/pythia/raw/pythia-70m_zero-shot")
    said = tracker(home, "import", str(folder), "--run", "pythia-70m")
    assert "imported 27 checkpoints with 2349 results into pythia-70m" in said
    found = words(home, "lambada_openai", "pythia-70m")
    assert list(found) == sorted(found)
    assert (found[0], found[143000]) == ("first", "suspect")
    judged = {w for r in reports(home, "pythia-70m") for w in (v["word"] for v in r["verdicts"])}
    assert not judged & {"regressed", "forgotten"}, "without samples nothing is more than suspect"
