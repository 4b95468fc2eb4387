"""`tracker log` prints what changed, oldest first; tests/e2e/test_changed_settings.py has what `tracker watch` adds."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.json_output import result_of
from tests.records import FORGETTING_TOML, RUN, forgetting_run
from tracker.api.opening import open_project
from tracker.cli.main import cli
from tracker.domain.log.events import EventKind, evaluation_event, run_event

NOW = datetime(2026, 3, 14, 12, 0, tzinfo=UTC)
RECORDED = forgetting_run(samples=4)
EVENTS = (
    run_event(EventKind.STARTED, (RUN, None, NOW - timedelta(hours=3)), reason="process 7 on host"),
    replace(evaluation_event(RECORDED.records[0], RECORDED.reports[0]), at=NOW - timedelta(hours=2)),
    run_event(EventKind.CHANGED, (RUN, 500, NOW), subject="sums", before="suspect", after="regressed"),
    replace(evaluation_event(RECORDED.records[1], RECORDED.reports[1]), at=NOW),
    run_event(EventKind.SETTING, (f"{RUN}/part", None, datetime.now(UTC)), subject="[b]", before="8", after="16"),
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tracker.toml").write_text(FORGETTING_TOML)
    return tmp_path


def said(*arguments: str) -> list[str]:
    done = CliRunner().invoke(cli, ["log", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


@pytest.mark.usefixtures("project")
def test_a_project_without_events_is_told_when_they_begin() -> None:
    assert said() == ["no events yet: `tracker watch` logs what it finds and decides"]
    assert result_of("\n".join(said("--json"))) == []


def test_events_are_lines_in_their_order_and_can_be_asked_for_by_number_step_time_and_age(project: Path) -> None:
    open_project(project / "tracker.toml").history.log(EVENTS)
    lines = said()
    assert lines[2] == "2026-03-14 12:00:00  step 500    changed    sums: suspect → regressed"
    assert lines[4].endswith(f"setting    {RUN}/part: [b]: 8 → 16")
    assert [line.split()[2] for line in lines] == ["started", "step", "step", "step", "setting"]
    for arguments, expected in (
        (("--last", "2"), lines[3:]),
        (("--last", "0"), lines),
        (("--since", "200"), lines[2:]),
        (("--since", "501"), []),
        (("--since", "2026-03-14T10:30"), lines[2:]),
        (("--since", "2026-03-14 12:30:00+02:00"), lines[2:]),
        (("--since", "1d"), lines[4:]),
        (("--since", "200", "--last", "1"), lines[4:]),
        ((f"{RUN}",), lines),
    ):
        found = said(*arguments)
        assert found == (expected or ["no events"]), arguments
    events = result_of("\n".join(said("--json", "--last", "3")))
    assert next((one["step"], one["kind"], one["after"]) for one in events) == (500, "changed", "regressed")
    wrong = CliRunner().invoke(cli, ["log", "--since", "yesterday"])
    assert (wrong.exit_code, "is not a duration, such as 30min, 4h or 2d" in wrong.output) == (2, True)
