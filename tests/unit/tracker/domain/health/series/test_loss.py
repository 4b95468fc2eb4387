"""Spikes, divergences and collapses of a loss, and healthy series that are as restless."""

import json
import math
import random
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log_reading import read_log
from tests.requires import shared_data
from tracker.config.health import load_rules
from tracker.domain.health.run_log import RunLog
from tracker.domain.health.run_state import RunState
from tracker.domain.health.series.loss import LASTING, LossSeries, SeriesFinding, SeriesName

Points = Sequence[tuple[int, float]]


def series(losses: Iterable[float], *, first: int = 0, every: int = 10) -> list[tuple[int, float]]:
    return [(first + every * number, loss) for number, loss in enumerate(losses)]


def calm(points: int, *, level: float = 2.5, noise: float = 0.02, seed: int = 1) -> list[float]:
    rng = random.Random(seed)  # noqa: S311 - no secret
    return [level + rng.gauss(0, noise) for _ in range(points)]


def found(points: Points) -> tuple[SeriesFinding, ...]:
    followed = LossSeries()
    for step, loss in points:
        followed.take(step, loss)
    return followed.findings


def test_two_points_far_above_their_past_are_a_spike_until_the_loss_is_back() -> None:
    (one,) = found(series([*calm(40), 7.5, 8.5, 6.0, *calm(5, seed=2)]))
    assert (one.name, one.onset_step, one.found_step, one.over_step) == (SeriesName.SPIKE, 400, 410, 430)
    assert one.worst == 8.5
    assert one.expected == pytest.approx(2.5, abs=0.05)


def test_a_spike_that_stays_is_a_divergence() -> None:
    lasting = series([*calm(40), *calm(LASTING + 5, level=6.0)])
    assert [one.name for one in found(lasting)] == [SeriesName.DIVERGED]
    assert [one.name for one in found(lasting[:-6])] == [SeriesName.SPIKE]
    assert found(lasting)[0].over_step is None


@pytest.mark.parametrize("before", [1, 5, 60])
def test_a_loss_that_stands_still_above_its_best_is_a_collapse_however_short_the_run(before: int) -> None:
    points = series([*calm(before, level=1.6), 11.8, 11.6, *(10.3735,) * 6])
    (one,) = found(points)
    assert (one.name, one.over_step) == (SeriesName.COLLAPSED, None)
    assert one.found_step == points[before + 2 + 4][0]
    assert one.expected == pytest.approx(1.6, abs=0.05)


HEALTHY: dict[str, list[float]] = {
    "falls": [8 * math.exp(-k / 20) + 1.5 for k in range(200)],
    "one outlier": [*calm(40), 9.0, *calm(40, seed=2)],
    "an outlier every tenth point": [9.0 if k % 10 == 9 else loss for k, loss in enumerate(calm(200))],
    "noisy": calm(300, noise=0.4),
    "small rise": [*calm(60), *calm(60, level=2.9)],
    "warm-up": [10.3735] * 30 + [10.0 - 0.1 * k for k in range(60)],
    "always zero": [0.0] * 100,
    "around zero": calm(200, level=0.0, noise=0.01),
    "near zero": [*(4 * math.exp(-k / 5) for k in range(60)), 0.01, 0.02, *calm(30, level=0.0001, noise=0.0)],
    "short": [2.5, 9.0, 9.5, 2.5, 8.0],
    "not a number": [math.nan, *calm(30), math.inf, math.nan, *calm(30, seed=2)],
}


@pytest.mark.parametrize("name", HEALTHY)
def test_restless_series_are_healthy(name: str) -> None:
    assert found(series(HEALTHY[name])) == ()


@given(st.lists(st.floats(), max_size=80))
def test_no_series_is_an_error(losses: list[float]) -> None:
    for one in found(series(losses)):
        assert one.onset_step <= one.found_step


def test_steps_that_go_back_begin_a_series_of_their_own() -> None:
    lines = [f"step {step} | loss {loss}" for step, loss in series(calm(40))]
    again = [f"step {step} | loss {loss}" for step, loss in series(calm(10, level=9.0), first=100)]
    assert read_log([*lines, *again], RunLog(rules=(), state=RunState())).state.findings == ()
    ranks = [line for line in lines for _ in range(4)]
    assert read_log(ranks, RunLog(rules=(), state=RunState())).steps.last == 390


def alerts_of(log: RunLog) -> list[SeriesFinding]:
    return [finding for finding in log.state.findings if finding.is_alert]


def losses_of(name: str) -> Points:
    history = json.loads((shared_data("trainer_state") / name).read_text())["log_history"]
    return [(row["step"], float(row["loss"])) for row in history if "loss" in row]


def test_real_series_have_the_trouble_that_is_known_and_no_other() -> None:
    by_file = {path.name: found(losses_of(path.name)) for path in shared_data("trainer_state").glob("*.json")}
    trouble = {name: [one.name for one in findings] for name, findings in by_file.items() if findings}
    assert trouble == {"poludmik__qlora-fine-tune.trainer_state.json": [SeriesName.COLLAPSED]}
    assert len(by_file) >= 7
    rules, read = load_rules().lines, 0
    for path in sorted(shared_data("train_logs").rglob("*.*")):
        if path.is_file() and path.name != "SOURCE.md":
            read += 1
            with path.open(encoding="utf-8", errors="replace") as lines:
                assert alerts_of(read_log(lines, RunLog(rules=rules, state=RunState()))) == [], path.name
    assert read > 60


def test_a_real_spike_is_alert_at_its_second_point() -> None:
    path = shared_data("train_logs/megatron_spikes") / "tr1-13B_iter29020-29090_SPIKE.log"
    before = [
        f"iteration {step}/ 311541 | lm loss: {loss} |" for step, loss in series(calm(200, level=2.775), first=27000)
    ]
    (one,) = alerts_of(read_log([*before, *path.read_text().splitlines()], RunLog(rules=(), state=RunState())))
    assert (one.name, one.onset_step, one.found_step, one.over_step) == (SeriesName.SPIKE, 29050, 29060, None)
