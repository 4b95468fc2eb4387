"""The margin that a gate has when none is set: equal candidates pass, and losers do not."""

import re
from itertools import pairwise
from random import Random

import pytest

from tests.unit.tracker.domain.making import record_of
from tracker.domain.compare.view import RunNoise
from tracker.domain.gate.decision import gate
from tracker.domain.gate.margins import (
    LARGEST,
    default_margin,
    margin_of,
    passing_margin,
    power_of_each,
    typical_spread,
)
from tracker.domain.gate.rules import BenchmarkRule, GatePolicy
from tracker.domain.gate.types import GateReport, GateWord
from tracker.domain.scores.statistics.paired import Spread, loss_p

NORMAL = Spread(centre=0.0, stderr=0.01, df=float("inf"))


def gated(chance: Random, *, loss: float = 0.0, sizes: tuple[int, ...] = (100, 200)) -> GateReport:
    """One answer in ten flips, either way by chance; the candidate has lost so much of the first benchmark."""
    before = {f"b{at}": [float(at % 2) for at in range(size)] for at, size in enumerate(sizes)}
    after = {name: [1.0 - x if chance.random() < 0.1 else x for x in scores] for name, scores in before.items()}
    after["b0"] = [0.0 if chance.random() < loss else x for x in after["b0"]]
    return gate(record_of(1, before), record_of(2, after), GatePolicy(), RunNoise())


@pytest.mark.slow
def test_four_of_five_equal_candidates_pass_all_benchmarks_and_hardly_one_is_a_regression() -> None:
    chance = Random(1)  # noqa: S311 - no secret
    found = [gated(chance).word for _ in range(100)]
    assert found.count(GateWord.PASS) >= 72  # 99.5 % of draws with a chance of .8 and more
    assert found.count(GateWord.REGRESSION) <= 10


@pytest.mark.slow
def test_a_loss_of_at_least_the_default_margin_seldom_passes() -> None:
    """The margin is that of each pair, and a pair with a loss has more changed answers than an equal one."""
    chance, found = Random(2), []  # noqa: S311 - no secret
    for _ in range(100):
        check = gated(chance, loss=0.24).benchmarks[0]  # of answers of which half are right: 12 points
        if (check.min_effect or 1.0) <= 0.12:
            found.append(check.word)
    assert len(found) > 15
    assert found.count(GateWord.PASS) <= 0.1 * len(found)


def test_an_equal_candidate_never_fails_by_its_margin_alone() -> None:
    for size in (2, 4, 20, 100, 1000):
        same = [1.0, 0.0] * (size // 2)
        (check,) = gate(record_of(1, {"b": same}), record_of(2, {"b": same}), GatePolicy(), RunNoise()).benchmarks
        assert check.is_default_margin
        assert check.word is (GateWord.PASS if size > 2 else GateWord.INCONCLUSIVE)
        assert check.reason.endswith("(default `min_effect`)") or check.min_effect == LARGEST


def test_a_margin_of_the_policy_counts_and_a_margin_is_known_only_of_what_was_compared() -> None:
    policy = GatePolicy(otherwise=BenchmarkRule(min_effect=0.2), benchmarks={"gone": BenchmarkRule()})
    same = record_of(1, {"b": [1.0] * 100})
    gone, kept = gate(same, record_of(2, {"b": [1.0] * 100}), policy, RunNoise()).benchmarks
    assert (gone.benchmark, gone.min_effect, gone.is_default_margin) == ("gone", None, False)
    assert (kept.min_effect, kept.is_default_margin) == (0.2, False)


def test_what_passes_is_shown_at_its_level_and_a_thousandth_less_is_not() -> None:
    margin = passing_margin(NORMAL, 0.05)
    assert margin is not None
    assert loss_p(NORMAL, margin) < 0.05 <= loss_p(NORMAL, margin - 0.001)
    assert passing_margin(Spread(centre=-0.9, stderr=0.1, df=3.0), 0.05) is None


@pytest.mark.parametrize(
    ("spread", "required", "margin"),
    [
        (NORMAL, 1, 0.025),  # (1.645 + 0.842) * 0.01
        (NORMAL, 5, 0.034),  # (1.645 + 1.710) * 0.01
        (Spread(centre=-0.5, stderr=0.01, df=float("inf"), cautious=0.1), 1, 0.173),  # 1.645 * 0.1 + 0.842 * 0.01
        (Spread(centre=0.0, stderr=0.01, df=12.0), 1, 0.027),  # (1.782 + 0.873) * 0.01
        (Spread(centre=0.0, stderr=1.0, df=float("inf")), 1, LARGEST),
        (Spread(centre=0.0, stderr=1e-6, df=float("inf")), 1, 0.001),
    ],
)
def test_the_default_margin_follows_from_the_errors_and_the_number_of_benchmarks(
    spread: Spread, required: int, margin: float
) -> None:
    assert default_margin(spread, 0.05, required) == margin


def test_the_margin_grows_with_everything_that_makes_passing_harder() -> None:
    wider = [Spread(centre=0.0, stderr=0.01 * k, df=float("inf")) for k in range(1, 6)]
    margins = [margin_of(spread, 0.05, power_of_each(3)) for spread in wider]
    assert all(less < more for less, more in pairwise(margins))
    assert typical_spread(wider) == wider[2]


def test_a_significant_loss_below_the_default_margin_is_a_regression_and_below_a_set_one_it_is_not() -> None:
    """Ten passages lose 9 to 11 of 100 answers each: the loss is certain, and one more passage might be lost whole."""
    passages = [f"passage:{at // 100}" for at in range(1000)]
    after = [0.0 if at % 100 < 9 + at // 100 % 3 else 1.0 for at in range(1000)]
    sides = record_of(1, {"b": [1.0] * 1000}, clusters=passages), record_of(2, {"b": after}, clusters=passages)
    (check,) = gate(*sides, GatePolicy(), RunNoise()).benchmarks
    assert check.word is GateWord.REGRESSION
    assert (check.min_effect or 0.0) > 0.15
    held = GatePolicy(otherwise=BenchmarkRule(min_effect=check.min_effect))
    assert gate(*sides, held, RunNoise()).word is GateWord.INCONCLUSIVE
    both = GatePolicy(otherwise=BenchmarkRule(min_effect=check.min_effect, min_loss=0.05))
    assert gate(*sides, both, RunNoise()).word is GateWord.REGRESSION


@pytest.mark.parametrize("per_passage", [1, 5, 40])
def test_an_inconclusive_check_names_both_ways_out_in_one_line(per_passage: int) -> None:
    chance, seen = Random(4), 0  # noqa: S311 - no secret
    for _ in range(60):
        size, flips, bias = chance.randrange(40, 600), chance.random() / 4, chance.random()
        before = [float(chance.random() < 0.6) for _ in range(size)]
        after = [float(chance.random() < bias) if chance.random() < flips else x for x in before]
        clusters = [f"passage:{at // per_passage}" for at in range(size)]
        policy = GatePolicy(otherwise=BenchmarkRule(min_effect=chance.choice((0.01, 0.05, 0.2))))
        sides = record_of(1, {"b": before}, clusters=clusters), record_of(2, {"b": after}, clusters=clusters)
        (check,) = gate(*sides, policy, RunNoise()).benchmarks
        if check.word is GateWord.INCONCLUSIVE:
            seen += 1
            assert re.search(r"`min_effect` (0\.\d{3} )?would have passed, (or about|more samples)", check.reason)
            assert check.passing_min_effect is None or check.passing_min_effect > (check.min_effect or 0.0)
            assert check.samples_needed is None or check.samples_needed > size
            assert "\n" not in check.reason
    assert seen > 5
