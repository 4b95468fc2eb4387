"""Paired statistics against reference values, against scipy.stats, and by the properties that they must have."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tests.requires import PROJECT, shared_data
from tracker.domain.scores.grouping import cluster_index
from tracker.domain.scores.matrix import FloatArray, IntArray
from tracker.domain.scores.statistics.paired import (
    CLUSTERED_T,
    MCNEMAR,
    PAIRED_T,
    Spread,
    interval,
    loss_p,
    mcnemar_midp,
    mde,
    mean_interval,
    paired_test,
    standard_error,
    tost_p,
)

GOLDEN = json.loads((PROJECT / "tests" / "golden" / "statistics.json").read_text())

counts = st.integers(0, 300)
unit = st.floats(0, 1, allow_subnormal=False)
pairs = st.lists(st.tuples(unit, unit), min_size=2, max_size=60)
binary_pairs = st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 1.0])), min_size=1, max_size=60)


def exactly(value: float) -> Any:
    return pytest.approx(value, rel=1e-9, abs=1e-15)


def flips(n: int, lost: int, gained: int) -> tuple[FloatArray, FloatArray]:
    """Candidate and baseline of `n` samples, of which so many were lost and gained."""
    baseline = np.ones(n)
    baseline[lost : lost + gained] = 0.0
    candidate = np.ones(n)
    candidate[:lost] = 0.0
    return candidate, baseline


def split(values: list[tuple[float, float]]) -> tuple[FloatArray, FloatArray]:
    array = np.array(values, dtype=np.float64)
    return array[:, 0], array[:, 1]


# --- reference values


@pytest.mark.parametrize("case", GOLDEN["mcnemar"], ids=lambda c: f"{c['n']}-{c['n_lost']}-{c['n_gained']}")
def test_flips_agree_with_the_reference(case: dict[str, Any]) -> None:
    test = paired_test(*flips(case["n"], case["n_lost"], case["n_gained"]))
    assert (test.method, test.n_lost, test.n_gained) == (MCNEMAR, case["n_lost"], case["n_gained"])
    assert test.delta == exactly(case["delta"])
    assert test.stderr == exactly(case["stderr"])
    assert test.p_worse == exactly(case["p_worse"])
    assert test.p_two_sided == exactly(case["p_two_sided"])
    if test.stderr > 0:
        plain = Spread(centre=test.delta, stderr=test.stderr, df=math.inf)
        assert mde(plain, 1.25e-5) == exactly(case["mde_at_1.25e-5"])
        assert tost_p(plain, 0.01) == exactly(case["tost_p_1_point"])


@pytest.mark.parametrize("case", GOLDEN["paired"])
def test_paired_and_clustered_t_agree_with_the_reference(case: dict[str, Any]) -> None:
    candidate, baseline = np.array(case["candidate"], float), np.array(case["baseline"], float)
    clusters = None if case["clusters"] is None else np.array(case["clusters"], np.int64)
    test = paired_test(candidate, baseline, clusters)
    assert test.method == (PAIRED_T if clusters is None else CLUSTERED_T)
    assert test.delta == exactly(case["delta"])
    assert test.stderr == exactly(case["stderr"])
    assert standard_error(candidate - baseline) == exactly(case["stderr_unclustered"])
    assert test.p_worse == exactly(case["p_worse"])
    assert test.spread.df == exactly(case["df"])


@pytest.mark.parametrize("case", GOLDEN["decision"])
def test_equivalence_and_detectable_change_agree_with_the_reference(case: dict[str, Any]) -> None:
    df = math.inf if case["df"] is None else case["df"]
    spread = Spread(centre=case["delta"], stderr=case["stderr"], df=df)
    assert tost_p(spread, case["margin"]) == pytest.approx(case["tost_p"], rel=1e-9)
    normal = Spread(centre=case["delta"], stderr=case["stderr"], df=math.inf)
    assert mde(normal, case["alpha_test"]) == exactly(case["mde"])


# --- scipy as the oracle


@given(counts, counts)
def test_midp_is_the_binomial_tail_with_half_the_observed_probability(lost: int, gained: int) -> None:
    n = lost + gained
    expected = stats.binom.sf(lost, n, 0.5) + 0.5 * stats.binom.pmf(lost, n, 0.5)
    assert mcnemar_midp(lost, gained) == pytest.approx(expected, rel=1e-9, abs=1e-300)


@given(pairs)
def test_paired_t_is_scipys(values: list[tuple[float, float]]) -> None:
    candidate, baseline = split([(a * 0.9 + 0.05, b) for a, b in values])
    test = paired_test(candidate, baseline)
    if test.stderr > 1e-9:
        expected = stats.ttest_rel(candidate, baseline, alternative="less")
        assert test.p_worse == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)


@given(st.integers(1, 200), st.floats(1e-9, 0.5))
def test_t_quantiles_and_intervals_are_scipys(df: int, alpha: float) -> None:
    spread = Spread(centre=0.1, stderr=0.02, df=df)
    low, high = interval(spread)
    assert (low, high) == pytest.approx(stats.t.interval(0.95, df, 0.1, 0.02), rel=1e-9)
    assert mde(spread, alpha) == pytest.approx((stats.t.isf(alpha, df) + stats.t.ppf(0.8, df)) * 0.02, rel=1e-6)


# --- properties


@given(counts, counts)
def test_worse_and_better_are_mirror_images(lost: int, gained: int) -> None:
    assert mcnemar_midp(lost, gained) + mcnemar_midp(gained, lost) == pytest.approx(1.0)


@given(counts, st.integers(0, 299))
def test_every_further_loss_is_more_evidence(gained: int, lost: int) -> None:
    more, less = mcnemar_midp(lost + 1, gained), mcnemar_midp(lost, gained)
    assert more < less if lost >= gained else more <= less  # near 1 both may round to the same number


@given(st.one_of(pairs, binary_pairs), st.booleans())
def test_swapping_the_sides_mirrors_everything(values: list[tuple[float, float]], clustered: bool) -> None:  # noqa: FBT001
    a, b = split(values)
    clusters = np.arange(a.size) // 3 if clustered and a.size > 1 else None
    one, other = paired_test(a, b, clusters), paired_test(b, a, clusters)
    assert one.delta == pytest.approx(-other.delta)
    assert one.stderr == pytest.approx(other.stderr)
    assert (one.p_worse, one.p_better) == pytest.approx((other.p_better, other.p_worse))
    assert (one.n_lost, one.n_gained) == (other.n_gained, other.n_lost)
    assert interval(one.spread) == pytest.approx(tuple(-x for x in reversed(interval(other.spread))))
    assert tost_p(one.spread, 0.02) == pytest.approx(tost_p(other.spread, 0.02))


@given(st.one_of(pairs, binary_pairs), st.randoms(use_true_random=False))
def test_the_order_of_samples_does_not_matter(values: list[tuple[float, float]], random: Any) -> None:
    clusters = [i // 3 for i in range(len(values))]
    rows = list(zip(values, clusters, strict=True))
    one = paired_test(*split(values), np.array(clusters))
    random.shuffle(rows)
    other = paired_test(*split([v for v, _ in rows]), np.array([c for _, c in rows]))
    assert one.delta == pytest.approx(other.delta, abs=1e-12)
    assert one.stderr == pytest.approx(other.stderr, abs=1e-9)
    assert one.p_worse == pytest.approx(other.p_worse, abs=1e-6)


@given(st.one_of(pairs, binary_pairs))
def test_results_are_finite_and_in_range_whatever_comes(values: list[tuple[float, float]]) -> None:
    test = paired_test(*split(values))
    assert 0 <= test.p_worse <= 1
    assert 0 <= test.p_better <= 1
    assert test.spread.stderr > 0
    assert all(math.isfinite(x) for x in (*interval(test.spread), tost_p(test.spread, 0.02), mde(test.spread, 1e-6)))


@given(binary_pairs)
def test_clusters_of_one_give_the_plain_standard_error(values: list[tuple[float, float]]) -> None:
    a, b = split(values)
    plain, clustered = standard_error(a - b), standard_error(a - b, np.arange(a.size))
    assert (plain is None) == (clustered is None)
    if plain is not None:
        assert clustered == pytest.approx(plain, abs=1e-12)


# --- too little to go by


@pytest.mark.parametrize(("n", "shown"), [(20, False), (100, False), (200, True)])
def test_nothing_changed_shows_equivalence_only_with_enough_samples(n: int, shown: bool) -> None:  # noqa: FBT001
    test = paired_test(np.ones(n), np.ones(n))
    assert test.p_worse == 0.5
    assert (tost_p(test.spread, 0.02) < 0.05) is shown


def test_identical_graded_scores_are_no_proof_of_equivalence_either() -> None:
    scores = np.linspace(0.1, 0.9, 20)
    test = paired_test(scores, scores)
    assert (test.method, test.p_worse) == (PAIRED_T, 0.5)
    assert tost_p(test.spread, 0.02) > 0.05


@pytest.mark.parametrize(
    ("mean", "stderr", "units", "found"),
    [
        (0.0, 0.0, 100, (0.0, 0.03699)),  # Wilson 1927
        (1.0, 1e-17, 100, (0.96301, 1.0)),
        (0.5, 0.0, 10, (0.23659, 0.76341)),  # every answer half right
        (0.2, 0.04, 100, (0.12160, 0.27840)),
        (37.5, 0.0, 100, None),  # no share, so nothing is known
        (0.0, 0.0, None, None),
        (0.0, None, 1, None),
    ],
)
def test_the_interval_of_a_score_is_never_empty(
    mean: float, stderr: float | None, units: int | None, found: tuple[float, float] | None
) -> None:
    assert mean_interval(mean, stderr, units) == (None if found is None else pytest.approx(found, abs=1e-5))


def test_one_changed_sample_does_not_narrow_the_interval_to_itself() -> None:
    baseline = np.linspace(0.1, 0.9, 100)
    candidate = baseline.copy()
    candidate[3] += 0.1
    test = paired_test(candidate, baseline)
    assert test.stderr == pytest.approx(0.001)
    assert tost_p(test.spread, 0.02) > 0.05


def test_three_samples_that_all_fell_alike_are_not_infinite_evidence() -> None:
    test = paired_test(np.full(3, 0.4), np.full(3, 0.5))
    assert test.p_worse == pytest.approx(0.5**4)


def test_a_single_cluster_is_one_observation() -> None:
    test = paired_test(np.zeros(50), np.ones(50), np.zeros(50, dtype=np.int64))
    assert (test.method, test.p_worse) == (CLUSTERED_T, 0.25)
    assert interval(test.spread)[1] > 0


def test_samples_that_move_together_are_weaker_evidence() -> None:
    candidate, baseline = flips(200, 20, 0)
    one_cluster_lost: IntArray = np.arange(200) // 20
    alone, together = paired_test(candidate, baseline), paired_test(candidate, baseline, one_cluster_lost)
    assert alone.p_worse < 1e-5
    assert together.p_worse > 0.1


@pytest.mark.parametrize(
    ("clusters", "size", "margin"), [(4, 250, 0.05), (6, 30, 0.1), (20, 10, 0.02), (40, 25, 0.1), (200, 5, 0.05)]
)
def test_a_loss_of_whole_clusters_is_shown_to_be_absent_no_more_often_than_alpha(
    clusters: int, size: int, margin: float
) -> None:
    """The true loss is the margin, and comes as a share of the clusters that is lost: seldom one of a few."""
    rng = np.random.default_rng(5)
    members: IntArray = np.repeat(np.arange(clusters), size)
    before = np.ones(members.size)
    shown = 0
    for _ in range(400):
        after = np.where((rng.random(clusters) < margin)[members], 0.0, 1.0)
        shown += tost_p(paired_test(after, before, members).spread, margin) < 0.05
    assert shown / 400 <= 0.09


@pytest.mark.parametrize(("clusters", "size", "lost"), [(20, 50, 1.0), (40, 25, 1.0), (40, 25, 0.5), (60, 17, 1.0)])
def test_flips_everywhere_are_no_evidence_that_no_cluster_was_lost(clusters: int, size: int, lost: float) -> None:
    """Answers that change both ways in every cluster say nothing of a loss that takes a few of them as a whole."""
    rng = np.random.default_rng(6)
    members: IntArray = np.repeat(np.arange(clusters), size)
    shown = 0
    for _ in range(300):
        before, after = ((rng.random(members.size) < 0.9).astype(float) for _ in range(2))
        hit = (rng.random(clusters) < 0.05 / 0.9 / lost)[members] & (rng.random(members.size) < lost)
        shown += loss_p(paired_test(np.where(hit, 0.0, after), before, members).spread, 0.05) < 0.05
    assert shown / 300 <= 0.08


def test_what_is_promised_of_many_clusters_needs_no_more_because_of_their_number() -> None:
    members: IntArray = np.repeat(np.arange(200), 5)
    before = np.tile([1.0, 0.0, 1.0, 0.0, 1.0], 200)
    noisy = np.where(np.arange(before.size) % 17 < 2, 1.0 - before, before)
    spread = paired_test(noisy, before, members).spread
    assert loss_p(spread, 0.04) < 0.05
    assert interval(spread, 0.9)[0] == pytest.approx(spread.centre - 1.6525 * spread.stderr, abs=1e-4)


def test_clusters_of_one_are_as_cautious_as_samples() -> None:
    candidate, baseline = flips(100, 3, 1)
    alone, clustered = paired_test(candidate, baseline), paired_test(candidate, baseline, np.arange(100))
    assert clustered.spread.stderr == pytest.approx(alone.spread.stderr, rel=0.02)


def test_many_clusters_without_a_change_are_equivalent() -> None:
    scores = np.ones(1000)
    assert tost_p(paired_test(scores, scores, np.arange(1000) // 5).spread, 0.02) < 0.05
    assert tost_p(paired_test(scores, scores, np.arange(1000) // 100).spread, 0.02) > 0.05


def test_the_interval_covers_the_true_change_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(2000):
        before = (rng.random(100) < 0.7).astype(float)
        flip_down = (before == 1) & (rng.random(100) < 0.10)
        flip_up = (before == 0) & (rng.random(100) < 0.10)
        after = np.where(flip_down, 0.0, np.where(flip_up, 1.0, before))
        low, high = interval(paired_test(after, before).spread)
        covered += low <= 0.3 * 0.1 - 0.7 * 0.1 <= high
    assert 0.93 <= covered / 2000 <= 0.98


def test_mid_p_holds_its_level_on_pure_chance() -> None:
    rng = np.random.default_rng(11)
    lost = rng.binomial(30, 0.5, size=20_000)
    alarms = np.mean([mcnemar_midp(int(k), 30 - int(k)) < 0.01 for k in lost])
    assert alarms <= 0.01 + 0.003


# --- real answers of real models


def test_real_models_differ_by_what_their_counts_say() -> None:
    path = shared_data("per_sample/gsm8k_4models") / "correctness.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    small = np.array([row["6b_finetuning"] for row in rows], dtype=np.float64)
    large = np.array([row["175b_verification"] for row in rows], dtype=np.float64)
    test = paired_test(small, large)
    difference = small - large
    assert test.delta == pytest.approx(difference.mean())
    assert test.delta == pytest.approx((286 - 742) / 1319)
    wald = 1.96 * difference.std(ddof=1) / math.sqrt(difference.size)
    assert interval(test.spread) == pytest.approx((difference.mean() - wald, difference.mean() + wald), abs=2e-3)
    assert test.p_worse < 1e-50
    assert test.n_lost == int(((large == 1) & (small == 0)).sum())


def test_thinking_aloud_helps_across_tasks_by_a_clustered_test_of_real_answers() -> None:
    path = shared_data("per_sample/bbh_davinci") / "per_sample.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    cot, direct = (np.array([row[key] for row in rows], dtype=np.float64) for key in ("cot", "direct"))
    clusters = cluster_index([row["task"] for row in rows])
    assert clusters is not None
    test = paired_test(cot, direct, clusters)
    tasks = sorted({row["task"] for row in rows})
    residuals = [
        sum((c - d) - test.delta for c, d, row in zip(cot, direct, rows, strict=True) if row["task"] == task)
        for task in tasks
    ]
    by_hand = math.sqrt(len(tasks) / (len(tasks) - 1) * sum(r * r for r in residuals)) / len(rows)
    assert test.delta == pytest.approx((2582 - 1683) / 3500)
    assert test.stderr == pytest.approx(by_hand)
    width = stats.t.ppf(0.975, len(tasks) - 1) * by_hand
    assert interval(test.spread) == pytest.approx((test.delta - width, test.delta + width))
    assert paired_test(cot, direct).stderr < test.stderr / 3
