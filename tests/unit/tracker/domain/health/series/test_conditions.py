"""Conditions of users: what they say, and when they are found."""

import math
from collections.abc import Sequence

import pytest

from tracker.domain.health.series.conditions import MetricCondition
from tracker.domain.health.series.training import RunSeries
from tracker.domain.records.training import Severity

SAID = {
    "rewards/std < 1e-3 for 50 points": ("rewards/std", "<", 1e-3, 50),
    "loss > 1e3": ("loss", ">", 1e3, 1),
    " LM loss>=-.5  FOR 1 point ": ("lm loss", ">=", -0.5, 1),
    "memory(GiB) <= 70.25 for 3 points": ("memory(gib)", "<=", 70.25, 3),
}


@pytest.mark.parametrize("text", SAID)
def test_a_condition_says_a_number_a_threshold_and_points(text: str) -> None:
    one = MetricCondition.parse(text)
    assert (one.key, one.sign, one.threshold, one.points) == SAID[text]
    assert (one.name, one.severity, one.hint) == (text.strip(), Severity.ALERT, "")


WRONG = (
    "",
    "loss",
    "loss 5",
    "loss = 5",
    "loss == 5",
    "< 5",
    "loss < five",
    "loss < nan",
    "loss > inf",
    "loss > 1e999",
    "loss < 5 for points",
    "loss < 5 for 0 points",
    "loss < 5 for -1 points",
    "1 < loss < 5",
    "loss < 5 and lr > 1",
)


@pytest.mark.parametrize("text", WRONG)
def test_other_texts_are_errors_that_show_the_form(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no condition: write NAME < NUMBER, such as"):
        MetricCondition.parse(text)


@pytest.mark.parametrize(("severity", "is_alert"), [(Severity.ALERT, True), (Severity.SHOWN, False)])
def test_a_condition_is_found_after_its_points_in_a_row_and_ends_after_three_others(
    severity: Severity, *, is_alert: bool
) -> None:
    one = MetricCondition.parse("rewards/std < 1e-3 for 3 points", name="no_spread", severity=severity, hint="mix data")
    run = RunSeries(conditions=(one,))
    for step, value in enumerate([0.0, 0.0, math.nan, 1e-4, 0.0, 1e-5, 0.5, 0.0, 0.5, 0.5, 0.5]):
        run.take(step, {"rewards/std": value, "loss": 0.0})
    (finding,) = run.findings
    assert (finding.name, finding.key, finding.is_alert) == ("no_spread", "rewards/std", is_alert)
    assert (finding.onset_step, finding.found_step, finding.over_step) == (3, 5, 8)
    assert (finding.expected, finding.worst) == (1e-3, 0.0)


@pytest.mark.parametrize(("values", "steps"), [([9.0], [0]), ([math.inf], [0]), ([1.0, 2.0, 9.0], [2]), ([5.0], [])])
def test_a_condition_sees_evaluations_and_the_first_point(values: Sequence[float], steps: Sequence[int]) -> None:
    run = RunSeries(conditions=(MetricCondition.parse("val_loss > 5"),))
    for step, value in enumerate(values):
        run.take(step, {"val_loss": value})
    assert [one.found_step for one in run.findings] == steps
