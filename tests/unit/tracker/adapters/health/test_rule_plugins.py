"""Rules in Python of other packages: what they find, and what becomes of those that fail."""

import logging
from pathlib import Path

import pytest

from eval_jobs.errors import ConfigError
from tests.log_reading import read_log
from tests.plugins import written
from tracker.adapters.health.rule_plugins import RulePlugins
from tracker.domain.health.logs.step_lines import StepRow
from tracker.domain.health.logs.streams import Stream
from tracker.domain.health.run_log import RunLog
from tracker.domain.health.run_state import RunState, StreamState
from tracker.domain.records.training import Severity

EXPERTS = """
from tracker.domain.health.rules.code import RuleFinding

def idle(lines):
    for line in lines:
        if line.values.get("expert_load_min", 1.0) == 0.0:
            yield RuleFinding(line=line, title="An expert gets no tokens", hint="raise the balancing loss")

def fails(lines):
    return 1 / 0

def wrong(lines):
    return ["an expert gets no tokens"]

def slow(lines):
    try:
        while True:
            pass
    except Exception:
        return []

word = "no function"
"""
NAMES = ("idle", "fails", "wrong", "slow", "word")
LINES = ["step 1 | loss 2.5 | expert_load_min 0.1", "step 2 | loss 2.4 | expert_load_min 0.0", "step 3 | loss 2.4"]


@pytest.fixture(autouse=True)
def _is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {f"tracker.rules:{name}": name for name in NAMES}
    monkeypatch.syspath_prepend(str(written(tmp_path / "acme_rules", points=points, code=EXPERTS)))


def read(*names: str, lines: list[str] = LINES) -> RunLog:
    return read_log(lines, RunLog(rules=(), state=RunState(run_id="run"), code=RulePlugins(names)))


def test_a_finding_is_an_incident_at_the_step_of_its_line_and_ends_like_others() -> None:
    (found,) = read("idle").incidents()
    assert (found.name, found.cause.step, found.cause.number) == ("idle", 2, 2)
    assert (found.cause.trouble.title, found.hint) == ("An expert gets no tokens", "raise the balancing loss")
    assert (found.cause.text, found.cause.trouble.severity) == (LINES[1], Severity.ALERT)
    later = [f"step {step} | loss 2.4" for step in range(4, 1_500)]
    (over,) = read("idle", lines=[*LINES, *later]).incidents()
    assert over.is_over


def test_one_that_fails_or_takes_too_long_is_named_and_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        log = read("fails", "slow", "wrong", "idle")
        place = (Stream(name="events"), StreamState())
        log.take_row(StepRow(step=4, values={"loss": 2.4}), *place)
        log.end_piece(*place)
    assert len(log.incidents()) == 1
    said = "\n".join(caplog.messages)
    assert "the rule `fails` of acme_rules 1.0 failed: ZeroDivisionError: division by zero" in said
    assert "the rule `slow` of acme_rules 1.0 is disabled: it took longer than 0.5 s for 3 lines" in said
    assert "the rule `wrong` of acme_rules 1.0 failed: TypeError: it returned str instead of RuleFinding" in said
    assert len(caplog.messages) == 3


def test_one_that_is_missing_or_no_function_is_an_error_of_the_settings() -> None:
    for name, said in {
        "idel": "unknown rule `idel`",
        "word": "the rule `word` of acme_rules 1.0 is no function",
    }.items():
        with pytest.raises(ConfigError, match=said):
            RulePlugins([name])
