"""Rules for all numbers of a run: each against its own noise, in bounded memory, and none of them in a healthy run."""

import json
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tracker.domain.health.series.findings import MOST_ENDED
from tracker.domain.health.series.loss import LossSeries, SeriesFinding, SeriesName
from tracker.domain.health.series.training import MOST_NUMBERS, RunSeries

Row = Mapping[str, float]
STATE = TypeAdapter(RunSeries)


def noisy(points: int, *, level: float = 1.0, noise: float = 0.05, seed: int = 1) -> list[float]:
    rng = random.Random(seed)  # noqa: S311 - no secret
    return [level * (1 + rng.gauss(0, noise)) for _ in range(points)]


def rows(key: str, values: Iterable[float]) -> list[Row]:
    return [{key: value} for value in values]


def found(read: Iterable[Row], *, every_s: float | None = 120.0) -> tuple[SeriesFinding, ...]:
    run = RunSeries()
    for number, row in enumerate(read):
        run.take(10 * number, row, at_s=None if every_s is None else 1.8e9 + every_s * number)
    return run.findings


def told(findings: Iterable[SeriesFinding]) -> list[tuple[str, str, bool, int, int, int | None]]:
    return [(one.name, one.key, one.is_alert, one.onset_step, one.found_step, one.over_step) for one in findings]


FALLING = [3 * math.exp(-k / 80) + loss for k, loss in enumerate(noisy(600, level=2.0, noise=0.005))]
RISING_MEMORY = [40.0 + 0.15 * k + extra for k, extra in enumerate(noisy(140, level=0.5))]
TROUBLE: dict[str, tuple[list[Row], list[tuple[str, str, bool, int, int, int | None]]]] = {
    "a spike of the loss": (
        rows("lm loss", [*noisy(40, level=2.5, noise=0.01), 7.5, 8.5, 2.5]),
        [("spike", "lm loss", True, 400, 410, 420)],
    ),
    "a collapse within few points": (
        rows("loss", [1.6, 11.8, 11.6, *(10.3735,) * 6]),
        [("collapsed", "loss", True, 30, 70, None)],
    ),
    "a gradient that is no number twice": (
        rows("grad_norm", [1.0, math.nan, 1.0, math.nan, math.inf, math.nan, 1.0]),
        [("nan", "grad_norm", True, 30, 40, 60)],
    ),
    "a number of any name that is none": (
        rows("entropy", [1.0, math.nan, math.nan]),
        [("nan", "entropy", True, 10, 20, None)],
    ),
    "two gradients far above their past": (
        rows("grad norm", [*noisy(30), 9.0, 1.0, 9.0, 8.0, *noisy(5, seed=2)]),
        [("gradient", "grad norm", False, 320, 330, 340)],
    ),
    "a learning rate that jumps": (
        rows("learning_rate", [*(1e-6 * k for k in range(40)), *(4e-6,) * 5]),
        [("lr", "learning_rate", False, 400, 400, 410)],
    ),
    "a slow training": (
        rows("tok/s", [*noisy(40, level=12_000), *noisy(9, level=7_000), 12_000.0]),
        [("throughput", "tok/s", True, 400, 430, 490)],
    ),
    "long steps": (
        rows("elapsed time per iteration (ms)", [*noisy(40, level=900), *noisy(9, level=1_500)]),
        [("throughput", "elapsed time per iteration (ms)", True, 400, 430, None)],
    ),
    "two numbers of one slow training": (
        [{"dt": 1 / speed, "tok/s": speed} for speed in [*noisy(40, level=12_000), *noisy(9, level=7_000)]],
        [("throughput", "tok/s", True, 400, 430, None)],
    ),
    "memory that grows": (
        rows("memory(gib)", [*(40.0,) * 20, *RISING_MEMORY]),
        [("memory", "memory(gib)", False, 990, 990, None)],
    ),
    "a loss that has not fallen for long": (
        rows("loss", [*FALLING[:300], *(2.0 + k / 1e4 for k in range(400))]),
        [("flat", "loss", False, 4590, 4590, None)],
    ),
}


@pytest.mark.parametrize("name", TROUBLE)
def test_trouble_is_found_once_with_its_steps(name: str) -> None:
    read, expected = TROUBLE[name]
    assert told(found(read)) == expected


HEALTHY: dict[str, list[Row]] = {
    "a loss that falls": rows("loss", FALLING),
    "a loss of 0": rows("loss", [0.0] * 500),
    "a loss that is no number: a rule for lines finds it": rows("loss", [math.nan] * 9),
    "a time, a spread and a throughput that are no numbers": [
        {"step_avg": math.nan, "tok/s": math.nan, "mfu": math.nan, "reward_std": math.nan, "ppl": math.inf}
    ]
    * 9,
    "an evaluation": [{"val_loss": math.nan, "epoch": 1.0, "grad_norm": math.nan}] * 9,
    "a summary": [{"train_runtime": 5.0, "loss": 9.0, "grad_norm": math.nan}] * 9,
    "a skipped step": rows("grad_norm", [1.0, math.inf] * 20),
    "an unusual gradient now and then": rows("grad_norm", [30.0 if k % 7 == 6 else v for k, v in enumerate(noisy(90))]),
    "gradients that are often large": rows(
        "grad_norm", [v if k % 4 < 2 else 9.0 for k, v in enumerate(noisy(200))][2:]
    ),
    "gradients that fall": rows("norm", [50 * math.exp(-k / 20) + 0.1 for k in range(200)]),
    "a schedule from 0 to 0": rows("lr", [*range(25), *(25 * (1 + math.cos(k / 50 * math.pi)) / 2 for k in range(51))]),
    "a schedule of short steps": rows("lr", [0.0, *(3.0**k for k in range(12))]),
    "slow evaluations and saves": rows("it/s", [0.1 if k % 10 > 7 else v for k, v in enumerate(noisy(200))]),
    "time of the whole run": rows("train_time", [20.0 * k for k in range(200)]),
    "memory that steps up once": rows("mem", [*(40.0,) * 60, *(60.0,) * 100]),
    "memory of a cache that fills at first": rows("gpu_mem", [min(10.0 + k, 40.0) for k in range(300)][10:]),
    "fewer points than a history": [
        {"loss": value, "grad_norm": value, "lr": value, "tok/s": 1 / value, "mem": value}
        for value in [*noisy(10), *noisy(8, level=50)]
    ],
}


@pytest.mark.parametrize("name", HEALTHY)
def test_restless_numbers_are_healthy(name: str) -> None:
    assert told(found(HEALTHY[name])) == []


@pytest.mark.parametrize(("every_s", "names"), [(None, []), (1.0, []), (60.0, []), (75.0, ["throughput"])])
def test_a_training_is_slow_after_five_minutes_only(every_s: float | None, names: Sequence[str]) -> None:
    read = rows("samples/s", [*noisy(40, level=100), *noisy(5, level=50)])
    assert [one.name for one in found(read, every_s=every_s)] == names


def test_a_gradient_is_an_alert_only_together_with_the_loss() -> None:
    losses = [*noisy(30, level=2.5, noise=0.01), 2.5, 2.5, 9.0, 9.0, 2.5]
    gradients = [*noisy(30), 9.0, 9.0, 9.0, 9.0, 1.0]
    together = [{"grad_norm": gradient, "loss": loss} for loss, gradient in zip(losses, gradients, strict=True)]
    assert [one.is_alert for one in found(together[:32]) if one.name == SeriesName.GRADIENT] == [False]
    assert [(one.name, one.is_alert) for one in found(together)] == [("gradient", True), ("spike", True)]


def test_steps_that_go_back_begin_another_series_and_keep_the_speed() -> None:
    run = RunSeries()
    for step, loss in enumerate([*noisy(30, level=2.5, noise=0.01), 9.0, 9.0]):
        run.take(step, {"loss": loss, "tok/s": 100.0, "lr": 1.0})
    for step, loss in enumerate(noisy(10, level=9.0), start=10):
        run.take(step, {"loss": loss, "tok/s": 50.0, "lr": 0.1}, at_s=200.0 * step)
    assert [(one.name, one.over_step) for one in run.findings] == [("throughput", None), ("spike", 10)]
    assert [one.name for one in run.taken()] == ["spike"]


def test_ranks_that_print_the_same_step_count_once() -> None:
    run = RunSeries()
    for step in range(30):
        for rank in range(8):
            value = math.nan if step == 25 else 1.0
            run.take(step, {"loss": 2.5, "grad_norm": value}, rank=rank)
            run.take(step, {"loss": 2.5, "kl": value})
    assert not run.findings


@pytest.mark.parametrize("every", [1, 100])
def test_after_a_restart_with_fewer_ranks_another_one_is_followed(every: int) -> None:
    """Before it, ranks print the same steps, and only the first one counts: the others have NaN in a number."""
    run = RunSeries(ignores_late=True)
    for step in range(every, 101 * every, every):
        for rank in (63, *range(63)):
            run.take(step, {"loss": 2.5 + step % 7 / 1000, "entropy": 1.0 if rank == 63 else math.nan}, rank=rank)
    assert not run.findings
    for step in range(101 * every, 401 * every, every):
        run.take(step, {"loss": 2.5 + step % 7 / 1000 if step < 300 * every else 9.0}, rank=31)
    names = [str(one.name) for one in run.findings]
    assert "diverged" in names or "collapsed" in names


@pytest.mark.parametrize(("ranks", "steps", "names"), [(2, 9, []), (3, 2, []), (3, 3, ["behind"]), (64, 9, ["behind"])])
@pytest.mark.parametrize("key", ["loss", "step_time"])
def test_one_rank_that_leaves_the_others_is_shown(key: str, ranks: int, steps: int, names: Sequence[str]) -> None:
    run, rng = RunSeries(), random.Random(1)  # noqa: S311 - no secret
    for step in range(60):
        for rank in rng.sample(range(ranks), ranks):
            times = 3.0 if rank == 1 and 40 <= step < 40 + steps else 1.0
            run.take(step, {key: times * rng.gauss(2.5, 0.02)}, rank=rank)
    behind = [one for one in run.findings if one.name == SeriesName.BEHIND]
    assert [one.name for one in behind] == names
    for one in behind:
        assert (one.rank, one.is_alert, one.onset_step, one.found_step) == (1, False, 40, 42)
        assert one.over_step == 40 + steps


def test_findings_that_are_over_are_handed_out_once() -> None:
    run = RunSeries(is_numbered=False)
    for number, loss in enumerate([*noisy(40, level=2.5, noise=0.01), 7.5, 8.5, 2.5, 2.5, 7.5, 8.5]):
        run.take(number, {"loss": loss})
    (one,) = run.taken()
    assert (one.onset_step, one.over_step, one.is_numbered) == (40, 42, False)
    assert run.taken() == ()
    assert [lasting.onset_step for lasting in run.findings] == [44]


def test_the_state_is_bounded_however_much_goes_wrong() -> None:
    run, sizes = RunSeries(), []
    for step in range(4_000):
        bad = math.nan if step // 3 % 2 else 1.0
        run.take(step, {f"number {step % 300}/{k}": bad for k in range(3)} | {"loss": 2.5 if step < 30 else 9.0})
        run.take(step, {f"lr {step}": 1.0, "entropy": bad}, rank=step % 7)
        if step % 1_000 == 999:
            sizes.append(len(STATE.dump_json(run)))
    assert max(sizes) < 1.2 * sizes[0]
    assert len(run.findings) <= 3 * MOST_ENDED
    assert len(json.loads(STATE.dump_json(run))["_numbers"]) == MOST_NUMBERS


@given(st.lists(st.floats(), max_size=60))
def test_no_row_is_an_error_and_every_state_survives(values: Sequence[float]) -> None:
    run = RunSeries()
    for step, value in enumerate([*noisy(25), *values]):
        row = {"loss": value, "grad_norm": value, "lr": value, "mem": value, "dt": value, "kl": value}
        run.take(step, row, at_s=step * 200.0, rank=0)
    assert STATE.validate_json(STATE.dump_json(run)) == run


@pytest.mark.parametrize("name", TROUBLE)
def test_a_stored_state_continues_without_a_difference(name: str) -> None:
    read, expected = TROUBLE[name]
    run = RunSeries()
    for number, row in enumerate(read):
        if number % 7 == 3:
            run = STATE.validate_json(STATE.dump_json(run))
        run.take(10 * number, row, at_s=1.8e9 + 120 * number)
    assert told(run.findings) == expected


def test_the_loss_is_judged_as_before() -> None:
    alone, points = LossSeries(), [*noisy(40, level=2.5), *noisy(30, level=9.0, seed=2), *noisy(9, level=2.5)]
    for number, loss in enumerate(points):
        alone.take(10 * number, loss)
    assert found(rows("loss", points)) == alone.findings
    assert [replace(one, key="") for one in found(rows("lm loss", points))] == [
        replace(one, key="") for one in alone.findings
    ]
