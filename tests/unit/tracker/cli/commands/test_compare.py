"""`tracker compare RUN_A RUN_B` over a real history on disk."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dashboards.page.checkpoint import Sources, collect_checkpoint
from dashboards.views.checkpoint import ScoreRow, build_checkpoint_view
from tests.commands import run_tracker
from tests.compared_runs import project_of_two_runs, two_runs
from tests.fakes.queue import FakeQueue
from tests.json_output import result_of
from tests.records import FORGETTING_TOML, forgetting_run
from tests.unit.tracker.domain.making import START, record_of
from tracker.api.opening import open_project
from tracker.cli.main import cli
from tracker.domain.records.display import p_value_text, signed_text
from tracker.domain.records.policy import Policy

RUNS = ("tiny-forgetting", "slower")

FACTS = """\
A  tiny-forgetting
B  slower

facts  exact_match
step                 A                 B              B − A, 95 % CI
────────────────────────────────────────────────────────────────────
 100             0.025                 -                           -
 200             0.100             0.025   −0.075 [−0.174 to +0.031]
 300             0.275             0.100   −0.175 [−0.297 to −0.036]
 400             0.615             0.275   −0.359 [−0.502 to −0.181]
 500             0.775             0.625   −0.150 [−0.268 to −0.018]
 600             0.900             0.775   −0.125 [−0.237 to −0.001]
 700             0.450             0.900   +0.450 [+0.265 to +0.592]
mean                                       −0.072 [−0.099 to −0.045]
best   step 600  0.900   step 700  0.900   ±0.000 [−0.066 to +0.066]
"""  # noqa: RUF001 - a true minus sign
SUMMARY = """
                                     A            B
───────────────────────────────────────────────────
checkpoints                          7            6
steps                       100 to 700   200 to 700
best checkpoint               step 600     step 700
TTFT median, load default      38.2 ms      37.1 ms
TPOT median, load default       6.2 ms       6.1 ms
evaluation time                4.7 min            -
GPU time                       4.7 min            -
tokens in                       28.0 k            -
tokens out                       6.3 k            -

Each difference is paired over the same samples; up is better. Its 95 % CI
covers the choice of the samples, not the noise of training: another seed gives
another curve."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = project_of_two_runs(tmp_path_factory.mktemp("project"))
    history = open_project(config).history
    history.append(record_of(100, {"poems": [1.0, 0.0]}))
    for report in forgetting_run(samples=40, checkpoints=7).reports:
        history.append_reports(report)
    return config.parent


@pytest.fixture(autouse=True)
def _there(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setenv("COLUMNS", "80")


def compare(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["compare", *arguments])


def test_two_runs_are_shown_side_by_side_in_80_columns() -> None:
    said = compare(*RUNS)
    assert said.exit_code == 0, said.output
    text = "\n".join(line.rstrip() for line in said.stdout.splitlines())
    assert text.startswith(FACTS)
    assert text.endswith(SUMMARY)
    assert max(map(len, text.splitlines())) <= 80


def test_json_has_every_number_of_the_table() -> None:
    found = result_of(compare(*RUNS, "--json").stdout)
    facts = found["benchmarks"][0]
    assert (found["a"]["run_id"], found["b"]["best_step"], found["by"]) == ("tiny-forgetting", 700, "step")
    assert [row["a"] and row["a"]["step"] for row in facts["rows"]] == [100, 200, 300, 400, 500, 600, 700]
    assert facts["rows"][0]["difference"] is None
    assert facts["best"]["difference"]["n"] == 40


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("slower", "nope"), 2, "no run 'nope'"),
        (("slower", "slower"), 2, "a run cannot be compared with itself"),
        (("slower", "latest"), 2, "invalid checkpoint reference 'slower'"),
        ((*RUNS, "--mlflow"), 2, "--mlflow requires checkpoints"),
        ((*RUNS, "--by", "tokens"), 2, "the trainer of tiny-forgetting logged no token counts"),
        (("slower", "run"), 3, "no comparable benchmark: cannot compare facts: no samples with a score in run;"),
    ],
)
def test_what_are_not_two_comparable_runs_is_an_error(
    project: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = run_tracker(project, "compare", *arguments)
    assert done.returncode == code
    assert said in done.stderr


@pytest.mark.parametrize("named", [("200", "700"), RUNS])
def test_no_word_of_a_comparison_is_broken_in_80_columns(
    named: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words: dict[int, set[str]] = {}
    for columns in (80, 400):
        monkeypatch.setenv("COLUMNS", str(columns))
        said = compare(*named)
        assert said.exit_code == 0, said.output
        assert max(map(len, said.stdout.splitlines())) <= columns
        words[columns] = {word for word in said.stdout.split() if not set(word) <= {"─"}}
    assert words[80] == words[400]
    assert {"facts", "sums", "reversal", "improved" if named[0] == "200" else "A"} <= words[80]


def test_two_checkpoints_have_one_p_and_one_interval_in_comparison_gate_and_report(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    # The jitter is that of the run's verdicts, whatever coverage the gate requires: step 400 has 97 %.
    (project / "strict.toml").write_text("[gate]\nmin_coverage = 0.99\n")
    gate = ["gate", "700", "--baseline", "600", "--policy", "strict.toml"]
    shown = [compare("600", "700").stdout, CliRunner().invoke(cli, gate).stdout]
    decided = CliRunner().invoke(cli, [*gate, "--format", "json"]).stdout
    of_gate = {one["benchmark"]: one["compared"]["comparison"] for one in result_of(decided)["benchmarks"]}
    page = _scores_on_page(project, 700)
    compared = {one["benchmark"]: one for one in result_of(compare("600", "700", "--json").stdout)["benchmarks"]}
    for name in ("facts", "sums"):
        change = compared[name]["comparison"]
        assert change == of_gate[name]
        assert not compared[name]["is_jitter_unknown"]
        assert change["p_worse_items"] < change["p_worse"] / 5
        low, high = map(signed_text, (change["ci_low"], change["ci_high"]))
        for text in shown:
            assert f"[{low}, {high}]" in text
            assert p_value_text(change["p_worse"]) in text
            assert p_value_text(change["p_worse_items"]) not in text
        assert page[name].before.interval == f"{low} to {high}"


def _scores_on_page(project: Path, step: int) -> dict[str, ScoreRow]:
    history = open_project(project / "tracker.toml").history
    report = next(one for one in history.reports(RUNS[0]) if one.step == step)
    sources = Sources(history=history, queue=FakeQueue(), policy=Policy())
    view = build_checkpoint_view(collect_checkpoint(report, sources, now=START))
    return {row.benchmark: row for row in view.scores}


def test_runs_without_an_equal_step_are_shown_with_a_code_of_their_own_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "tracker.toml").write_text(FORGETTING_TOML)
    history = open_project(tmp_path / "tracker.toml").history
    quick, slow = two_runs()
    for record in (*quick[:2], *slow[3:]):
        history.append(record)
    done = run_tracker(tmp_path, "compare", *RUNS, "--json")
    assert (done.returncode, len(result_of(done.stdout)["benchmarks"])) == (3, 3)
    assert "share no checkpoint by step" in done.stderr
    assert "`tracker compare tiny-forgetting@best slower@best`" in done.stderr


def test_a_step_without_its_run_is_looked_up_in_the_only_run_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "tracker.toml").write_text(FORGETTING_TOML)
    history = open_project(tmp_path / "tracker.toml").history
    for name, steps in (("tiny-forgetting/a", 2), ("tiny-forgetting/b", 1)):
        run = forgetting_run(run_id=name, samples=8, checkpoints=steps)
        for record, report in zip(run.records, run.reports, strict=True):
            history.append(record)
            history.append_reports(report)
        said = run_tracker(tmp_path, "compare", "100", "200")
        assert said.returncode == (0 if name.endswith("a") else 2)
    assert "tiny-forgetting has several runs" in said.stderr
    assert "such as tiny-forgetting/a@latest" in said.stderr


def test_the_verdict_of_the_run_stands_beside_a_pair_with_its_reason() -> None:
    found = result_of(compare("600", "700", "--json").stdout)
    assert all(verdict["reason"] is not None for verdict in found["run"])
    assert "regressed" in {verdict["word"] for verdict in found["run"]}
