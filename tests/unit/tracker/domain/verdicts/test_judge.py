"""Every verdict word, the order of the rules, and the sentence that a person reads."""

import math
from dataclasses import replace

import numpy as np
import pytest

from eval_jobs.types import ServeSpec
from tests.comparisons import suspicious
from tests.records import forgetting_run
from tests.unit.tracker.domain.judging import NOW, POLICY, changes_of, followed, judged, right, run_of, scores_of, words
from tests.unit.tracker.domain.making import Scores, failure_of, record_of, suite_of
from tracker.domain.records.policy import Policy
from tracker.domain.records.reason_text import reason_text
from tracker.domain.records.types import Baseline, VerdictWord
from tracker.domain.verdicts.context import RunContext
from tracker.domain.verdicts.judge import judge

ONE_CHECKPOINT = 0.05 * 0.9 / 10
"""Of one benchmark at one of ten checkpoints; its tests share it."""


# --- one test a word


def test_the_first_usable_result_has_nothing_to_compare_with() -> None:
    verdict = judged(run_of(140))
    assert (verdict.word, verdict.comparisons, verdict.mde) == (VerdictWord.FIRST, (), None)
    assert verdict.score == pytest.approx(0.7)
    assert reason_text(verdict) == "0.7, first usable result of this run"


@pytest.mark.parametrize(
    ("before", "now", "n", "word"),
    [
        (190, 10, 200, VerdictWord.REGRESSED),
        (310, 100, 500, VerdictWord.REGRESSED),
        (35, 12, 56, VerdictWord.REGRESSED),
        (40, 32, 56, VerdictWord.SUSPECT),
        (40, 37, 56, VerdictWord.INCONCLUSIVE),
    ],
)
def test_the_second_one_is_compared_with_the_first(before: int, now: int, n: int, word: VerdictWord) -> None:
    verdict = judged(run_of(before, now, n=n))
    assert verdict.word is word
    assert [(c.baseline, c.baseline_steps) for c in verdict.comparisons] == [(Baseline.RECENT, (100,))]


def test_a_failed_benchmark_is_missing_and_says_why() -> None:
    verdict = judged(run_of(100, failure_of()))
    assert (verdict.word, verdict.score, verdict.coverage) == (VerdictWord.MISSING, None, 0.0)
    assert reason_text(verdict) == "no result: vLLM ended while loading /pins/7 (E-SERVE-DIED)"


def test_too_few_scored_samples_are_missing_and_never_a_lower_score() -> None:
    verdict = judged(run_of(200, 200, [1.0] * 150 + [None] * 50))
    assert verdict.word is VerdictWord.MISSING
    assert reason_text(verdict) == (
        "only 150 of 200 samples scored (75.0 %, 95 % required): 50 errors, 0 unscored; first: the server went away"
    )


def test_nothing_scored_is_missing_even_when_no_coverage_is_asked_for() -> None:
    assert judged(run_of([None]), policy=Policy(min_coverage=0.0)).word is VerdictWord.MISSING


def test_other_settings_are_incomparable_and_named() -> None:
    before = run_of(140, 140, suite=suite_of(["sums"], few_shot=5))
    after = record_of(300, {"sums": right(20)}, suite=suite_of(["sums"], few_shot=0))
    verdict = judged([*before, after])
    assert verdict.word is VerdictWord.INCOMPARABLE
    assert reason_text(verdict) == "measured differently from step 200: few_shot (examples in the prompt) is 0, was 5"


def test_other_serving_is_incomparable_and_named() -> None:
    serve = ServeSpec(dtype="float32", args=("--quantization", "fp8"), port=8123)
    verdict = judged([*run_of(190, 190), record_of(300, {"sums": right(20)}, serve=serve)])
    assert verdict.word is VerdictWord.INCOMPARABLE
    assert reason_text(verdict) == (
        "measured differently from step 200: serve.args is --quantization, fp8, was the default;"
        " serve.dtype is float32, was auto"
    )


def test_too_few_common_samples_are_incomparable() -> None:
    before: Scores = [None] * 10 + [1.0] * 190
    after: Scores = [1.0] * 190 + [None] * 10
    verdict = judged(run_of(before, before, after))
    assert verdict.word is VerdictWord.INCOMPARABLE
    assert reason_text(verdict) == "only 180 samples scored on both sides (90.0 %, 95 % required)"


@pytest.mark.parametrize("n", [1, 2, 9])
def test_a_handful_of_samples_shows_no_spread_to_judge_by(n: int) -> None:
    verdict = judged(run_of([1.0] * n, [1.0] * n, [0.0] * n))
    assert verdict.word is VerdictWord.INCOMPARABLE
    assert reason_text(verdict) == f"too few samples: {n} scored on both sides, 10 required"


def test_ten_samples_are_judged() -> None:
    assert judged(run_of([1.0] * 10, [1.0] * 10, [0.0] * 10)).word is VerdictWord.REGRESSED


def test_a_drop_is_regressed_and_counted_in_samples() -> None:
    verdict = judged(run_of(186, 186, 186, 186, 4))
    assert verdict.word is VerdictWord.REGRESSED
    assert reason_text(verdict) == "0.930 at step 400 -> 0.020 since step 500; 182 of 200 samples lost"
    assert [c.baseline for c in verdict.comparisons] == [Baseline.RECENT, Baseline.PEAK]
    assert ONE_CHECKPOINT / 100 < verdict.alpha_test < ONE_CHECKPOINT
    assert verdict.lost_since == 500


@pytest.mark.slow
def test_what_was_learned_and_stays_lost_is_forgotten_at_the_third_checkpoint() -> None:
    run = forgetting_run(samples=200, checkpoints=20)
    reports = followed(run.records, Policy(planned_checkpoints=20))
    facts = [next(v for v in r.verdicts if v.benchmark == "facts") for r in reports]
    lost = [v.word.value for v in facts].index("regressed")
    assert "forgotten" in [v.word.value for v in facts[lost : lost + 5]]
    forgotten = next(v for v in facts if v.word is VerdictWord.FORGOTTEN)
    assert reason_text(forgotten).endswith("; below the peak at 3 checkpoints in a row")
    assert forgotten.comparisons[0].baseline is Baseline.PEAK


def test_what_was_there_from_the_start_was_not_learned_and_is_only_regressed() -> None:
    run = run_of(*[186] * 5, *[4] * 5)
    assert "forgotten" not in words(run)
    assert "forgotten" in words(run, replace(POLICY, chance={"sums": 0.1}))


def test_a_gain_is_improved() -> None:
    verdict = judged(run_of(20, 20, 120))
    assert verdict.word is VerdictWord.IMPROVED
    assert reason_text(verdict) == "0.10 at steps 100 to 200 -> 0.60; lost 0 of 200 samples, gained 100"


def test_the_same_answers_of_enough_samples_are_equivalent() -> None:
    verdict = judged(run_of(*[140] * 8))
    assert verdict.word is VerdictWord.EQUIVALENT
    assert reason_text(verdict) == "0.700 at steps 100 to 700 -> 0.700: equivalent within ±0.01"


def test_the_same_answers_of_few_samples_conclude_nothing() -> None:
    verdict = judged(run_of(*[14] * 8, n=20))
    assert verdict.word is VerdictWord.INCONCLUSIVE
    assert "not significant (n = 20)" in reason_text(verdict)


def test_a_loss_that_one_checkpoint_alone_would_flag_is_suspect() -> None:
    verdict = judged(run_of(*[140] * 6, 127))
    assert verdict.word is VerdictWord.SUSPECT
    assert "(correct in most of those steps), gained 0: may be worse (95 % CI " in reason_text(verdict)
    assert reason_text(verdict).endswith("too small for a verdict on one checkpoint alone")
    assert verdict.comparisons[0].p_worse < 0.01


def test_a_change_within_noise_is_inconclusive_and_says_what_could_hide() -> None:
    before = [1.0] * 100 + [0.0] * 100
    after = [1.0] * 90 + [0.0] * 10 + [1.0] * 8 + [0.0] * 92
    verdict = judged(run_of(before, before, before, after))
    assert verdict.word is VerdictWord.INCONCLUSIVE
    assert verdict.mde is not None
    assert 0.05 < verdict.mde < 0.3
    assert f"minimum detectable loss {verdict.mde:.2g}" in reason_text(verdict)


def test_four_checkpoints_together_see_smaller_losses_than_one() -> None:
    rng = np.random.default_rng(0)
    verdict = judged(run_of(*((rng.random(200) < 0.7).astype(float).tolist() for _ in range(9))))
    assert verdict.mde is not None
    assert verdict.mde_pooled is not None
    assert POLICY.min_effect < verdict.mde_pooled < verdict.mde


def test_no_reason_ever_says_no_change() -> None:
    for run in (run_of(*[140] * 8), run_of(*[14] * 4, n=20), run_of(140, 140, 139)):
        assert all("no change" not in reason_text(r.verdicts[0]).lower() for r in followed(run))


# --- order of the rules


def test_missing_comes_before_everything() -> None:
    half: Scores = [0.0] * 100 + [None] * 100
    old = run_of(190, 190, suite=suite_of(["sums"], few_shot=5))
    assert judged([*old, record_of(300, {"sums": half})]).word is VerdictWord.MISSING


def test_steps_too_small_to_see_one_by_one_add_up() -> None:
    run = run_of(*range(180, 100, -2))
    found = words(run, Policy(planned_checkpoints=40))
    assert "regressed" in found
    last = judged(run, -1, Policy(planned_checkpoints=40))
    assert (last.word, last.comparisons[0].baseline) == (VerdictWord.REGRESSED, Baseline.PEAK)


def test_half_a_recovery_is_still_below_the_peak() -> None:
    run = run_of(*[190] * 8, *[10] * 2, *[120] * 4)
    assert words(run, Policy(planned_checkpoints=20))[8:] == ["regressed"] * 6


def test_a_word_that_is_no_loss_shows_the_counts_of_its_own_comparison() -> None:
    one, many = (
        suspicious(1000, pooled_steps=(1100,)),
        suspicious(*range(100, 1100, 100), pooled_steps=tuple(range(1100, 1900, 100))),
    )
    for compared, most in ((one, ""), (many, " (correct in most of those steps)")):
        found = replace(compared, n_common=100, n_lost=9, n_gained=1)
        verdict = replace(judged(run_of(186, 186, 186, 186, 4)), word=VerdictWord.SUSPECT, comparisons=(found,))
        assert reason_text(verdict).partition(": ")[0].endswith(f"lost 9 of 100 samples{most}, gained 1")


def test_the_interval_of_a_difference_of_shares_stays_a_difference_of_shares() -> None:
    comparison = judged(run_of(100, 100, 0, n=100)).comparisons[0]
    assert (comparison.delta, comparison.ci_low) == (-1.0, -1.0)
    assert comparison.ci_high > -1.0


def test_lower_is_better_is_judged_the_other_way_round() -> None:
    suite = suite_of(["sums"], higher_is_better=False)
    assert words(run_of(190, 190, 10, suite=suite))[2] == "improved"
    verdict = judged(run_of(10, 10, 10, 10, 100, suite=suite))
    assert verdict.word is VerdictWord.REGRESSED
    assert reason_text(verdict) == "0.050 at step 400 -> 0.500 since step 500; 90 of 200 samples lost"
    assert verdict.score == 0.5
    assert verdict.comparisons[0].delta == pytest.approx(-0.45)


def test_the_evidence_can_be_checked_by_hand() -> None:
    run = run_of(180, 184, 182, 186, 60)
    verdict = judged(run)
    deciding = verdict.comparisons[0]
    samples = np.array([[s.score for s in r.outcomes[0].samples] for r in run])  # type: ignore[union-attr]
    d = samples[4] - samples[:4].mean(axis=0)
    assert (deciding.pooled_steps, deciding.baseline_steps) == ((500,), (100, 200, 300, 400))
    assert deciding.delta == pytest.approx(d.mean())
    of_samples = d.var(ddof=1) / 200
    with_jitter = of_samples * (1 + 2 / 200) + deciding.jitter**2 * (1 + 1 / 4)
    assert 0.8 * math.sqrt(of_samples) < deciding.stderr < math.sqrt(with_jitter)  # the scale of a t distribution
    assert deciding.ci_low < deciding.delta < deciding.ci_high
    assert deciding.p_worse_items < deciding.p_worse < verdict.alpha_test
    assert (deciding.n_common, deciding.common_fraction, deciding.n_lost, deciding.n_gained) == (200, 1.0, 120, 0)


def test_every_benchmark_of_a_record_has_one_verdict() -> None:
    record = record_of(100, {"sums": right(100), "facts": failure_of("facts")})
    report = judge(record, scores_of([record]), RunContext(), POLICY, now=NOW)
    assert {v.benchmark: v.word for v in report.verdicts} == {
        "sums": VerdictWord.FIRST,
        "facts": VerdictWord.MISSING,
    }
    assert (report.run_id, report.step, report.plan_id, report.created_at) == ("run", 100, record.plan.id, NOW)


@pytest.mark.parametrize(
    ("counts", "chance", "is_tested"),
    [
        ((52, 48, 50, 47, 51), 0.25, False),
        ((52, 48, 50, 47, 20), 0.25, True),  # clearly below guessing
        ((52, 48, 50, 47, 110), 0.25, True),
        ((110, 112, 111, 110, 50), 0.25, True),
        ((52, 48, 50, 47, 51), None, True),
    ],
)
def test_what_has_not_left_chance_is_not_tested(
    counts: tuple[int, ...], chance: float | None, *, is_tested: bool
) -> None:
    policy = replace(POLICY, chance={} if chance is None else {"sums": chance})
    verdict = judged(run_of(*counts), policy=policy)
    assert bool(verdict.comparisons) is is_tested
    assert (verdict.word is VerdictWord.NOT_LEARNED) is not is_tested
    assert is_tested or reason_text(verdict) == "never clearly better than guessing (score 0.25)"


def test_a_score_that_falls_below_guessing_has_its_own_word_and_is_one_incident() -> None:
    """Nothing was learned, so nothing can be lost; but a clear fall below guessing is no chance."""
    policy, below_it = replace(POLICY, chance={"sums": 0.25}), (102, 98, 100, 97, 101, 3, 2, 3)
    reports = followed(run_of(*below_it, n=400), policy)
    below = [r.verdicts[0] for r in reports if r.verdicts[0].word is VerdictWord.BELOW_GUESSING]
    assert [r.step for r in reports if r.verdicts[0].word is VerdictWord.BELOW_GUESSING][-1] == 800
    assert reason_text(below[-1]) == (
        "0.253 at step 500 -> 0.007 since step 600; 98 of 400 samples lost; below guessing: "
        "check the format of the answers"
    )
    assert [(e.onset_step, e.closed_step) for e in changes_of(reports)] == [(600, None)]
    alone = followed(run_of(*below_it, n=400))
    assert alone[-1].verdicts[0].word in (VerdictWord.REGRESSED, VerdictWord.FORGOTTEN)


def test_a_gain_that_one_checkpoint_alone_would_flag_is_rising() -> None:
    verdict = judged(run_of(*[140] * 6, 153))
    assert verdict.word is VerdictWord.RISING
    assert "may be better (95 % CI +" in reason_text(verdict)
