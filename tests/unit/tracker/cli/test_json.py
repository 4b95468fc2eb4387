"""What `--json` prints fits the schema that is published for the command."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.imported import write_lm_eval
from tests.json_output import result_of
from tests.records import FORGETTING_TOML, forgetting_run
from tracker.api.opening import open_project
from tracker.cli.main import cli
from tracker.domain.records.types import RULES_VERSION

SWEEP = """
[[schedule]]
name = "weekly"
cron = "0 3 * * 1"
checkpoints = ["latest"]
benchmarks = ["facts"]
"""
RUN = forgetting_run(samples=8)
COMMANDS = (
    ("history",),
    ("costs",),
    ("forgetting",),
    ("compare", "100", "latest"),
    ("gc", "--dry-run"),
    ("alerts", "list"),
    ("engine", "status"),
    ("sweep", "list"),
    ("accept", "latest", "facts", "--reason", "meant"),
    ("silence", "facts", "--for", "4h", "--reason", "meant"),
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tracker.toml").write_text(FORGETTING_TOML + SWEEP)
    (tmp_path / "facts.jsonl").write_text('{"query": "1+1=", "response": "2"}\n' * 8)
    history = open_project(tmp_path / "tracker.toml").history
    for record, report in zip(RUN.records, RUN.reports, strict=True):
        history.append(record)
        history.append_reports(report)
    return tmp_path


@pytest.mark.usefixtures("project")
def test_no_command_breaks_a_word_in_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in COMMANDS[:-2]:  # the others change something
        words: list[set[str]] = []
        for columns in ("80", "400"):
            monkeypatch.setenv("COLUMNS", columns)
            said = CliRunner().invoke(cli, arguments)
            assert said.exit_code == 0, said.output
            words.append({word for word in said.stdout.split() if not set(word) <= {"─"}})
        assert words[0] == words[1], arguments


@pytest.mark.usefixtures("project")
def test_the_newest_checkpoint_without_a_result_is_shown_by_history_and_alerts_alike() -> None:
    history = open_project(Path("tracker.toml")).history
    history.append_gap(replace(RUN.gaps[0], step=5000))
    for arguments in (("history",), ("alerts", "list")):
        assert "step 5000 was not evaluated" in " ".join(CliRunner().invoke(cli, arguments).stdout.split())


@pytest.mark.usefixtures("project")
def test_verdicts_of_an_earlier_version_keep_it_and_history_counts_them() -> None:
    said = "checkpoints judged by the rules of an earlier version of the tracker"
    assert said not in CliRunner().invoke(cli, ["history"], env={"COLUMNS": "120"}).stdout
    history = open_project(Path("tracker.toml")).history
    for report in RUN.reports[:3]:
        history.append_reports(replace(report, rules_version=1))
    assert f"3 of {len(RUN.reports)} {said}" in CliRunner().invoke(cli, ["history"], env={"COLUMNS": "120"}).stdout
    assert [r.rules_version for r in history.reports(RUN.run_id)][2:4] == [1, RULES_VERSION]


@pytest.mark.usefixtures("project")
def test_every_command_prints_what_its_schema_says() -> None:
    write_lm_eval(Path("evals"), 1000, {"copa": [1.0] * 8}, samples=True)
    for arguments in COMMANDS:
        done = CliRunner().invoke(cli, [*arguments, "--json"])
        assert done.exit_code == 0, (arguments, done.output, done.exception)
        assert result_of(done.stdout) is not None
    assert result_of(CliRunner().invoke(cli, ["import", "evals", "--json"]).stdout)["steps"][0]["samples"] == 8
