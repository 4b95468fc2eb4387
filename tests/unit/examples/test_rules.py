"""The example rules for reinforcement learning find their trouble, and nothing in a healthy series."""

import json

import pytest

from tests.log_reading import read_log
from tests.requires import PROJECT
from tracker.config.health import load_rules
from tracker.domain.health.run_log import RunLog
from tracker.domain.health.run_state import RunState

RL = load_rules(PROJECT / "examples" / "rules" / "rl.toml")


def found_in(rows: list[dict[str, float]]) -> list[str]:
    lines = [json.dumps({"step": step, "loss": 0.1 + step % 7 / 100, **row}) for step, row in enumerate(rows, start=1)]
    log = read_log(lines, RunLog(rules=(), state=RunState(), conditions=RL.conditions))
    return [finding.name for finding in log.state.findings]


@pytest.mark.parametrize(
    ("key", "good", "bad", "points", "name"),
    [
        ("reward_std", 0.3, 0.0, 50, "rewards_alike"),
        ("frac_reward_zero_std", 0.2, 1.0, 50, "groups_alike"),
        ("kl", 0.4, 30.0, 5, "far_from_reference"),
        ("completions/clipped_ratio", 0.1, 1.0, 50, "answers_cut"),
    ],
)
def test_each_rule_finds_its_trouble_after_its_number_of_points(
    key: str, good: float, bad: float, points: int, name: str
) -> None:
    assert found_in([{key: good}] * 20 + [{key: bad}] * points) == [name]
    assert found_in([{key: good}] * 20 + [{key: bad}] * (points - 1)) == []
